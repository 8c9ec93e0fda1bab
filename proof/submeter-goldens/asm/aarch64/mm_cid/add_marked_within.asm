|     mrs xr1, TPIDR_EL0
      mov wr4, #4160
      mov wr7, wr12
      add xr1, xr1, wr13, sxtw
      movk wr4, #16385, lsl #16
      mov wr13, wzr
|     .section __rseq_cs
| L1:
|     .word 0
|     .word 0
|     .xword L2
|     .xword L3-L2
|     .xword L4
|     .section .text
|     adrp xr2, L1
|     add xr2, xr2, :lo12:L1
|     str xr2, [xr1, #8]
| L2:
|     ldr wr2, [xr1, #4]
|     cmp wr2, #0
|     b.lt L5
|     ldr wr2, [xr1, #24]
|     cmp wr2, wr3
|     b.hs L5
|     mul xr2, xr2, xr4
|     ldr xr5, [xr6, xr2]
|     lsr xr5, xr5, xr7
|     tst xr5, #0x1
|     b.eq L5
|     add xr2, xr2, xr8
|     ldr xr5, [xr2]
|     add xr9, xr5, xr10
|     eor xr5, xr5, xr9
|     cmp xr5, xr11
|     b.hi L5
|     str xr9, [xr2]
| L3:
|     .section __rseq_failure
|     .inst 0xd428bc00
| L4:
|     b L5
|     .section .text
      mov wr13, #1
  L5:
      ret
