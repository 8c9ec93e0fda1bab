      pushq %r5
      movq %r6, %r10
      movl 16(%rsp), %r6d
      movslq %r2d, %r2
|     .section __rseq_cs
| L1:
|     .long 0
|     .long 0
|     .quad L2
|     .quad L3-L2
|     .quad L4
|     .section .text
|     leaq L1(%rip), %r1
|     movq %r1, %fs:8(%r2)
| L2:
|     cmpl $0, %fs:4(%r2)
|     js L5
|     movl %fs:24(%r2), %r1d
|     cmpl %r3d, %r1d
|     jae L5
|     imulq $1073811520, %r1, %r1
|     movq (%r4,%r1), %r5
|     btq %r6, %r5
|     jae L6
|     addq %r7, %r1
|     movq (%r1), %r8
|     movq %r8, %r5
|     leaq (%r8,%r9), %r8
|     xorq %r8, %r5
|     movq %r8, (%r1)
| L3:
|     .section __rseq_failure
|     .byte 15
|     .byte 185
|     .byte 61
|     .long 1392848979
| L4:
|     movl $1, %r1d
|     movq $-1, %r5
|     jmp L7
| L5:
|     movl $2, %r1d
|     movq $-1, %r5
|     jmp L7
|     .section .text
| L7:
|     .section __rseq_failure
| L6:
|     movl $3, %r1d
|     movq $-1, %r5
|     jmp L7
|     .section .text
      movq %r8, (%r10)
      movq %r5, 8(%r10)
      movq %r1, 16(%r10)
      popq %r5
      retq
