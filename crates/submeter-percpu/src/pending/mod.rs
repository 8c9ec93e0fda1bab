//! A sum of the amounts added since a collection began, without a reset by the collector.
//!
//! The alternative, a counter that updaters raise and a collector subtracts from, costs the
//! collector a visit of each counter that was raised. Here each sum carries the number of the
//! collection since which it counts, and a complete collection removes all earlier additions from
//! the count. The collector only stores one number at its start and one at its end, however many
//! sums there are.
//!
//! # The protocol
//! Collections are numbered upward, one after the other. A collector stores its number as *begun*,
//! collects, and stores it as *covered* once its result is where readers find it. A collector that
//! fails never stores the latter.
//!
//! - **An updater** makes its update visible, then takes a full fence ([`Updated`]), then loads
//!   *begun* and *covered* ([`Noted`]), then adds. If it misses a collection's number, then that
//!   collection, which takes a full fence after its store, finds the update: so it collects every
//!   addition that is dated with an older number.
//! - **A reader** loads *covered*, then the sum, then the collected total. For any amount that an
//!   updater has dropped from the sum because it was covered, the reader finds the collection's
//!   result: the updater had acquired it.
//!
//! There are two words, which take turns: while a collection runs, one has the amounts that count
//! until it is complete, the other those added since it began. By the time a word has its turn
//! again, its old amount is covered, unless a collection has failed, or an updater had not seen one
//! begin; in that case it counts for longer than necessary.
//!
//! A date is the lower half of a number. To learn its age, a thread loads the date, and then the
//! number of a collection that began no earlier. That gives the age modulo 2^32, so an older sum
//! may count again. A sum is too small only if an updater is stopped between two instructions and,
//! 2^32 collections later, finds the word unchanged.

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;

use std::marker::PhantomData;

use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// A sum in two words, which are initially zero: see the [module](self).
///
/// The unit of the sum is the caller's. From 2^31 on it is only a lower bound.
///
/// An add costs a locked instruction, and one more for the first add of each collection; a read
/// costs two loads, and one more where a word holds anything. For sums that must be exact, and for
/// those to which every update adds, use a counter.
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
    /// The number of the last collection that began. Loaded with Acquire, before `turn`.
    pub begun: u64,
    /// The number of the last complete collection. Loaded with Acquire.
    pub covered: u64,
    /// The number of collections that began, stored before `begun`: it chooses the word. With a
    /// wrong one more counts, never less.
    pub turn: u64,
}

/// Smaller amounts are added without first loading the word.
const SMALL: u32 = 1 << 16;
/// This amount or more. It would take 2^15 threads, each between two instructions, to overflow from
/// here into the adjacent date.
const MANY: u32 = 1 << 31;

/// The low bits of the number of the collection that had begun, and the amount added since.
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

    /// Returns whether the amount counts although collection `covered` is complete. `begun` is the
    /// number of a collection that began no earlier than the date.
    fn is_after(self, covered: u64, begun: u64) -> bool {
        let age = (begun as u32).wrapping_sub(self.date);
        u64::from(age) <= begun.saturating_sub(covered)
    }
}

impl Pending<'_> {
    /// Adds `n`. `again` reloads the collection numbers if they have changed.
    ///
    /// Retries where another thread dates the word at the same time, at most once for each thread
    /// and for each collection. An amount of 2^16 or more is retried whenever others add in
    /// between.
    ///
    /// # Ordering
    /// SeqCst: a reader that loads the sum after the caller returned finds it.
    #[inline]
    pub fn add(self, collections: Collections, n: u32, again: impl Fn() -> Collections) {
        // At once: a load first would take the line from another CPU twice.
        if !self.add_at_once(collections, n) {
            self.add_by_looking(collections, n, again);
        }
    }

    /// Asks for both words, for an [`add`](Pending::add) soon: where several sums are far from the
    /// cache, locked instructions would wait for one after the other. Costs two loads, for which
    /// nothing waits.
    #[inline]
    pub fn request(self) {
        // Relaxed: the values do not matter.
        std::hint::black_box(self.0.map(|word| word.load(Ordering::Relaxed)));
    }

    fn word(&self, turn: u64) -> &AtomicI64 {
        self.0[turn as usize % 2]
    }

    /// Adds `n` without loading the word. Returns whether it was added where it counts.
    #[inline]
    fn add_at_once(&self, Collections { begun, turn, .. }: Collections, n: u32) -> bool {
        if n >= SMALL {
            return false;
        }
        // SeqCst: as in `add_by_looking`.
        let before = Slot::of(self.word(turn).fetch_add(n.into(), Ordering::SeqCst));
        before.date == begun as u32 && before.n < MANY
    }

    /// Adds `n` after loading the word. An amount that was added at once in vain is dropped here
    /// together with the old amount, or counts twice.
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
            // Another thread has dated it in the meantime.
            if slot.date == begun as u32 && slot.n < MANY && self.add_at_once(collections, n) {
                return;
            }
            // Covered amounts are dropped. An amount that still counts, although it should not, is
            // kept.
            let kept = if slot.is_after(covered, begun) { slot.n } else { 0 };
            let next = Slot { date: begun as u32, n: kept.saturating_add(n).min(MANY) }.word();
            // SeqCst: before the caller returns; pairs with the loads in `sum`. It passes on what
            // the loads of `covered` and `begun` acquired. Relaxed on failure: the loop retries.
            let exchanged =
                word.compare_exchange(before, next, Ordering::SeqCst, Ordering::Relaxed);
            if exchanged.is_ok() {
                return;
            }
        }
    }

    /// Returns the sum of the additions since the collection `covered` began; that number was
    /// loaded before, and its collection is complete. `begun` loads the number of a collection that
    /// began no earlier than any whose number an adder had loaded. `u32::MAX` means that much or
    /// more.
    ///
    /// # Ordering
    /// SeqCst: every addition that this sum leaves out has been collected, and is in the totals
    /// that are loaded after it.
    #[inline]
    #[must_use]
    pub fn sum(self, covered: u64, begun: impl FnOnce() -> u64) -> u32 {
        // SeqCst: pairs with `add`: an add that returned is found. This also acquires what the
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
// Each includes its fence, so that no step can be taken without it, and the models call the same
// steps.

/// An update that crossed boundaries of its batch, and is ordered before whatever its thread loads
/// next.
///
/// [`Block::add_dirty`] makes it, once the update and a full fence after it are done, and hands it
/// out for as long as the caller's closure runs, on the same thread. So none is older than its
/// update, belongs to another thread's update, or is left over for a later update.
///
/// # Examples
/// See [`Noted`]. It cannot be kept:
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
    /// Limits it to the duration of a closure, and to its thread: a pointer is not `Send`.
    only_here: PhantomData<(&'a mut (), *const ())>,
}

impl Updated<'_> {
    /// Takes the fence after an update that crossed this many boundaries.
    #[inline]
    pub(crate) fn fenced(batches: i64) -> Self {
        // SeqCst: orders the update before the load of which collections have begun; pairs with the
        // fence in `Noted::begin`. A collection that is missed here finds the update.
        fence(Ordering::SeqCst);
        Updated { batches, only_here: PhantomData }
    }

    /// The mistake of omitting the fence.
    #[cfg(loom)]
    pub(crate) fn unfenced(batches: i64) -> Self {
        Updated { batches, only_here: PhantomData }
    }

    /// Returns how many boundaries it crossed: negative if downward.
    #[inline]
    #[must_use]
    pub fn batches(&self) -> i64 {
        self.batches
    }
}

/// The published state of collections, in words that are initially zero: *begun*, *covered* and
/// *turn* of [`Collections`].
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
/// // Store the result, then:
/// noted.complete(7);
/// assert_eq!(noted.covered(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Noted<'a>(pub [&'a AtomicI64; 3]);

impl Noted<'_> {
    /// Announces that a collection has begun, before it loads anything. Collections run one at a
    /// time, each with a higher number. Costs a full fence.
    #[inline]
    pub fn begin(self, number: u64) {
        self.say(number);
        // SeqCst: before the collected words are loaded; pairs with the fence in `Updated::fenced`.
        // This collection finds every update that misses the number.
        fence(Ordering::SeqCst);
    }

    /// The mistake of omitting the fence.
    #[cfg(loom)]
    pub(crate) fn begin_unfenced(self, number: u64) {
        self.say(number);
    }

    #[inline]
    fn say(self, number: u64) {
        let [begun, _, turn] = self.0;
        // Relaxed, both: written by one collector at a time, and published by the number.
        turn.store(turn.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        // Release: after the turn; pairs with the Acquire in `collections`.
        begun.store(number.cast_signed(), Ordering::Release);
    }

    /// Announces that a collection is complete, after its result was stored.
    #[inline]
    pub fn complete(self, number: u64) {
        // Release: after its result; pairs with the Acquire in `covered` and `collections`.
        self.0[1].store(number.cast_signed(), Ordering::Release);
    }

    /// Returns the number of the last complete collection: later loads see what it collected.
    #[inline]
    #[must_use]
    pub fn covered(self) -> u64 {
        // Acquire: pairs with the Release in `complete`.
        self.0[1].load(Ordering::Acquire).cast_unsigned()
    }

    /// Returns the collection numbers, for [`Pending::add`].
    #[inline]
    #[must_use]
    pub fn collections(self, _: &Updated<'_>) -> Collections {
        let [begun, _, turn] = self.0;
        // Acquire, both: pair with the Release in `say`; `begun` is loaded before `turn`, since it
        // was stored after it.
        let begun = begun.load(Ordering::Acquire).cast_unsigned();
        let covered = self.covered();
        Collections { begun, covered, turn: turn.load(Ordering::Acquire).cast_unsigned() }
    }
}

/// The numbers of collections. They tell a thread that needs a collection which of them began late
/// enough.
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

    /// Returns the number of a collection that begins. Only one may begin at a time; it calls this
    /// before it loads anything that it collects, and those loads are SeqCst.
    #[inline]
    #[must_use]
    pub fn begin(&self) -> u64 {
        // SeqCst: see `ask`; before the collected words are loaded.
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        crate::sync::seq_cst_order();
        number
    }

    /// Returns the number of the last collection that began, no older than any number that the
    /// thread has acquired.
    #[inline]
    #[must_use]
    pub fn begun(&self) -> u64 {
        // Relaxed: a thread that has acquired a number comes after the increment in `begin` that
        // gave it out, and so finds that number or a later one.
        self.0.load(Ordering::Relaxed)
    }
}
