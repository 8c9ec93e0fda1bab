//! Which group has which number in the books.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

use submeter::{Group, Tree};
use submeter_percpu::process_lock::ProcessMutex;

use super::owners::OWNERS_MAX;
use super::{books, owners};

thread_local! {
    /// Whether this thread has the numbers, or waits for them: then this is a signal handler, which
    /// would wait for itself.
    static HAS: Cell<bool> = const { Cell::new(false) };
}

/// Gives the groups of one tree their numbers.
pub(super) struct Numbering {
    root: Group,
    numbers: ProcessMutex<Numbers>,
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

/// What a flush knows of a number.
pub(super) struct Entry {
    pub(super) path: String,
    /// Those of the group and of all above it: a name may be another's later.
    pub(super) ids: Vec<u64>,
    /// Set when the group has ended and nobody has a handle any more.
    pub(super) ended: Arc<AtomicBool>,
    /// What the tree has of it.
    pub(super) posted: i64,
    pub(super) posted_samples: i64,
}

/// What a group knows of its number.
pub(super) struct Owner {
    pub(super) number: u32,
    ended: Arc<AtomicBool>,
    /// [`NO_LIMIT`] for none.
    limit: AtomicU64,
}

const NO_LIMIT: u64 = u64::MAX;

impl Owner {
    /// Returns how many bytes its blocks may take, if that is limited.
    pub(super) fn limit(&self) -> Option<u64> {
        // Relaxed, here and below: it says nothing of other words.
        Some(self.limit.load(Ordering::Relaxed)).filter(|&limit| limit != NO_LIMIT)
    }

    pub(super) fn set_limit(&self, bytes: Option<u64>) {
        // Relaxed: as above.
        self.limit.store(bytes.unwrap_or(NO_LIMIT), Ordering::Relaxed);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `Heap::flush`, so that all that was added in the group
        // is in the sums that decide whether its number is free.
        self.ended.store(true, Ordering::Release);
    }
}

impl Numbering {
    pub(super) fn of(tree: &Tree) -> Numbering {
        Numbering { root: tree.root().clone(), numbers: ProcessMutex::default() }
    }

    /// Returns what a group knows of its number, after giving it one if it can have one.
    #[inline]
    pub(super) fn owner_of<'a>(&self, group: &'a Group) -> Option<&'a Owner> {
        group.companion::<Owner>().or_else(|| self.give(group))
    }

    #[cold]
    #[inline(never)]
    fn give<'a>(&self, group: &'a Group) -> Option<&'a Owner> {
        if !group.is_beside(&self.root) {
            return None;
        }
        // What is allocated here is no tenant's, also not the last one's, which it would keep.
        let was = books::current();
        books::works_for(0);
        let given = self.given(group);
        books::works_for(was);
        given.then(|| group.companion::<Owner>()).flatten()
    }

    /// Does what needs the numbers; not in a handler that interrupts the same, and not in a forked
    /// child where a thread stayed behind in it.
    fn with<T>(&self, work: impl FnOnce(&mut Numbers) -> T) -> Option<T> {
        if HAS.replace(true) {
            return None;
        }
        // Whatever ends it: in a forked child where a thread was making words, that is a panic.
        let _has = Has;
        // SeqCst: for handlers on this thread; it emits no instruction.
        compiler_fence(Ordering::SeqCst);
        self.numbers.lock_unless_abandoned().map(|mut numbers| work(&mut numbers))
    }

    /// Gives a group its number, and returns whether it has one now.
    fn given(&self, group: &Group) -> bool {
        let above = std::iter::successors(Some(group), |group| group.parent());
        let ids = above.map(Group::id).collect();
        self.with(|numbers| numbers.give(group, ids)).unwrap_or(false)
    }

    /// Takes what no flush knows yet. Not entered under the lock, which threads that enter groups
    /// want.
    pub(super) fn take_new(&self) -> Vec<(u32, Entry)> {
        self.with(|numbers| std::mem::take(&mut numbers.new)).unwrap_or_default()
    }

    /// Frees numbers.
    pub(super) fn give_back(&self, free: Vec<u32>) {
        self.with(|numbers| numbers.free.extend(free));
    }

    /// Returns the last number that was ever given; 0 in a forked child that cannot tell.
    pub(super) fn last(&self) -> u32 {
        self.with(|numbers| numbers.last).unwrap_or(0)
    }
}

/// Lets this thread have the numbers again when it is dropped.
struct Has;

impl Drop for Has {
    fn drop(&mut self) {
        // SeqCst: as in `with`.
        compiler_fence(Ordering::SeqCst);
        HAS.set(false);
    }
}

impl Numbers {
    /// Gives a group its number, unless another thread was earlier.
    fn give(&mut self, group: &Group, ids: Vec<u64>) -> bool {
        if group.companion::<Owner>().is_some() {
            return true;
        }
        let reused = self.free.pop();
        let number = reused.unwrap_or(self.last + 1);
        let ended = Arc::new(AtomicBool::new(false));
        let limit = AtomicU64::new(NO_LIMIT);
        let owner = Owner { number, ended: Arc::clone(&ended), limit };
        let is_given = (number as usize) < OWNERS_MAX
            && owners::make(number).is_ok()
            // Where that fails it has another library's.
            && group.set_companion(owner).is_ok();
        if !is_given {
            self.free.extend(reused);
            return false;
        }
        self.last = self.last.max(number);
        let path = group.path().to_owned();
        self.new.push((number, Entry { path, ids, ended, posted: 0, posted_samples: 0 }));
        true
    }
}
