      lsr wr7, wr12, #3
      ldr xr6, [xr13]
      mov wr1, #1065353216
      ldp wr4, wr3, [xr13, #8]
      lsr xr2, xr7, #3
      add xr8, xr6, wr12, uxtw #3
      add xr6, xr6, xr1
      sxtw xr4, wr4
|     mrs xr1, TPIDR_EL0
      mov wr13, wzr
      and xr2, xr2, #0x3fffff8
      add xr6, xr6, xr2
      add xr2, xr1, xr4
      mov wr4, #4160
      movk wr4, #16385, lsl #16
|     .section __rseq_cs
| L1:
|     .word 0
|     .word 0
|     .xword L2
|     .xword L3-L2
|     .xword L4
|     .section .text
|     adrp xr1, L1
|     add xr1, xr1, :lo12:L1
|     str xr1, [xr2, #8]
| L2:
|     ldr wr1, [xr2, #4]
|     cmp wr1, #0
|     b.lt L5
|     ldr wr1, [xr2, #24]
|     cmp wr1, wr3
|     b.hs L5
|     mul xr1, xr1, xr4
|     ldr xr5, [xr6, xr1]
|     lsr xr5, xr5, xr7
|     tst xr5, #0x1
|     b.eq L5
|     add xr1, xr1, xr8
|     ldr xr5, [xr1]
|     add xr9, xr5, xr10
|     eor xr5, xr5, xr9
|     cmp xr5, xr11
|     b.hi L5
|     str xr9, [xr1]
| L3:
|     .section __rseq_failure
|     .inst 0xd428bc00
| L4:
|     b L5
|     .section .text
      mov wr13, #1
  L5:
      ret
