|     mrs xr1, TPIDR_EL0
      mov wr9, #512
      mov wr4, #4160
      add xr1, xr1, wr13, sxtw
      mov wr7, wr14
      movk wr9, #9, lsl #16
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
|     cmp wr2, wr3
|     b.hs L5
|     mul xr2, xr2, xr4
|     ldr xr5, [xr6, xr2]
|     lsr xr5, xr5, xr7
|     tst xr5, #0x1
|     b.eq L5
|     add xr2, xr2, xr8
|     ldr xr5, [xr2]
|     add xr5, xr5, xr9
|     add xr10, xr5, xr11
|     eor xr5, xr5, xr10
|     cmp xr5, xr12
|     b.hi L5
|     sub xr10, xr10, xr9
|     str xr10, [xr2]
| L3:
|     .section __rseq_failure
|     .inst 0xd428bc00
| L4:
|     b L5
|     .section .text
      mov wr13, #1
  L5:
      ret
