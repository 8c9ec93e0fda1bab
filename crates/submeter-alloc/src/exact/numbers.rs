//! Assigns groups their numbers in the books.

use std::cell::Cell;
use std::fmt;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};

use submeter::{Group, Tree};
use submeter_percpu::process_lock::ProcessMutex;

use super::left::Left;
use super::owners::OWNERS_MAX;
use super::{books, owners};

thread_local! {
    /// Whether this thread holds the numbers or waits for them. Code that finds it set is a signal
    /// handler, which would wait for itself.
    static HAS: Cell<bool> = const { Cell::new(false) };
}

/// Gives the groups of one tree their numbers.
pub(super) struct Numbering {
    root: Group,
    numbers: ProcessMutex<Numbers>,
}

/// The assigned numbers. Never locked for long.
#[derive(Default)]
struct Numbers {
    /// Numbers that were in use and are free again.
    free: Vec<u32>,
    /// The last number ever assigned.
    last: u32,
    /// Entries that no flush has taken yet.
    new: Vec<(u32, Entry)>,
    /// How many more groups come before the ended among the new ones are looked for.
    wait: usize,
}

/// The smallest wait.
const WAIT_MIN: usize = 64;

/// The longest wait while no number is free: so many groups are refused a number although some have
/// ended.
const WAIT_FULL: usize = 1_024;

/// What a flush knows of a number.
pub(super) struct Entry {
    pub(super) path: String,
    /// The ids of the group and of all above it: the name may belong to another group later.
    pub(super) ids: Vec<u64>,
    /// Set when the group has ended and no handle is left.
    pub(super) ended: Arc<AtomicBool>,
    /// The bytes already posted to the tree.
    pub(super) posted: i64,
    pub(super) posted_samples: i64,
}

/// What a group knows of its number.
pub(super) struct Owner {
    pub(super) number: u32,
    ended: Arc<AtomicBool>,
    /// [`NO_LIMIT`] for none.
    limit: AtomicU64,
    pub(super) left: Arc<Left>,
}

const NO_LIMIT: u64 = u64::MAX;

impl Owner {
    /// Returns how many bytes its blocks may take, if that is limited.
    pub(super) fn limit(&self) -> Option<u64> {
        // Relaxed, here and below: it says nothing about other words.
        Some(self.limit.load(Ordering::Relaxed)).filter(|&limit| limit != NO_LIMIT)
    }

    pub(super) fn set_limit(&self, bytes: Option<u64>) {
        // Relaxed: as above.
        self.limit.store(bytes.unwrap_or(NO_LIMIT), Ordering::Relaxed);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // The list of what is left belongs to no tenant.
        let _nobody = books::nobody();
        self.left.end(self.number, &self.ended);
        // Release: pairs with the Acquire in `Heap::flush`, so that everything added in the group
        // is in the sums that decide whether its number is free.
        self.ended.store(true, Ordering::Release);
    }
}

impl Numbering {
    pub(super) fn of(tree: &Tree) -> Numbering {
        Numbering { root: tree.root().clone(), numbers: ProcessMutex::default() }
    }

    /// Returns what a group knows of its number, after assigning one if possible.
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
        let nobody = books::nobody();
        let given = self.given(group);
        drop(nobody);
        given.then(|| group.companion::<Owner>()).flatten()
    }

    /// Returns why a group has no number.
    pub(super) fn why_not(&self, group: &Group) -> Why {
        if !group.is_beside(&self.root) {
            return Why::OtherTree;
        }
        let is_full = self.with(|numbers| numbers.is_full());
        if is_full == Some(true) { Why::Full } else { Why::Taken }
    }

    /// Runs `work` with the numbers locked. Does nothing in a handler that interrupts this
    /// function, nor in a forked child if another thread was in it at the fork.
    fn with<T>(&self, work: impl FnOnce(&mut Numbers) -> T) -> Option<T> {
        if HAS.replace(true) {
            return None;
        }
        // However the work ends: in a forked child where a thread was making words, it ends with a
        // panic.
        let _has = Has;
        // SeqCst: for handlers on this thread; it emits no instruction.
        compiler_fence(Ordering::SeqCst);
        self.numbers.lock_unless_abandoned().map(|mut numbers| work(&mut numbers))
    }

    /// Gives a group its number, and returns whether it has one now. Those above it get theirs
    /// first, so that it knows to whom it leaves what.
    fn given(&self, group: &Group) -> bool {
        let mut above: Vec<&Group> =
            iter::successors(Some(group), |group| group.parent()).collect();
        above.reverse();
        let given = |numbers: &mut Numbers| above.iter().fold(false, |_, at| numbers.give(at));
        self.with(given).unwrap_or(false)
    }

    /// Takes the entries that no flush has taken yet. They are not inserted under this lock,
    /// because threads that enter groups need it.
    pub(super) fn take_new(&self) -> Vec<(u32, Entry)> {
        self.with(|numbers| std::mem::take(&mut numbers.new)).unwrap_or_default()
    }

    /// Frees numbers.
    pub(super) fn give_back(&self, free: Vec<u32>) {
        self.with(|numbers| numbers.free.extend(free));
    }

    /// Returns the last number ever assigned; 0 in a forked child that cannot tell.
    pub(super) fn last(&self) -> u32 {
        self.with(|numbers| numbers.last).unwrap_or(0)
    }
}

/// Allows this thread to lock the numbers again when dropped.
struct Has;

impl Drop for Has {
    fn drop(&mut self) {
        // SeqCst: as in `with`.
        compiler_fence(Ordering::SeqCst);
        HAS.set(false);
    }
}

impl Numbers {
    /// Frees the numbers of groups that have ended and that no flush has seen, for programs that
    /// never flush, and returns one. Between two looks as many groups come as the last one kept, so
    /// that a group costs the same however many there are; fewer once the numbers are all taken.
    fn reclaim(&mut self) -> Option<u32> {
        if self.wait != 0 {
            return None;
        }
        let free = &mut self.free;
        self.new.retain(|(number, entry)| {
            // Acquire: as in `Heap::flush`. Nothing was posted to the tree.
            let over = entry.ended.load(Ordering::Acquire) && owners::sum(*number) == 0;
            if over {
                free.push(*number);
            }
            !over
        });
        let fresh = OWNERS_MAX - 1 - self.last as usize;
        let wait = self.new.len().max(WAIT_MIN);
        self.wait = wait.min(if fresh == 0 { WAIT_FULL } else { fresh });
        self.free.pop()
    }

    /// Returns whether a group with a new number would find none.
    fn is_full(&self) -> bool {
        self.free.is_empty() && self.last as usize == OWNERS_MAX - 1
    }

    /// Gives a group its number, unless another thread was faster.
    fn give(&mut self, group: &Group) -> bool {
        if group.companion::<Owner>().is_some() {
            return true;
        }
        self.wait = self.wait.saturating_sub(1);
        let reused = self.free.pop().or_else(|| self.reclaim());
        let number = reused.unwrap_or(self.last + 1);
        let ended = Arc::new(AtomicBool::new(false));
        let mut above = iter::successors(group.parent(), |group| group.parent());
        let above = above.find_map(|group| group.companion::<Owner>());
        let left = Arc::new(Left::below(above.map(|owner| Arc::clone(&owner.left))));
        let limit = AtomicU64::new(NO_LIMIT);
        let owner = Owner { number, ended: Arc::clone(&ended), limit, left };
        let is_given = (number as usize) < OWNERS_MAX
            && owners::make(number).is_ok()
            // It fails if the group has another library's companion.
            && group.set_companion(owner).is_ok();
        if !is_given {
            self.free.extend(reused);
            return false;
        }
        self.last = self.last.max(number);
        let path = group.path().to_owned();
        let ids = iter::successors(Some(group), |group| group.parent()).map(Group::id).collect();
        self.new.push((number, Entry { path, ids, ended, posted: 0, posted_samples: 0 }));
        true
    }
}

/// The error of [`Heap::set_limit`](super::Heap::set_limit). Its text names the cause and what
/// helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoNumber {
    path: String,
    why: Why,
}

/// Why a group has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    OtherTree,
    Full,
    /// By another library, or by a thread that a forked child does not have.
    Taken,
}

impl NoNumber {
    pub(super) fn new(group: &Group, why: Why) -> NoNumber {
        NoNumber { path: group.path().to_owned(), why }
    }
}

impl fmt::Display for NoNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the heap memory of {} is not counted: ", self.path)?;
        match self.why {
            Why::OtherTree => f.write_str("it belongs to another tree than the `Heap`"),
            Why::Full => write!(
                f,
                "{} groups live or have blocks left, and there are no more numbers: end groups, \
                 free what ended ones left, and call `Heap::flush`",
                OWNERS_MAX - 1
            ),
            Why::Taken => f.write_str(
                "another library has the group's companion, or this process was forked while a \
                 group got its number: exec first",
            ),
        }
    }
}

impl std::error::Error for NoNumber {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_cause_and_remedy() {
        let text = |why| NoNumber { path: "/a".to_owned(), why }.to_string();
        let full = text(Why::Full);
        assert!(full.contains("65534 groups") && full.contains("`Heap::flush`"), "{full}");
        assert!(text(Why::OtherTree).contains("another tree"));
        assert!(text(Why::Taken).contains("exec first"));
    }
}
