//! Transfers the books to a tree.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use submeter::switch::{self, Observation, Observer};
use submeter::{Count, Gauge, Group, Tree};
use submeter_percpu::process_lock::ProcessMutex;

use super::numbers::{Entry, NoNumber, Numbering};
use super::{books, owners};
use crate::chosen::Rung;
use crate::live::{Live, StartError};

/// The books of a tree's groups. A process has at most one. See the [module](super).
///
/// Groups are charged until it is dropped: keep it for as long as the tree. Their gauges then stay
/// as the last flush left them, whatever is freed later.
///
/// # Examples
/// ```
/// use std::alloc::System;
/// use submeter::{Schema, Tree};
/// use submeter_alloc::Live;
/// use submeter_alloc::exact::{Exact, Heap};
///
/// #[global_allocator]
/// static HEAP: Exact<System> = Exact::new(System);
///
/// let mut schema = Schema::builder();
/// let live: Live = schema.declare();
/// let tree = Tree::new(schema.build()?)?;
/// let heap = Heap::start(&tree, live)?;
///
/// let acme = tree.create("/acme")?;
/// let kept = acme.run(|| vec![0_u8; 4096]);
/// heap.flush();
/// assert_eq!(acme.sum(live.bytes), 4096);
/// drop(kept); // outside of the group
/// heap.flush();
/// assert_eq!(acme.sum(live.bytes), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "groups are charged until this is dropped"]
pub struct Heap {
    tree: Tree,
    live: Live,
    /// Only where blocks are [`sampled`](crate::sampled).
    samples: Option<Gauge<Count>>,
    numbering: Arc<Numbering>,
    /// Locked for a whole flush.
    entries: ProcessMutex<BTreeMap<u32, Entry>>,
    // Last: dropping it releases the threads.
    _observation: Observation,
}

/// The totals of all groups in the books and in the tree. See [`Heap::balance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Balance {
    /// The bytes of all blocks with an owner, according to the books.
    pub booked_bytes: i64,
    /// The same, according to the tree's groups.
    pub attributed_bytes: i64,
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// How many groups' numbers a thread remembers.
const SEEN: usize = 16;

/// The id of no group.
const UNSEEN: u64 = u64::MAX;

/// The observer of one thread.
struct Follower {
    numbering: Arc<Numbering>,
    /// Numbers of groups that the thread was in, indexed by the last bits of their ids, because
    /// getting from a group to its number takes five loads and a call. They stay valid: a group
    /// keeps its number for as long as a thread can enter it, and its id is never reused.
    seen: [(u64, u32); SEEN],
}

impl Follower {
    fn new(numbering: Arc<Numbering>) -> Follower {
        Follower { numbering, seen: [(UNSEEN, 0); SEEN] }
    }

    /// Returns the number of a group, or 0 if it has none, for example because it belongs to
    /// another tree.
    #[inline(always)]
    fn number_of(&mut self, group: &Group) -> u32 {
        let id = group.id();
        let (seen, number) = self.seen[id as usize % SEEN];
        if seen == id { number } else { self.look_up(id, group) }
    }

    #[inline(never)]
    fn look_up(&mut self, id: u64, group: &Group) -> u32 {
        // A group without a number is not remembered: it may get one later.
        let Some(owner) = self.numbering.owner_of(group) else { return 0 };
        self.seen[id as usize % SEEN] = (id, owner.number);
        owner.number
    }
}

impl Observer for Follower {
    fn switched(&mut self, _: Option<&Group>, next: Option<&Group>, _: u64) {
        books::works_for(next.map_or(0, |group| self.number_of(group)));
    }

    fn parked(&mut self, _: Option<&Group>, _: u64) {
        books::posted();
    }

    fn wants_time(&self) -> bool {
        false
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        books::works_for(0);
    }
}

impl Heap {
    /// Starts charging the groups of `tree`: each thread from its next switch on.
    ///
    /// # Errors
    /// When the global allocator is neither an [`Exact`](super::Exact) nor a
    /// [`Chosen`](crate::Chosen), when `live` belongs to another tree, or when the process has had
    /// a `Heap` before. Blocks of groups for which there is no room later have no owner.
    pub fn start(tree: &Tree, live: Live) -> Result<Heap, StartError> {
        Heap::begin(Rung::Exact, tree, live, None)
    }

    /// The same as [`start`](Heap::start), whichever allocator writes the books.
    pub(crate) fn begin(
        rung: Rung,
        tree: &Tree,
        live: Live,
        samples: Option<Gauge<Count>>,
    ) -> Result<Heap, StartError> {
        if !live.is_of(tree) {
            return Err(StartError::OtherTree);
        }
        rung.choose()?;
        // Relaxed: it only matters that one thread finds it unset.
        if STARTED.swap(true, Ordering::Relaxed) {
            return Err(StartError::Twice);
        }
        let numbering = Arc::new(Numbering::of(tree));
        let shared = Arc::clone(&numbering);
        let observation =
            switch::observe(move |_| Some(Box::new(Follower::new(Arc::clone(&shared)))));
        let entries = ProcessMutex::default();
        Ok(Heap {
            tree: tree.clone(),
            live,
            samples,
            numbering,
            entries,
            _observation: observation,
        })
    }

    /// Adds what changed since the last flush to the groups' gauges, which show it after a flush of
    /// the tree, as after any update. Call it before the tree is read.
    ///
    /// Costs a sum over CPUs for each group that has blocks, and a lookup for each group that
    /// changed. In a forked child it does nothing if another thread was flushing at the fork.
    pub fn flush(&self) {
        let _nobody = books::nobody();
        // Handles are dropped after the locks are released: dropping the last one wakes whatever
        // waits for its group.
        let mut held = Vec::new();
        // It may hold half of a flush by a thread that this child does not have.
        let Some(mut entries) = self.entries.lock_unless_abandoned() else { return };
        entries.extend(self.numbering.take_new());
        let mut free = Vec::new();
        entries.retain(|&number, entry| {
            // Acquire: pairs with the Release when it was set. It comes before the sums.
            let ended = entry.ended.load(Ordering::Acquire);
            let sum = owners::sum(number);
            let samples = self.samples.map_or(0, |_| owners::samples(number));
            if (sum, samples) != (entry.posted, entry.posted_samples) {
                let group = self.holder(&entry.path, &entry.ids, &mut held);
                group.adjust(self.live.bytes, sum.wrapping_sub(entry.posted));
                if let Some(gauge) = self.samples {
                    group.adjust(gauge, samples.wrapping_sub(entry.posted_samples));
                }
                held.push(group);
                (entry.posted, entry.posted_samples) = (sum, samples);
            }
            // When the group has ended, its threads have left it and posted, so the number of its
            // blocks can only fall. A sum of 0 means that all are gone.
            let over = ended && sum == 0;
            if over {
                free.push(number);
            }
            !over
        });
        self.numbering.give_back(free);
        drop(entries);
    }

    /// Returns how many groups had a number at once: those that live, and those with blocks left.
    /// At most 65,534; the blocks of further groups have no owner.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.numbering.last() as usize
    }

    /// Returns the group of an entry, or its nearest living ancestor.
    ///
    /// What had been posted to a group passes to its parent's own part when the group's last handle
    /// is gone. What is freed later is posted there, too.
    fn holder(&self, path: &str, ids: &[u64], held: &mut Vec<Group>) -> Group {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let above = above.filter(|path| !path.is_empty()).rev();
        let paths = std::iter::once(path).chain(above);
        for (path, id) in paths.zip(ids) {
            match self.tree.get(path) {
                Some(group) if group.id() == *id => return group,
                other => held.extend(other),
            }
        }
        self.tree.root().clone()
    }

    /// Limits what a group may hold, or lifts the limit. [`or_over_heap`](super::OrOverHeap),
    /// [`check`](super::check) and [`admit`](super::admit) compare with it.
    ///
    /// It limits the blocks of the group itself, and those that groups below it left when they
    /// ended. Unlike a quota's, it does not cover living groups below: each has its own limit, so a
    /// comparison costs the same however many there are.
    ///
    /// # Errors
    /// When the group has no number in the books: it belongs to another tree, or 65,534 groups have
    /// one.
    pub fn set_limit(&self, group: &Group, bytes: Option<u64>) -> Result<(), NoNumber> {
        let owner = self.numbering.owner_of(group);
        let owner = owner.ok_or_else(|| NoNumber::new(group, self.numbering.why_not(group)))?;
        owner.set_limit(bytes);
        Ok(())
    }

    /// Flushes, and returns the totals of the books and of the tree. They are equal if no thread
    /// allocates meanwhile. A permanent self-check.
    ///
    /// Costs a [`flush`](Heap::flush), and a flush of the tree.
    #[must_use]
    pub fn balance(&self) -> Balance {
        let _nobody = books::nobody();
        self.flush();
        let attributed_bytes = self.tree.root().sum(self.live.bytes);
        Balance { booked_bytes: owners::total(), attributed_bytes }
    }
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("live", &self.live).finish_non_exhaustive()
    }
}
