//! Restartable sequences: an add to the running CPU's own word, at the price of a plain add.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{STRIDE, arch, os};

/// The distance between adjacent words.
const WORD: usize = size_of::<i64>();

/// [`AddOutcome::at`] when the kernel aborted the sequence. Not an address: the first page is never
/// mapped.
pub(crate) const EXIT_ABORTED: i32 = 1;
/// [`AddOutcome::at`] when the thread has no row.
pub(crate) const EXIT_OUTSIDE: i32 = 2;
/// [`AddOutcome::at`] when the mark was clear.
pub(crate) const EXIT_UNMARKED: i32 = 3;

/// `cpu_id` in `struct rseq` (linux/rseq.h).
pub(crate) const FIELD_CPU_ID: usize = 4;
/// `rseq_cs` in `struct rseq` (linux/rseq.h).
pub(crate) const FIELD_RSEQ_CS: usize = 8;
/// `mm_cid` in `struct rseq` (linux/rseq.h), in areas of 28 bytes and more.
pub(crate) const FIELD_MM_CID: usize = 24;
/// Bytes of the area that a kernel with `mm_cid` fills in.
pub(crate) const MM_CID_END: u64 = FIELD_MM_CID as u64 + 4;

/// Whether a row belongs to a running thread instead of the CPU it runs on: with
/// `--cfg submeter_mm_cid`.
///
/// Meant for programs with fewer threads than the machine has CPUs. CPU rows are all in use once a
/// few threads have been on every CPU, and each costs memory and is visited by flushes. Linux
/// promises that the numbers of running threads are distinct, and below the number of possible
/// CPUs. From 6.19 on it also keeps them below the number of threads, running or not: on 7.3 two
/// threads that moved over 8 CPUs got two numbers, on 6.12 eight. An add costs two more
/// instructions (three on aarch64), and a row's lines follow its number from CPU to CPU.
///
/// This is a separate build because loading the number's offset in each sequence made references 8
/// % and adds to a held word 7 % slower for users with rows by CPU
/// (`proof/submeter-bench/record/x86_64-linux/2026-11-27-mm_cid.md`).
pub const ROWS_BY_MM_CID: bool = cfg!(submeter_mm_cid);

/// Whether each thread has an area of ours, for a libc that registers none.
///
/// Not with `--cfg submeter_plugin`: the area is at the same distance from the thread pointer in
/// every thread, which is possible only in memory that threads start with. A library that needs
/// such memory and is loaded late takes it, with all its other thread-local variables, from some 2
/// KiB that glibc keeps for all libraries, and a second such library is refused. This is a separate
/// build because, without an area, [inert](Rseq::inert) sequences must be recognised by a
/// comparison.
pub(crate) const HAS_OWN_AREA: bool = arch::SIGNATURE != 0 && !cfg!(submeter_plugin);

/// The offset of sequences that must not be run because there is no area: the thread pointer
/// itself, where the ABI has words of its own.
pub(crate) const NO_AREA: i32 = 0;

/// Returns whether sequences with this offset must not be run. A constant, unless built for
/// plugins.
#[inline(always)]
pub(crate) const fn has_no_area(offset: isize) -> bool {
    cfg!(submeter_plugin) && offset == NO_AREA as isize
}

/// Why a sequence did not commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The thread was preempted, migrated or interrupted by a signal, or a barrier restarted it:
    /// try again.
    Aborted,
    /// The thread is not registered, or has no row: do without sequences.
    Outside,
    /// The mark was clear: set it, then try again.
    Unmarked,
}

/// The result of a sequence with outputs.
#[derive(Clone, Copy, Debug)]
pub struct AddOutcome {
    pub(crate) after: i64,
    pub(crate) changed: u64,
    /// The address that was written, or one of the `EXIT_` reasons.
    pub(crate) at: u64,
}

impl AddOutcome {
    /// The result for a thread without a row.
    const OUTSIDE: AddOutcome = AddOutcome { after: 0, changed: u64::MAX, at: EXIT_OUTSIDE as u64 };

    /// Returns the bits in which the word differs from before; all ones if nothing was added. One
    /// comparison with a batch's mask thus separates the common case from everything else.
    #[inline(always)]
    #[must_use]
    pub fn changed(self) -> u64 {
        self.changed
    }

    /// Returns the word after the add. Meaningless unless [`exit`](AddOutcome::exit) is `None`.
    #[inline(always)]
    #[must_use]
    pub fn after(self) -> i64 {
        self.after
    }

    /// Returns why nothing was added, or `None` if the add committed.
    #[inline]
    #[must_use]
    pub fn exit(self) -> Option<Exit> {
        match i32::try_from(self.at) {
            Ok(EXIT_ABORTED) => Some(Exit::Aborted),
            Ok(EXIT_OUTSIDE) => Some(Exit::Outside),
            Ok(EXIT_UNMARKED) => Some(Exit::Unmarked),
            _ => None,
        }
    }
}

/// The sequences. Having a value means that the start-up probe found them to work in this process.
///
/// One word in size, copied into everything that needs it, so that no global is read on a hot path.
#[derive(Clone, Copy, Debug)]
pub struct Rseq {
    /// Distance from the thread pointer to the thread's rseq area; the same for every thread. 32
    /// bits, which the probe ensures suffice, because each group has two of them.
    offset: i32,
    /// The number of rows: the possible CPUs, which every `mm_cid` is below too.
    cpus: u32,
}

impl Rseq {
    // Offsets from which a sequence that is given its address loads the fields.
    pub(crate) const OFFSET_AT: usize = offset_of!(Rseq, offset);
    pub(crate) const CPUS_AT: usize = offset_of!(Rseq, cpus);

    pub(crate) const fn new(offset: i32, cpus: u32) -> Rseq {
        Rseq { offset, cpus }
    }

    /// Returns the sequences, if [`probe`](crate::probe()) found that they work here.
    #[must_use]
    pub fn get() -> Option<Rseq> {
        crate::probe().rseq()
    }

    /// Returns sequences that never commit because they have no rows. Code that must do without
    /// sequences then runs the same instructions up to the refusal, which saves a branch on every
    /// other path.
    #[must_use]
    pub fn inert() -> Rseq {
        // Every thread has the area, registered or not; arming is a store that is never read.
        Rseq::new(
            i32::try_from(arch::own_area_offset())
                .expect("the area is in the program's initial TLS"),
            0,
        )
    }

    /// Returns these sequences for words that have more rows than sequences use.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn with_rows(self, rows: u32) -> Rseq {
        assert!(rows >= self.cpus, "a row for each that sequences use");
        Rseq::new(self.offset, rows)
    }

    /// Returns the sequences that a word of the caller's turns on and off.
    #[must_use]
    pub fn gated(self) -> Gated {
        Gated { offset: self.offset }
    }

    /// Returns a copy, field by field: LLVM turns a copy of the whole into one load, whose halves
    /// two more instructions separate.
    #[inline(always)]
    #[must_use]
    pub fn split(&self) -> Rseq {
        Rseq { offset: self.offset, cpus: self.cpus }
    }

    #[inline(always)]
    pub(crate) fn offset(self) -> isize {
        self.offset as isize
    }

    /// Returns the number of rows that words must have.
    #[inline(always)]
    #[must_use]
    pub fn cpus(self) -> u32 {
        self.cpus
    }

    /// Returns the number of the row that a sequence of the calling thread would add to: the number
    /// of the CPU on which it runs, or its `mm_cid` with `--cfg submeter_mm_cid`. `None` if it is
    /// not registered. Costs one or two loads, and is stale as soon as it is read.
    #[inline]
    #[must_use]
    pub fn row(self) -> Option<u32> {
        if has_no_area(self.offset()) {
            return None;
        }
        // SAFETY: 1. `offset` leads to the rseq area of every thread: the probe found it. 2. The
        // field is inside: the area has at least 20 bytes.
        let cpu = unsafe { arch::read_u32(self.offset(), FIELD_CPU_ID) };
        let row = if ROWS_BY_MM_CID && cpu.cast_signed() >= 0 {
            // SAFETY: 1. As above. 2. The field is inside: the probe makes no other `Rseq`, and our
            // own area has 32 bytes.
            unsafe { arch::read_u32(self.offset(), FIELD_MM_CID) }
        } else {
            cpu
        };
        (row < self.cpus).then_some(row)
    }

    /// The same as [`get`](Rseq::get) if the probe has already decided; `None` before that.
    #[inline]
    #[must_use]
    pub fn known() -> Option<Rseq> {
        crate::probe::decided().and_then(crate::Probe::rseq)
    }

    /// Tells the kernel that the calling thread is in no sequence. Call it when the thread is about
    /// to wait. Costs a store, and saves the kernel reading the last sequence's descriptor when it
    /// switches the thread out. (From 6.19 on, Linux reads it only if it interrupts one.)
    #[inline]
    pub fn rest(self) {
        if let Some(armed) = self.armed() {
            // Relaxed: read by the kernel on this very thread. No sequence is running that this
            // could leave unprotected: a sequence calls nothing.
            armed.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether the calling thread has run no sequence since it [rested](Rseq::rest), or
    /// since the kernel interrupted it.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        // Relaxed: as in `rest`.
        self.armed().is_none_or(|armed| armed.load(Ordering::Relaxed) == 0)
    }

    /// Returns the word that says which sequence the kernel takes the thread to be in; `None` on
    /// targets whose threads have no area, where these are [inert](Rseq::inert).
    #[inline]
    fn armed<'a>(self) -> Option<&'a AtomicU64> {
        if arch::SIGNATURE == 0 || has_no_area(self.offset()) {
            return None;
        }
        let field = armed_field(self.offset());
        // SAFETY: 1. `offset` leads to the rseq area of every thread: the probe found it, or it is
        // the offset of every thread's own area. 2. The field is inside, and aligned: the area is,
        // to 32 bytes. 3. Besides this thread, only the kernel uses it, while the thread is
        // interrupted, and sequences, which do not overlap with the callers' single access. 4. The
        // area lives as long as the thread: callers do not keep it.
        Some(unsafe { AtomicU64::from_ptr(field) })
    }

    /// Adds `n` to the running CPU's word. Returns whether it was done.
    ///
    /// # Safety
    /// `word + cpu * STRIDE` is valid for reads and writes of an aligned `i64` for every
    /// `cpu < self.cpus()`, and nothing else ever writes those words while a sequence may run on
    /// them: not even with an atomic instruction, whose result a plain add would overwrite. With
    /// [`ROWS_BY_MM_CID`], no other process has them: numbers are distinct only within a process.
    ///
    /// # Ordering
    /// None. A reader on another CPU that must see the add issues
    /// [`rseq_barrier`](crate::membarrier::rseq_barrier) first.
    #[inline(always)]
    #[must_use]
    pub unsafe fn add(self, word: *mut i64, n: i64) -> bool {
        if has_no_area(self.offset()) {
            return false;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { arch::add::<STRIDE>(self.offset(), self.cpus, word, n) }
    }

    /// Adds `n` to the running CPU's word of an array that has one for each CPU. Returns whether it
    /// was done.
    ///
    /// Meant for words that are read together: eight share a cache line, which CPUs that add take
    /// from each other.
    ///
    /// # Safety
    /// The same as [`add`](Rseq::add), for `words[cpu]` instead of the words of the rows.
    #[inline(always)]
    #[must_use]
    pub unsafe fn add_packed(self, words: *mut i64, n: i64) -> bool {
        if has_no_area(self.offset()) {
            return false;
        }
        // SAFETY: 1. The caller's promise: rows of one word.
        unsafe { arch::add::<WORD>(self.offset(), self.cpus, words, n) }
    }

    /// Adds `n` to the running CPU's word and returns the word after, with the bits that changed.
    ///
    /// # Safety
    /// The same as [`add`](Rseq::add).
    #[inline(always)]
    #[must_use]
    pub unsafe fn add_carry(self, word: *mut i64, n: i64) -> AddOutcome {
        if has_no_area(self.offset()) {
            return AddOutcome::OUTSIDE;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { arch::add_carry(self.offset(), self.cpus, word, n) }
    }

    /// The same as [`add_carry`](Rseq::add_carry), but adds only while bit `bit % 64` of the
    /// running CPU's `marks` word is set, tested in the same sequence.
    ///
    /// # Safety
    /// The same as [`add`](Rseq::add) for `word`; `marks` has readable rows too, which any thread
    /// may write atomically.
    #[inline(always)]
    #[must_use]
    pub unsafe fn add_marked(
        self,
        word: *mut i64,
        n: i64,
        marks: *const u64,
        bit: u32,
    ) -> AddOutcome {
        if has_no_area(self.offset()) {
            return AddOutcome::OUTSIDE;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { arch::add_marked(self.offset(), self.cpus, word, n, marks, bit) }
    }

    /// Adds `n` to the running CPU's word unless that changes bits above `mask`, which is one less
    /// than a power of two: that is, unless it leaves its batch. Returns whether it was done. A
    /// caller that must know why not learns it from [`add_carry`](Rseq::add_carry), which adds in
    /// any case.
    ///
    /// # Safety
    /// The same as [`add`](Rseq::add).
    #[inline(always)]
    #[must_use]
    pub unsafe fn add_within(self, word: *mut i64, n: i64, mask: u64) -> bool {
        if has_no_area(self.offset()) {
            return false;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { arch::add_within(self.offset(), self.cpus, word, n, mask) }
    }

    /// Registers the calling thread if libc does not, once per thread. Returns whether the thread
    /// can run sequences now. Meant for the cold path after [`Exit::Outside`]. Does not allocate; a
    /// signal handler may call it.
    #[cold]
    #[must_use]
    pub fn adopt_thread(self) -> bool {
        self.row().is_some() || os::probe::register_thread(crate::probe())
    }
}

/// The sequences that a word of the caller's turns on and off: it holds 0, or the number of rows.
/// They read that number from it, so they only need to know where the area is.
#[derive(Clone, Copy, Debug)]
pub struct Gated {
    /// As in [`Rseq`].
    offset: i32,
}

impl Gated {
    /// Adds the constant `N` to the running CPU's word while its number is below `*mode`. Returns
    /// whether it was done.
    ///
    /// # Safety
    /// The same as [`Rseq::add`], and `mode` is readable and only ever holds 0 or [`Rseq::cpus`].
    #[inline(always)]
    #[must_use]
    pub unsafe fn add_while<const N: i32>(self, word: *mut i64, mode: *const u32) -> bool {
        if has_no_area(self.offset as isize) {
            return false;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { arch::add_while::<N>(self.offset as isize, word, mode) }
    }

    /// The same as [`add_while`](Gated::add_while), with a value.
    ///
    /// # Safety
    /// The same as [`add_while`](Gated::add_while).
    #[inline(always)]
    #[must_use]
    pub unsafe fn add_value_while(self, word: *mut i64, mode: *const u32, n: i64) -> bool {
        if has_no_area(self.offset as isize) {
            return false;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { arch::add_value_while(self.offset as isize, word, mode, n) }
    }

    /// The same as [`add_value_while`](Gated::add_value_while), unless the word would then be below
    /// 0 or above `cap`, which is at most 2^62. A word that starts within these bounds stays there.
    ///
    /// # Safety
    /// The same as [`add_while`](Gated::add_while).
    #[inline(always)]
    #[must_use]
    pub unsafe fn add_capped(self, word: *mut i64, mode: *const u32, n: i64, cap: u64) -> bool {
        if has_no_area(self.offset as isize) {
            return false;
        }
        // SAFETY: 1. The caller's promise.
        unsafe { arch::add_capped(self.offset as isize, word, mode, n, cap) }
    }
}

/// Returns the address of the calling thread's `rseq_cs`, in the area at this distance from the
/// thread pointer.
#[inline]
pub(crate) fn armed_field(offset: isize) -> *mut u64 {
    let area = arch::thread_pointer().wrapping_add_signed(offset);
    std::ptr::with_exposed_provenance_mut(area.wrapping_add(FIELD_RSEQ_CS))
}

/// Returns the calling thread's `mm_cid`: a number unique among the threads of this process that
/// run at this moment, below the number of possible CPUs and usually far below. `None` unless the
/// kernel fills it in (its feature size says so) and libc's area has room for it.
#[must_use]
pub fn mm_cid() -> Option<u32> {
    let offset = crate::probe().mm_cid_offset()?;
    // SAFETY: 1. The field is inside the area, and the kernel fills it in: the probe checked both.
    Some(unsafe { arch::read_u32(offset, FIELD_MM_CID) })
}
