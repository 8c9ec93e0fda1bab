      pushq %r9
      pushq %r5
      movl 24(%rsp), %r6d
      movslq %r2d, %r2
      xorl %r11d, %r11d
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
|     jae L5
|     addq %r7, %r1
|     movq (%r1), %r5
|     addq $590336, %r5
|     leaq (%r5,%r8), %r9
|     xorq %r9, %r5
|     cmpq %r10, %r5
|     ja L5
|     subq $590336, %r9
|     movq %r9, (%r1)
| L3:
|     .section __rseq_failure
|     .byte 15
|     .byte 185
|     .byte 61
|     .long 1392848979
| L4:
|     jmp L5
|     .section .text
      movb $1, %r11b
  L5:
      popq %r5
      popq %r9
      retq
