# rustc 1.95
    lock incl (%r1)
    js L1
    movb $1, %r2b
    retq
L1:
    movq %r1, %r3
    jmp cold
