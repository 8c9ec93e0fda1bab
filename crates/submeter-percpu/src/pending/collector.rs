//! The steps of a collector, and of threads that look at its numbers. Each step includes its fence,
//! so that none can be taken without it, and the models call the same steps.

use std::marker::PhantomData;

use super::Collections;
#[cfg(doc)]
use super::Pending;
use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

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
