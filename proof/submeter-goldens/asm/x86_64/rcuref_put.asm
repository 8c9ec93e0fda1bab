# rustc 1.95
    lock decl (%r1)
    js L1
    xorl %r2d, %r2d
    retq
L1:
    movq %r1, %r3
    jmp cold
