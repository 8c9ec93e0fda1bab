|     mrs xr1, TPIDR_EL0
      mov wr4, #4160
      add xr1, xr1, wr10, sxtw
      movk wr4, #16385, lsl #16
      mov wr10, wzr
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
|     madd xr2, xr2, xr4, xr5
|     ldr xr6, [xr2]
|     add xr7, xr6, xr8
|     eor xr6, xr6, xr7
|     cmp xr6, xr9
|     b.hi L5
|     str xr7, [xr2]
| L3:
|     .section __rseq_failure
|     .inst 0xd428bc00
| L4:
|     b L5
|     .section .text
      mov wr10, #1
  L5:
      ret
