|     mrs xr1, TPIDR_EL0
      add xr1, xr1, xr8
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
|     cmp wr2, wr3
|     b.hs L5
|     add xr2, xr4, xr2, lsl #30
|     ldr xr5, [xr2]
|     add xr6, xr5, xr7
|     eor xr5, xr5, xr6
|     str xr6, [xr2]
| L3:
|     b L6
|     .inst 0xd428bc00
| L4:
|     mov xr2, #1
|     mov xr5, #-1
|     b L6
| L5:
|     mov xr2, #2
|     mov xr5, #-1
| L6:
      stp xr6, xr5, [xr9]
      str xr2, [xr9, #16]
      ret
