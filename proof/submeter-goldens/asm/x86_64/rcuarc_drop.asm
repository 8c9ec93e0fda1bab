# rustc 1.95
    movl 8(%r1), %r2d
    testl %r2d, %r2d
    jle cold
    leal -1(%r2), %r3d
    lock cmpxchgl %r3d, 8(%r1)
    jne cold
    retq
