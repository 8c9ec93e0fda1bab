      lsr wr7, wr10, #3
      ldr xr8, [xr13]
      mov wr3, #1065353216
      ldp wr9, wr4, [xr13, #8]
      lsr xr6, xr7, #3
      add xr3, xr8, xr3
|     mrs xr1, TPIDR_EL0
      sxtw xr9, wr9
      add xr8, xr8, wr10, uxtw #3
      mov wr13, wzr
      and xr6, xr6, #0x3fffff8
      add xr6, xr3, xr6
      add xr3, xr1, xr9
      mov wr9, #2048
      mov wr1, #4160
      movk wr9, #9, lsl #16
      movk wr1, #16385, lsl #16
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
|     str xr2, [xr3, #8]
| L2:
|     ldr wr2, [xr3, #4]
|     cmp wr2, wr4
|     b.hs L5
|     mul xr2, xr2, xr1
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
