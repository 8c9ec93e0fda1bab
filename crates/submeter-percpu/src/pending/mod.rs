//! A sum of the amounts added since a collection began, without a reset by the collector.
//!
//! The alternative, a counter that updaters raise and a collector subtracts from, costs the
//! collector a visit of each counter that was raised. Here each sum carries the number of the
//! collection since which it counts, and a complete collection takes all earlier additions out of
//! the count. The collector only stores one number at its beginning and one at its end, however
//! many sums there are.
//!
//! # The protocol
//! Collections are numbered upward, one after the other. A collector stores its number as *begun*,
//! collects, and stores it as *covered* once what it collected is where readers find it. One that
//! fails never stores the latter.
//!
//! - **An updater** makes its update visible, then takes a full fence ([`Updated`]), then loads
//!   *begun* and *covered* ([`Noted`]), then adds. If it misses a collection's number, then that
//!   collection, which takes a full fence behind its store, finds the update: so it collects every
//!   addition that is dated with an older number.
//! - **A reader** loads *covered*, then the sum, then what was collected. Of what an updater has
//!   dropped from the sum, as *covered* said, the reader finds the collection's result: the
//!   updater had acquired it.
//!
//! There are two words, which take turns: while a collection runs, one has what counts until it is
//! complete, the other what came since it began. By the time that a word has its turn again, what
//! it had is covered, unless a collection has failed, or an updater had not seen one begin; then it
//! counts for longer than it need.
//!
//! A date is the lower half of a number. To learn its age, a thread loads the date, and then the
//! number of a collection that began no earlier. That gives the age modulo 2^32, so that an older
//! sum may count again. A sum is too small only if an updater is stopped between two instructions
//! and, 2^32 collections later, finds the word as it was.

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::marker::PhantomData;

use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// A sum in two words, which are zero at first: see the [module](self).
///
/// The sum is in units of the caller's. From 2^31 on it is only known to be as much.
///
/// Costs an adder a locked instruction, and one more for the first of each collection; a reader two
/// loads, and one more where there is anything. For sums that are to be exact, and for those that
/// each update adds to, use a counter.
///
/// # Examples
/// ```
/// use std::sync::atomic::AtomicI64;
/// use submeter_percpu::pending::{Collections, Pending};
///
/// let words = [AtomicI64::new(0), AtomicI64::new(0)];
/// let pending = Pending([&words[0], &words[1]]);
/// // Collection 1 is complete; then collection 2 begins.
/// let one = Collections { begun: 1, covered: 1, turn: 1 };
/// pending.add(one, 3, || one);
/// let two = Collections { begun: 2, covered: 1, turn: 2 };
/// pending.add(two, 5, || two);
/// assert_eq!(pending.sum(1, || 2), 8, "until it is complete");
/// assert_eq!(pending.sum(2, || 2), 5);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pending<'a>(pub [&'a AtomicI64; 2]);

/// The collection numbers that an updater loaded after its update and a fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collections {
    /// The number of the last that began. Loaded with Acquire, before `turn`.
    pub begun: u64,
    /// The number of the last that is complete. Loaded with Acquire.
    pub covered: u64,
    /// How many began, stored before `begun`: which of the words has its turn. By a wrong one more
    /// counts, and no less.
    pub turn: u64,
}

/// Less is added without a look at what is there.
const SMALL: u32 = 1 << 16;
/// As much and more. It would take 2^15 threads, each between two instructions, to get from here to
/// the date beside it.
const MANY: u32 = 1 << 31;

/// The number of the collection that had begun, as far as there is room for it, and how much was
/// added since.
#[derive(Clone, Copy)]
struct Slot {
    date: u32,
    n: u32,
}

impl Slot {
    fn of(word: i64) -> Slot {
        let word = word.cast_unsigned();
        Slot { date: (word >> 32) as u32, n: word as u32 }
    }

    fn word(self) -> i64 {
        (u64::from(self.date) << 32 | u64::from(self.n)).cast_signed()
    }

    /// Returns whether it counts though a collection is complete. `begun` is the number of one that
    /// began no earlier than the date says.
    fn is_after(self, covered: u64, begun: u64) -> bool {
        let age = (begun as u32).wrapping_sub(self.date);
        u64::from(age) <= begun.saturating_sub(covered)
    }
}

impl Pending<'_> {
    /// Adds `n`. `again` loads once more what there is of collections, where that is not as it was.
    ///
    /// Tries again where another thread dates the word at the same time, at most once for each and
    /// for each collection. An amount of 2^16 or more is tried again whenever others add in
    /// between.
    ///
    /// # Ordering
    /// SeqCst: a reader that loads the sum after the caller returned finds it.
    #[inline]
    pub fn add(self, collections: Collections, n: u32, again: impl Fn() -> Collections) {
        // At once: to look first would take the line from another CPU twice.
        if !self.add_at_once(collections, n) {
            self.add_by_looking(collections, n, again);
        }
    }

    fn word(&self, turn: u64) -> &AtomicI64 {
        self.0[turn as usize % 2]
    }

    /// Returns whether it is where it counts.
    #[inline]
    fn add_at_once(&self, Collections { begun, turn, .. }: Collections, n: u32) -> bool {
        if n >= SMALL {
            return false;
        }
        // SeqCst: as in `add_by_looking`.
        let before = Slot::of(self.word(turn).fetch_add(n.into(), Ordering::SeqCst));
        before.date == begun as u32 && before.n < MANY
    }

    /// An amount that was added at once, and in vain, is dropped here together with the old amount,
    /// or counts twice.
    #[cold]
    #[inline(never)]
    fn add_by_looking(self, mut collections: Collections, n: u32, again: impl Fn() -> Collections) {
        loop {
            let word = self.word(collections.turn);
            // Acquire: before `begun`, which is then no earlier than the date.
            let before = word.load(Ordering::Acquire);
            let turn = collections.turn;
            collections = again();
            if collections.turn % 2 != turn % 2 {
                continue;
            }
            let (slot, Collections { begun, covered, .. }) = (Slot::of(before), collections);
            // Dated by another thread meanwhile.
            if slot.date == begun as u32 && slot.n < MANY && self.add_at_once(collections, n) {
                return;
            }
            // Covered amounts are dropped. An amount that still counts, though it should not, is
            // kept.
            let kept = if slot.is_after(covered, begun) { slot.n } else { 0 };
            let next = Slot { date: begun as u32, n: kept.saturating_add(n).min(MANY) }.word();
            // SeqCst: before the caller returns; pairs with the loads in `sum`. It passes on what
            // the loads of `covered` and `begun` acquired. Relaxed on failure: the loop looks
            // again.
            let exchanged =
                word.compare_exchange(before, next, Ordering::SeqCst, Ordering::Relaxed);
            if exchanged.is_ok() {
                return;
            }
        }
    }

    /// Returns the sum of the additions since the collection `covered` began; that number was
    /// loaded before, and its collection is complete. `begun` loads the number of one that began no
    /// earlier than any that an adder had loaded. `u32::MAX` stands for as much and more.
    ///
    /// # Ordering
    /// SeqCst: every addition that this sum leaves out has been collected, and is in the totals
    /// that are loaded after it.
    #[inline]
    #[must_use]
    pub fn sum(self, covered: u64, begun: impl FnOnce() -> u64) -> u32 {
        // SeqCst: pairs with `add`: an add that returned is found. This acquires also what the
        // updater had acquired when it dropped something or loaded the date.
        let slots = self.0.map(|word| Slot::of(word.load(Ordering::SeqCst)));
        if slots[0].n | slots[1].n == 0 {
            return 0;
        }
        let begun = begun();
        let count = |slot: Slot| if slot.is_after(covered, begun) { slot.n } else { 0 };
        let sum = count(slots[0]).saturating_add(count(slots[1]));
        if sum < MANY { sum } else { u32::MAX }
    }
}

// ---- the steps of a collector, and of threads that look at its numbers --------------------------
//
// Each includes its fence, so that none can be taken without it, and the models call the same
// steps.

/// An update that crossed boundaries of its batch, and comes before what its thread looks at next.
///
/// [`Block::add_dirty`] makes it, once the update and a full fence behind it are done, and hands it
/// out for as long as the caller's closure runs, on the same thread. So none is older than its
/// update, none is of another thread's, and none is left for an update that comes later.
///
/// # Examples
/// As in [`Noted`]. It cannot be kept:
/// ```compile_fail
/// # let area = submeter_percpu::Area::common().expect("address space");
/// # let block = area.block(1).expect("room");
/// let mut kept = None;
/// block.add_dirty(0, 1, 0, |updated| kept = Some(updated));
/// ```
///
/// [`Block::add_dirty`]: crate::Block::add_dirty
#[derive(Debug)]
pub struct Updated<'a> {
    batches: i64,
    /// For the time of a closure, and of its thread: a pointer is not `Send`.
    only_here: PhantomData<(&'a mut (), *const ())>,
}

impl Updated<'_> {
    /// Takes the fence behind an update that crossed so many boundaries.
    #[inline]
    pub(crate) fn fenced(batches: i64) -> Self {
        // SeqCst: the update, before the look at which collections have begun; pairs with the fence
        // in `Noted::begin`. A collection that is missed here finds the update.
        fence(Ordering::SeqCst);
        Updated { batches, only_here: PhantomData }
    }

    /// The mistake of doing without.
    #[cfg(loom)]
    pub(crate) fn unfenced(batches: i64) -> Self {
        Updated { batches, only_here: PhantomData }
    }

    /// Returns how many boundaries it crossed: fewer than 0 if downward.
    #[inline]
    #[must_use]
    pub fn batches(&self) -> i64 {
        self.batches
    }
}

/// What is said of collections, in words that are zero at first: *begun*, *covered* and *turn* of
/// [`Collections`].
///
/// # Examples
/// ```
/// use std::sync::atomic::AtomicI64;
/// use submeter_percpu::Area;
/// use submeter_percpu::pending::{Collections, Noted};
///
/// let words = [0; 3].map(AtomicI64::new);
/// let noted = Noted(words.each_ref());
/// noted.begin(7);
/// let one = Collections { begun: 7, covered: 0, turn: 1 };
/// // Each add crosses a boundary of a batch of 1.
/// let block = Area::common()?.block(1)?;
/// block.add_dirty(0, 5, 0, |updated| assert_eq!(noted.collections(&updated), one));
/// // What is found is stored; then:
/// noted.complete(7);
/// assert_eq!(noted.covered(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Noted<'a>(pub [&'a AtomicI64; 3]);

impl Noted<'_> {
    /// Says that a collection has begun, before it looks for anything. One at a time, each with a
    /// higher number. Costs a full fence.
    #[inline]
    pub fn begin(self, number: u64) {
        self.say(number);
        // SeqCst: before what is collected is loaded; pairs with the fence in `Updated::fenced`. An
        // update that misses the number is one that this collection finds.
        fence(Ordering::SeqCst);
    }

    /// The mistake of doing without the fence.
    #[cfg(loom)]
    pub(crate) fn begin_unfenced(self, number: u64) {
        self.say(number);
    }

    #[inline]
    fn say(self, number: u64) {
        let [begun, _, turn] = self.0;
        // Relaxed, both: written by one collector after the other, and published by the number.
        turn.store(turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // Release: after the turn; pairs with the Acquire in `collections`.
        begun.store(number.cast_signed(), Ordering::Release);
    }

    /// Says that a collection is complete, after what it found was stored.
    #[inline]
    pub fn complete(self, number: u64) {
        // Release: after what it found; pairs with the Acquire in `covered` and `collections`.
        self.0[1].store(number.cast_signed(), Ordering::Release);
    }

    /// Returns the number of the last complete collection: later loads see what it collected.
    #[inline]
    #[must_use]
    pub fn covered(self) -> u64 {
        // Acquire: pairs with the Release in `complete`.
        self.0[1].load(Ordering::Acquire).cast_unsigned()
    }

    /// Returns what there is of collections, for [`Pending::add`].
    #[inline]
    #[must_use]
    pub fn collections(self, _: &Updated<'_>) -> Collections {
        let [begun, _, turn] = self.0;
        // Acquire, both: pair with the Release in `say`; `begun` before `turn`, as it was stored
        // after it.
        let begun = begun.load(Ordering::Acquire).cast_unsigned();
        let covered = self.covered();
        Collections { begun, covered, turn: turn.load(Ordering::Acquire).cast_unsigned() }
    }
}

/// The numbers of collections, by which a thread that needs one knows which began early enough.
///
/// # Examples
/// ```
/// use submeter_percpu::pending::Numbers;
///
/// let numbers = Numbers::default();
/// let asked = numbers.ask();
/// assert!(numbers.begin() > asked, "it covers what happened before");
/// assert_eq!(numbers.begun(), 1);
/// ```
#[derive(Debug, Default)]
pub struct Numbers(AtomicU64);

impl Numbers {
    /// Returns the number of the last collection that began: one with a higher number finds every
    /// update that happened before this call. Costs a full fence.
    #[inline]
    #[must_use]
    pub fn ask(&self) -> u64 {
        // SeqCst, before the load: a collection whose `begin` comes after this call, and which may
        // issue no barrier, sees everything that happened before the call; pairs with the increment
        // there. The load alone orders nothing that came before it.
        fence(Ordering::SeqCst);
        self.ask_unfenced()
    }

    /// Returns the number without the fence: a mistake where the caller's updates must be covered.
    #[inline]
    pub(crate) fn ask_unfenced(&self) -> u64 {
        // SeqCst: pairs with the increment in `begin`: a collection with a higher number loads what
        // it collects after this load.
        self.0.load(Ordering::SeqCst)
    }

    /// Returns the number of a collection that begins: for the only one that does, before it loads
    /// anything of what it collects, by loads that are SeqCst.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> u64 {
        // SeqCst: see `ask`; before what is collected is loaded.
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        crate::sync::seq_cst_order();
        number
    }

    /// Returns the number of the last collection that began, no older than any number that another
    /// load has acquired.
    #[inline]
    #[must_use]
    pub fn begun(&self) -> u64 {
        // Relaxed: a thread that has acquired a number comes after the increment in `begin` that
        // gave it out, and so finds that number or a later one.
        self.0.load(Ordering::Relaxed)
    }
}
