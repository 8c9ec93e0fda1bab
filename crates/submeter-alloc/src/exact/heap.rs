//! What brings the books to a tree.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use submeter::switch::{self, Observation, Observer};
use submeter::{Count, Gauge, Group, Tree};
use submeter_percpu::process_lock::ProcessMutex;

use super::limit::NoNumber;
use super::numbers::{Entry, Numbering};
use super::{books, owners};
use crate::chosen::Rung;
use crate::live::{Live, StartError};

/// The books of a tree's groups, of which a process has at most one. See the [module](super).
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
    /// Where blocks are [`sampled`](crate::sampled).
    samples: Option<Gauge<Count>>,
    numbering: Arc<Numbering>,
    /// Locked for a whole flush.
    entries: ProcessMutex<BTreeMap<u32, Entry>>,
    // Last: threads are let go when it is dropped.
    _observation: Observation,
}

/// What the books and the tree have of all groups. See [`Heap::balance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Balance {
    /// The bytes of all blocks with an owner, by the books.
    pub booked_bytes: i64,
    /// The same, as the tree's groups have it.
    pub attributed_bytes: i64,
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// How many groups' numbers a thread remembers.
const SEEN: usize = 16;

/// The id of no group.
const UNSEEN: u64 = u64::MAX;

/// What one thread needs.
struct Follower {
    numbering: Arc<Numbering>,
    /// Numbers of groups that the thread was in, at the last bits of their ids: the way from a
    /// group to its number is five loads and a call. They stay true, as a group keeps its number
    /// for as long as a thread can enter it, and its id is never another's.
    seen: [(u64, u32); SEEN],
}

impl Follower {
    fn new(numbering: Arc<Numbering>) -> Follower {
        Follower { numbering, seen: [(UNSEEN, 0); SEEN] }
    }

    /// Returns the number of a group; 0 where it has none, as where it is of another tree.
    #[inline(always)]
    fn number_of(&mut self, group: &Group) -> u32 {
        let id = group.id();
        let (seen, number) = self.seen[id as usize % SEEN];
        if seen == id { number } else { self.look_up(id, group) }
    }

    #[inline(never)]
    fn look_up(&mut self, id: u64, group: &Group) -> u32 {
        // Not remembered where it has none: it may get one later.
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
    /// Begins to charge the groups of `tree`: each thread from its next switch on.
    ///
    /// # Errors
    /// When the global allocator is neither an [`Exact`](super::Exact) nor a
    /// [`Chosen`](crate::Chosen), when `live` is another tree's, and when the process has had a
    /// `Heap` before. Groups for which there is no room later are nobody's.
    pub fn start(tree: &Tree, live: Live) -> Result<Heap, StartError> {
        Heap::begin(Rung::Exact, tree, live, None)
    }

    /// As [`start`](Heap::start), whichever allocator writes the books.
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
        // Relaxed: only that one thread finds it unset matters.
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

    /// Brings what changed since the last flush to the gauges of the groups, which show it after a
    /// flush of the tree, as after any update. Call it before the tree is read.
    ///
    /// Costs a sum over CPUs for each group that has blocks, and a lookup for each that changed. In
    /// a forked child it does nothing if another thread was flushing at the fork.
    pub fn flush(&self) {
        // Handles are dropped after the locks: the last one wakes who waits for its group.
        let mut held = Vec::new();
        // It may be half of a flush that a thread left which this child does not have.
        let Some(mut entries) = self.entries.lock_unless_abandoned() else { return };
        entries.extend(self.numbering.take_new());
        let mut free = Vec::new();
        entries.retain(|&number, entry| {
            // Acquire: pairs with the Release when it was set. Before the sums.
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
            // When the group has ended its threads have left it and posted, so that its blocks only
            // become fewer. A sum that finds none has found the end of each.
            let over = ended && sum == 0;
            if over {
                free.push(number);
            }
            !over
        });
        self.numbering.give_back(free);
        drop(entries);
    }

    /// Returns how many groups had a number at once: those that live, and those of which a block is
    /// left. Of 65,534 at most; the blocks of further groups are nobody's.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.numbering.last() as usize
    }

    /// Returns the group of an entry, or the nearest above that lives.
    ///
    /// What had been posted to a group that has ended is in the totals above it and in nobody's own
    /// part; what is freed of it later is posted to the holder, whose own part falls below what its
    /// own blocks take by as much. Only a handle that outlived the kill could move the former
    /// there, and with it each killed group would wait for a flush until it is released.
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

    /// Limits what a group may hold, or no longer: what [`or_over_heap`](super::OrOverHeap),
    /// [`check`](super::check) and [`admit`](super::admit) compare.
    ///
    /// It is a limit on the blocks of the group itself. Those of the groups below have their own:
    /// a comparison costs the same however many there are.
    ///
    /// # Errors
    /// When the group has no number in the books: it is another tree's, or one of too many.
    pub fn set_limit(&self, group: &Group, bytes: Option<u64>) -> Result<(), NoNumber> {
        let owner = self.numbering.owner_of(group).ok_or_else(|| NoNumber::new(group))?;
        owner.set_limit(bytes);
        Ok(())
    }

    /// Flushes, and returns what the books and the tree have: the same, once no thread allocates
    /// meanwhile. A standing check.
    ///
    /// Costs a [`flush`](Heap::flush), and a flush of the tree.
    #[must_use]
    pub fn balance(&self) -> Balance {
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
