# rustc 1.95
    lock decl 8(%r1)
    js cold
    retq
