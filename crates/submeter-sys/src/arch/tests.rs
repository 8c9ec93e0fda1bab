//! Each sequence on an area that the kernel does not know: nothing aborts, so every result can be
//! predicted, on any machine and in an emulator.

use std::cell::Cell;

use crate::memory::Reservation;
use crate::rseq::{Exit, FIELD_CPU_ID, FIELD_MM_CID, FIELD_RSEQ_CS, ROWS_BY_MM_CID, Rseq};
use crate::{CENTRE, CpuRows, STRIDE, arch};

const CPUS: u32 = 3;
/// Where the marks of indexed words begin in a row: after all words that the tests use.
const MARKS_AT: usize = 1 << 20;

/// An area of ours, in the layout of linux/rseq.h, and rows to add to.
struct Fake {
    rows: Reservation,
}

#[derive(Clone, Copy)]
#[repr(align(32))]
struct Area([u8; 32]);

thread_local! {
    /// Near the thread pointer, as every area is.
    static AREA: Cell<Area> = const { Cell::new(Area([0; 32])) };
}

/// `struct rseq_cs` of linux/rseq.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

impl Fake {
    fn new() -> Fake {
        let rows = Reservation::new(CPUS as usize * STRIDE).expect("reserves");
        AREA.set(Area([0; 32]));
        Fake { rows }
    }

    /// Returns sequences that believe they run on `cpu`, or in the row of that number where rows
    /// are by `mm_cid`.
    fn on(&mut self, cpu: i32) -> Rseq {
        // Rows by `mm_cid` run on CPU 77; a thread that is not registered has an `mm_cid` of 0.
        let id = if ROWS_BY_MM_CID && cpu >= 0 { 77 } else { cpu };
        let mut area = AREA.get();
        area.0[FIELD_CPU_ID..][..4].copy_from_slice(&id.to_ne_bytes());
        area.0[FIELD_MM_CID..][..4].copy_from_slice(&cpu.max(0).to_ne_bytes());
        AREA.set(area);
        let address = AREA.with(|area| area.as_ptr().expose_provenance());
        let offset = address.wrapping_sub(arch::thread_pointer()).cast_signed();
        Rseq::new(i32::try_from(offset).expect("thread-local memory"), CPUS)
    }

    fn word(&self) -> *mut i64 {
        self.rows.base().as_ptr().cast()
    }

    /// Returns the rows for sequences that look a word up by its index.
    fn rows(&self, rseq: Rseq) -> CpuRows {
        CpuRows::new(self.rows.base(), rseq)
    }

    /// Returns the marks of 64 lines from `line` on, in the row of `cpu`.
    fn line_marks(&self, cpu: usize, line: u32) -> *mut u64 {
        let marks = self.word().wrapping_byte_add(cpu * STRIDE + MARKS_AT).cast::<u64>();
        marks.wrapping_add(line as usize / 64)
    }

    /// Returns the first of the words that lie side by side.
    fn packed(&self) -> *mut i64 {
        self.word().wrapping_add(128)
    }

    fn marks(&self) -> *mut u64 {
        self.word().wrapping_add(64).cast()
    }

    /// Returns the word of every row.
    fn words(&self) -> [i64; CPUS as usize] {
        // SAFETY: 1. The address is inside the reservation: it has `CPUS` rows. 2. This thread
        // alone uses it: the test keeps it.
        std::array::from_fn(|cpu| unsafe { self.word().wrapping_byte_add(cpu * STRIDE).read() })
    }

    /// Returns what the last sequence armed.
    fn armed(&self) -> Descriptor {
        let field: [u8; 8] = AREA.get().0[FIELD_RSEQ_CS..][..8].try_into().expect("eight bytes");
        let address = usize::try_from(u64::from_ne_bytes(field)).expect("64-bit target");
        assert!(address != 0 && address % 32 == 0, "{address:#x}");
        // SAFETY: 1. The address is that of a static descriptor: the sequences store no other.
        unsafe { std::ptr::with_exposed_provenance::<Descriptor>(address).read() }
    }
}

#[test]
fn every_sequence_adds_on_the_areas_cpu() {
    let mut fake = Fake::new();
    let mode = CPUS;
    for cpu in 0..CPUS {
        let before = fake.words();
        let rseq = fake.on(cpu.cast_signed());
        let word = fake.word();
        assert_eq!(rseq.row(), Some(cpu));
        // SAFETY: 1. Rows `0..CPUS` are reserved: the test keeps them. 2. This thread alone uses
        // them.
        unsafe {
            assert!(rseq.add(word, 1 << 40));
            assert!(rseq.gated().add_while::<-3>(word, &raw const mode));
            assert!(rseq.gated().add_value_while(word, &raw const mode, -(1 << 33)));
            assert!(rseq.gated().add_capped(word, &raw const mode, 9, 1 << 62));
        }
        let mut expected = before;
        expected[cpu as usize] += (1 << 40) - 3 - (1 << 33) + 9;
        assert_eq!(fake.words(), expected, "cpu {cpu}");
    }
}

/// At rest, no sequence is armed and the CPU is unchanged.
#[test]
fn at_rest_no_sequence_is_armed() {
    let mut fake = Fake::new();
    let rseq = fake.on(1);
    // SAFETY: 1 and 2. As above.
    assert!(unsafe { rseq.add(fake.word(), 1) });
    assert_ne!(fake.armed().length, 0);
    let mut area = AREA.get();
    area.0[FIELD_RSEQ_CS..][..8].fill(0);
    assert!(!rseq.is_at_rest());
    rseq.rest();
    assert!(rseq.is_at_rest());
    assert_eq!(AREA.get().0, area.0);
}

#[test]
fn packed_words_lie_side_by_side() {
    let mut fake = Fake::new();
    for (cpu, n) in [(0, 5), (2, -7), (1, i64::MIN), (2, -1)] {
        let rseq = fake.on(cpu);
        // SAFETY: 1. The three words are in row 0: the test keeps it. 2. This thread alone uses
        // them.
        assert!(unsafe { rseq.add_packed(fake.packed(), n) });
    }
    for cpu in [-1, CPUS.cast_signed()] {
        let rseq = fake.on(cpu);
        // SAFETY: 1. As above.
        assert!(!unsafe { rseq.add_packed(fake.packed(), 1) }, "cpu {cpu}");
    }
    // SAFETY: 1. As above; the word after them is in the row as well.
    let words: [i64; 4] = std::array::from_fn(|cpu| unsafe { fake.packed().add(cpu).read() });
    assert_eq!((words, fake.words()), ([5, i64::MIN, -8, 0], [0; 3]));
}

#[test]
fn outputs_are_the_word_and_the_changed_bits() {
    let mut fake = Fake::new();
    for (n, was) in [(1, 0), (-1, 0), (i64::MAX, 5), (i64::MIN, -1), (3, -2)] {
        let rseq = fake.on(1);
        // SAFETY: 1. As above.
        let added = unsafe {
            fake.word().wrapping_byte_add(STRIDE).write(was);
            rseq.add_carry(fake.word(), n)
        };
        let after = was.wrapping_add(n);
        assert_eq!((added.exit(), added.after()), (None, after));
        assert_eq!(added.changed(), (was ^ after).cast_unsigned());
        assert_eq!(fake.words(), [0, after, 0]);
    }
}

#[test]
fn a_mark_is_tested_on_the_same_cpu_modulo_64() {
    let mut fake = Fake::new();
    // SAFETY: 1. As above.
    unsafe { fake.marks().wrapping_byte_add(2 * STRIDE).write(1 << 37) };
    for (cpu, bit, adds) in
        [(2, 37, true), (2, 37 + 64, true), (2, 36, false), (1, 37, false), (2, 38, false)]
    {
        let before = fake.words();
        let rseq = fake.on(cpu);
        // SAFETY: 1. As above.
        let added = unsafe { rseq.add_marked(fake.word(), 9, fake.marks(), bit) };
        let mut expected = before;
        if adds {
            expected[cpu as usize] += 9;
            assert_eq!((added.exit(), added.after()), (None, expected[cpu as usize]));
        } else {
            assert_eq!((added.exit(), added.changed()), (Some(Exit::Unmarked), u64::MAX));
        }
        assert_eq!(fake.words(), expected, "cpu {cpu}, bit {bit}");
    }
}

/// An indexed word is marked by the bit of its line in its own row.
#[test]
fn an_indexed_word_is_marked_in_its_own_row() {
    let mut fake = Fake::new();
    // The first and the last word of a line, of a word of marks, and far from both.
    for index in [0, 7, 8, 299, 511, 512, 131_071_u32] {
        let line = index / 8;
        let at =
            |cpu: usize| fake.word().wrapping_add(index as usize).wrapping_byte_add(cpu * STRIDE);
        let words = [at(0), at(1), at(2)];
        // On other CPUs, and for all other lines of this CPU: no mark of this line. SAFETY: 1.
        // Words and marks are in the rows: the test keeps them. 2. This thread alone uses them.
        unsafe {
            fake.line_marks(0, line).write(u64::MAX);
            fake.line_marks(1, line).write(u64::MAX);
            fake.line_marks(2, line).write(!(1 << (line % 64)));
        }
        for marked in [false, true] {
            let rseq = fake.on(2);
            // SAFETY: 1 and 2. As above.
            let done = unsafe {
                if marked {
                    fake.line_marks(2, line).write(1 << (line % 64));
                }
                fake.rows(rseq).add_marked_within::<MARKS_AT>(index, 5, 63)
            };
            assert_eq!(done, marked, "word {index}");
            // SAFETY: 1 and 2. As above.
            let found = words.map(|word| unsafe { word.read() });
            assert_eq!(found, [0, 0, if marked { 5 } else { 0 }], "word {index}");
        }
        // SAFETY: 1 and 2. As above.
        unsafe { (0..3).for_each(|cpu| fake.line_marks(cpu, line).write(0)) };
    }
}

/// An add that leaves its batch is refused, in either direction and where the word wraps around.
#[test]
fn add_within_refuses_a_crossing() {
    let mut fake = Fake::new();
    let all = i64::MAX.cast_unsigned();
    // The word before, the amount, the batch's mask, whether the sum stays within the batch.
    let cases = [
        (0, 1, 63, true),
        (62, 1, 63, true),
        (63, 1, 63, false),
        (64, -1, 63, false),
        (65, -1, 63, true),
        (0, -1, 63, false),
        (-1, 1, 63, false),
        (-64, 63, 63, true),
        (-65, 1, 63, false),
        (100, 0, 63, true),
        (5, 64, 63, false),
        (7, 0, 0, true),
        (7, 1, 0, false),
        (i64::MAX, 1, 63, false),
        (i64::MAX, 1, all, false),
        (i64::MIN, -1, all, false),
        (-1, 1, all, false),
        (0, i64::MAX, all, true),
        (i64::MIN, i64::MAX, all, true),
        (3, i64::MIN, all, false),
    ];
    for (was, n, mask, stays) in cases {
        for is_marked in [false, true] {
            let rseq = fake.on(1);
            // The sequence that tests a mark has its boundaries elsewhere.
            let was = was.wrapping_sub(if is_marked { CENTRE.into() } else { 0 });
            // SAFETY: 1. As above.
            let done = unsafe {
                fake.word().wrapping_byte_add(STRIDE).write(was);
                fake.line_marks(1, 0).write(1);
                if is_marked {
                    fake.rows(rseq).add_marked_within::<MARKS_AT>(0, n, mask)
                } else {
                    rseq.add_within(fake.word(), n, mask)
                }
            };
            assert_eq!(done, stays, "{was} + {n}, mask {mask:#x}");
            let after = if stays { was.wrapping_add(n) } else { was };
            assert_eq!(fake.words(), [0, after, 0], "{was} + {n}, mask {mask:#x}");
        }
    }
}

#[test]
fn a_capped_word_is_within_zero_and_its_cap() {
    let mut fake = Fake::new();
    let (mode, most) = (CPUS, 1 << 62);
    // The word before, the amount, the cap, whether the sum stays within it.
    let cases = [
        (0, 1, 1, true),
        (0, 1, 0, false),
        (1, 0, 0, false),
        (5, -5, 7, true),
        (5, -6, 7, false),
        (5, 2, 7, true),
        (5, 3, 7, false),
        (0, i64::MIN, most, false),
        (1 << 62, i64::MAX, most, false),
        (1 << 62, i64::MIN, most, false),
        (0, 1 << 62, most, true),
        (1 << 62, -(1 << 62), most, true),
    ];
    for (was, n, cap, stays) in cases {
        let rseq = fake.on(2);
        // SAFETY: 1. As above.
        let done = unsafe {
            fake.word().wrapping_byte_add(2 * STRIDE).write(was);
            rseq.gated().add_capped(fake.word(), &raw const mode, n, cap)
        };
        assert_eq!(done, stays, "{was} + {n}, cap {cap}");
        let after = if stays { was + n } else { was };
        assert_eq!(fake.words(), [0, 0, after], "{was} + {n}, cap {cap}");
    }
}

#[test]
fn no_row_and_no_mode_mean_no_add() {
    let mut fake = Fake::new();
    let (alive, dead) = (CPUS, 0);
    // Unregistered, refused, beyond the rows, and as far beyond as possible.
    for cpu in [-1, -2, CPUS.cast_signed(), i32::MAX, i32::MIN] {
        let rseq = fake.on(cpu);
        let word = fake.word();
        assert_eq!(rseq.row(), None);
        // SAFETY: 1. As above.
        unsafe {
            assert!(!rseq.add(word, 7));
            assert!(!rseq.add_within(word, 7, u64::MAX));
            fake.marks().write(1);
            fake.line_marks(0, 0).write(1);
            assert!(!fake.rows(rseq).add_marked_within::<MARKS_AT>(0, 7, u64::MAX));
            assert!(!rseq.gated().add_while::<1>(word, &raw const alive));
            assert!(!rseq.gated().add_value_while(word, &raw const alive, 7));
            assert!(!rseq.gated().add_capped(word, &raw const alive, 7, 100));
            let added = [rseq.add_carry(word, 7), rseq.add_marked(word, 7, fake.marks(), 0)];
            for added in added {
                assert_eq!((added.exit(), added.changed()), (Some(Exit::Outside), u64::MAX));
            }
        }
    }
    let rseq = fake.on(0);
    // SAFETY: 1. As above.
    unsafe {
        assert!(!rseq.gated().add_while::<1>(fake.word(), &raw const dead));
        assert!(!rseq.gated().add_value_while(fake.word(), &raw const dead, 7));
        assert!(!rseq.gated().add_capped(fake.word(), &raw const dead, 7, 100));
    }
    assert_eq!(fake.words(), [0; 3]);
}

#[test]
fn the_kernel_accepts_every_descriptor() {
    let mut fake = Fake::new();
    let mode = CPUS;
    let mut seen = Vec::new();
    for sequence in 0..9 {
        let rseq = fake.on(0);
        let (word, marks) = (fake.word(), fake.marks());
        // SAFETY: 1. As above.
        unsafe {
            match sequence {
                0 => drop(rseq.add(word, 1)),
                1 => drop(rseq.gated().add_while::<1>(word, &raw const mode)),
                2 => drop(rseq.gated().add_value_while(word, &raw const mode, 1)),
                3 => drop(rseq.add_carry(word, 1)),
                4 => drop(rseq.add_within(word, 1, 63)),
                5 => drop(rseq.add_packed(fake.packed(), 1)),
                6 => drop(rseq.gated().add_capped(word, &raw const mode, 1, 100)),
                7 => drop(fake.rows(rseq).add_marked_within::<MARKS_AT>(0, 1, 63)),
                _ => drop(rseq.add_marked(word, 1, marks, 0)),
            }
        }
        let armed = fake.armed();
        assert_eq!((armed.version, armed.flags), (0, 0));
        // Fewer bytes would mean missing instructions; even with the delay points there are not
        // many more.
        assert!((8..512).contains(&armed.length), "{} bytes", armed.length);
        let section = armed.start..armed.start + armed.length;
        assert!(!section.contains(&armed.abort), "an abort path inside its section is refused");
        let signature = std::ptr::with_exposed_provenance::<u32>(armed.abort as usize - 4);
        // SAFETY: 1. The four bytes belong to this program's code: they lie before an address
        // inside it.
        assert_eq!(unsafe { signature.read_unaligned() }, arch::SIGNATURE);
        assert!(!seen.contains(&armed.start), "each sequence has its own descriptor");
        seen.push(armed.start);
    }
}

#[test]
fn a_new_threads_area_is_aligned_unregistered() {
    let look = || {
        let offset = arch::own_area_offset();
        let address = arch::thread_pointer().wrapping_add_signed(offset);
        assert_eq!(address % 32, 0, "the kernel refuses any other");
        // SAFETY: 1. The area exists: the ISA file reserves 64 bytes in every thread's initial TLS
        // block.
        let cpu = unsafe { arch::read_u32(offset, FIELD_CPU_ID) };
        (offset, address, cpu)
    };
    let (offset, address, _) = look();
    let others: Vec<_> =
        (0..3).map(|_| std::thread::spawn(look).join().expect("no panic")).collect();
    for (their_offset, their_address, cpu) in others {
        assert_eq!((their_offset, cpu), (offset, u32::MAX));
        assert_ne!(their_address, address);
    }
}
