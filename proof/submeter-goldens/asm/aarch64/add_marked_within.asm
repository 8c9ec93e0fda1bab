|     mrs xr1, TPIDR_EL0
      mov wr6, wr11
      add xr1, xr1, xr12
      mov wr12, wzr
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
|     tst xr4, #0x1
|     b.eq L5
|     add xr2, xr2, xr7
|     ldr xr4, [xr2]
|     add xr8, xr4, xr9
|     eor xr4, xr4, xr8
|     cmp xr4, xr10
|     b.hi L5
|     str xr8, [xr2]
| L3:
|     .section __rseq_failure
|     .inst 0xd428bc00
| L4:
|     b L5
|     .section .text
      mov wr12, #1
  L5:
      ret
