//! What brings the books to a tree.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use submeter::switch::{self, Observation, Observer};
use submeter::{Group, Tree};

use super::owners::OWNERS_MAX;
use super::{books, owners};
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
    numbers: Arc<Mutex<Numbers>>,
    /// Locked for a whole flush.
    entries: Mutex<BTreeMap<u32, Entry>>,
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

/// Which numbers are given. Never locked for long.
#[derive(Default)]
struct Numbers {
    /// Those that were somebody's.
    free: Vec<u32>,
    /// The last one that was ever given.
    last: u32,
    /// What no flush knows yet.
    new: Vec<(u32, Entry)>,
}

struct Entry {
    path: String,
    /// Those of the group and of all above it: a name may be another's later.
    ids: Vec<u64>,
    /// Set when the group has ended and nobody has a handle any more.
    ended: Arc<AtomicBool>,
    /// What the tree has of it.
    posted: i64,
}

/// What a group knows of its number.
struct Owner {
    number: u32,
    ended: Arc<AtomicBool>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Heap::flush`, so that all that was added in the group
        // is in the sums that decide whether its number is free.
        self.ended.store(true, Ordering::Release);
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

/// What one thread needs.
struct Follower {
    /// The id of the tree's root.
    root: u64,
    numbers: Arc<Mutex<Numbers>>,
}

/// How often a thread looks for the numbers while another has them: that one takes microseconds,
/// unless this is a signal handler that interrupted it, or a forked child that does not have it.
const LOOKS: usize = 1_000;

impl Observer for Follower {
    fn switched(&mut self, _: Option<&Group>, next: Option<&Group>, _: u64) {
        books::works_for(next.map_or(0, |group| self.number_of(group)));
    }

    fn parked(&mut self, _: Option<&Group>, _: u64) {
        books::posted();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        books::works_for(0);
    }
}

impl Follower {
    #[inline]
    fn number_of(&self, group: &Group) -> u32 {
        group.companion::<Owner>().map_or_else(|| self.number_anew(group), |owner| owner.number)
    }

    /// Gives a group its number; 0 where it is of another tree, and where there is none.
    #[cold]
    #[inline(never)]
    fn number_anew(&self, group: &Group) -> u32 {
        // What is allocated here is no tenant's, also not the last one's, which it would keep.
        books::works_for(0);
        let above = std::iter::successors(Some(group), |group| group.parent());
        let ids: Vec<u64> = above.map(Group::id).collect();
        if ids.last() != Some(&self.root) {
            return 0;
        }
        let mut looks = (0..LOOKS).map(|_| match self.numbers.try_lock() {
            Ok(numbers) => Some(numbers),
            Err(TryLockError::Poisoned(numbers)) => Some(numbers.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                None
            }
        });
        let Some(mut numbers) = looks.find_map(|look| look) else { return 0 };
        if let Some(owner) = group.companion::<Owner>() {
            return owner.number;
        }
        let reused = numbers.free.pop();
        let number = reused.unwrap_or(numbers.last + 1);
        if number as usize >= OWNERS_MAX || owners::make(number).is_err() {
            numbers.free.extend(reused);
            return 0;
        }
        let ended = Arc::new(AtomicBool::new(false));
        if group.set_companion(Owner { number, ended: Arc::clone(&ended) }).is_err() {
            // Another library's.
            numbers.free.extend(reused);
            return 0;
        }
        numbers.last = numbers.last.max(number);
        let entry = Entry { path: group.path().to_owned(), ids, ended, posted: 0 };
        numbers.new.push((number, entry));
        number
    }
}

impl Heap {
    /// Begins to charge the groups of `tree`: each thread from its next switch on.
    ///
    /// # Errors
    /// When the global allocator is not an [`Exact`](super::Exact), and when the process has had a
    /// `Heap` before. Groups for which there is no room later are nobody's.
    pub fn start(tree: &Tree, live: Live) -> Result<Heap, StartError> {
        if !books::is_linked() {
            return Err(StartError::NotLinked);
        }
        // Relaxed: only that one thread finds it unset matters.
        if STARTED.swap(true, Ordering::Relaxed) {
            return Err(StartError::Twice);
        }
        let numbers = Arc::new(Mutex::new(Numbers::default()));
        let (root, shared) = (tree.root().id(), Arc::clone(&numbers));
        let observation = switch::observe(move |_| {
            Some(Box::new(Follower { root, numbers: Arc::clone(&shared) }))
        });
        let entries = Mutex::default();
        Ok(Heap { tree: tree.clone(), live, numbers, entries, _observation: observation })
    }

    /// Brings what changed since the last flush to the gauges of the groups, which show it after a
    /// flush of the tree, as after any update. Call it before the tree is read.
    ///
    /// Costs a sum over CPUs for each group that has blocks, and a lookup for each that changed. In
    /// a forked child it blocks for ever if another thread was flushing at the fork.
    pub fn flush(&self) {
        // Handles are dropped after the locks: the last one wakes who waits for its group.
        let mut held = Vec::new();
        let mut entries = lock(&self.entries);
        // Not entered under the lock, which threads that enter groups want.
        let new = std::mem::take(&mut lock(&self.numbers).new);
        entries.extend(new);
        let mut free = Vec::new();
        entries.retain(|&number, entry| {
            // Acquire: pairs with the Release when it was set. Before the sums.
            let ended = entry.ended.load(Ordering::Acquire);
            let sum = owners::sum(number);
            if sum != entry.posted {
                let group = self.holder(&entry.path, &entry.ids, &mut held);
                group.adjust(self.live.bytes, sum.wrapping_sub(entry.posted));
                held.push(group);
                entry.posted = sum;
            }
            // When the group has ended its threads have left it and posted, so that its blocks only
            // become fewer. A sum that finds none has found the end of each.
            let over = ended && sum == 0;
            if over {
                free.push(number);
            }
            !over
        });
        lock(&self.numbers).free.append(&mut free);
        drop(entries);
    }

    /// Returns how many groups had a number at once: those that live, and those of which a block is
    /// left. Of 65,534 at most; the blocks of further groups are nobody's.
    #[must_use]
    pub fn numbers(&self) -> usize {
        lock(&self.numbers).last as usize
    }

    /// Returns the group of an entry, or the nearest above that lives.
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

    /// Flushes, and returns what the books and the tree have: the same, once no thread allocates
    /// meanwhile. A standing check.
    ///
    /// Costs a [`flush`](Heap::flush), and a flush of the tree.
    #[must_use]
    pub fn balance(&self) -> Balance {
        self.flush();
        let booked_bytes = lock(&self.entries).keys().map(|&number| owners::sum(number)).sum();
        Balance { booked_bytes, attributed_bytes: self.tree.root().sum(self.live.bytes) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Heap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("live", &self.live).finish_non_exhaustive()
    }
}
