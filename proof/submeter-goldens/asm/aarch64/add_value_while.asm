|     mrs xr1, TPIDR_EL0
      add xr1, xr1, xr7
      mov wr7, wzr
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
|     ldr wr3, [xr4]
|     cmp wr2, wr3
|     b.hs L5
|     add xr2, xr5, xr2, lsl #30
|     ldr xr3, [xr2]
|     add xr3, xr3, xr6
|     str xr3, [xr2]
| L3:
|     .section __rseq_failure
|     .inst 0xd428bc00
| L4:
|     b L5
|     .section .text
      mov wr7, #1
  L5:
      ret
