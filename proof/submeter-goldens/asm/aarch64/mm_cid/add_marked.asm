|     mrs xr1, TPIDR_EL0
      mov wr4, #4160
      mov wr7, wr11
      add xr1, xr1, wr12, sxtw
      movk wr4, #16385, lsl #16
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
|     tbz wr5, #0, L6
|     add xr2, xr2, xr8
|     ldr xr5, [xr2]
|     add xr9, xr5, xr10
|     eor xr5, xr5, xr9
|     str xr9, [xr2]
| L3:
|     b L7
|     .inst 0xd428bc00
| L4:
|     mov xr2, #1
|     b L8
| L6:
|     mov xr2, #3
|     b L8
| L5:
|     mov xr2, #2
| L8:
|     mov xr5, #-1
| L7:
      stp xr9, xr5, [xr13]
      str xr2, [xr13, #16]
      ret
