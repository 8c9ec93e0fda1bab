|     mrs xr1, TPIDR_EL0
      mov wr5, #4160
      add xr1, xr1, wr9, sxtw
      movk wr5, #16385, lsl #16
      mov wr9, wzr
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
|     ldr wr3, [xr4]
|     ldr wr2, [xr1, #4]
|     cmp wr2, #0
|     b.lt L5
|     ldr wr2, [xr1, #24]
|     cmp wr2, wr3
|     b.hs L5
|     madd xr2, xr2, xr5, xr6
|     ldr xr3, [xr2]
|     add xr3, xr3, xr7
|     cmp xr3, xr8
|     b.hi L5
|     str xr3, [xr2]
| L3:
|     .section __rseq_failure
|     .inst 0xd428bc00
| L4:
|     b L5
|     .section .text
      mov wr9, #1
  L5:
      ret
