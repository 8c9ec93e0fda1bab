# rustc 1.95
    movq (%r1), %r2
    lock incl 8(%r2)
    js L1
    retq
L1:
    pushq %r3
    leaq 8(%r2), %r1
    movq %r1, %r4
    movq %r2, %r3
    callq cold
    movq %r3, %r2
    popq %r3
    retq
