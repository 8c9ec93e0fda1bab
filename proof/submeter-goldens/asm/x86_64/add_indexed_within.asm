      movl %r4d, %r4d
      xorl %r8d, %r8d
|     movslq 8(%r1), %r2
|     .section __rseq_cs
| L1:
|     .long 0
|     .long 0
|     .quad L2
|     .quad L3-L2
|     .quad L4
|     .section .text
|     leaq L1(%rip), %r3
|     movq %r3, %fs:8(%r2)
| L2:
|     movl %fs:4(%r2), %r3d
|     cmpl 12(%r1), %r3d
|     jae L5
|     imulq $1073811520, %r3, %r3
|     addq (%r1), %r3
|     movl %r4d, %r2d
|     shrl $9, %r2d
|     movq 1065353216(%r3,%r2,8), %r2
|     movl %r4d, %r5d
|     shrl $3, %r5d
|     btq %r5, %r2
|     jae L5
|     leaq (%r3,%r4,8), %r3
|     movq (%r3), %r2
|     addq $591872, %r2
|     leaq (%r2,%r6), %r5
|     xorq %r5, %r2
|     cmpq %r7, %r2
|     ja L5
|     subq $591872, %r5
|     movq %r5, (%r3)
| L3:
|     .section __rseq_failure
|     .byte 15
|     .byte 185
|     .byte 61
|     .long 1392848979
| L4:
|     jmp L5
|     .section .text
      movb $1, %r8b
  L5:
      retq
