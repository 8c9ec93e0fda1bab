|     mrs xr1, TPIDR_EL0
      mov wr6, wr10
      add xr1, xr1, xr11
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
|     lsl xr2, xr2, #30
|     ldr xr4, [xr5, xr2]
|     lsr xr4, xr4, xr6
|     tbz wr4, #0, L6
|     add xr2, xr2, xr7
|     ldr xr4, [xr2]
|     add xr8, xr4, xr9
|     eor xr4, xr4, xr8
|     str xr8, [xr2]
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
|     mov xr4, #-1
| L7:
      stp xr8, xr4, [xr12]
      str xr2, [xr12, #16]
      ret
