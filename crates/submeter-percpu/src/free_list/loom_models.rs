//! `FreeList`, and the mistake that its count of puts prevents.

use loom::sync::Arc;
use loom::thread;

use super::FreeList;
use crate::models::{explore, witness};
use crate::sync::atomic::{AtomicU32, Ordering};

/// A list of two numbers, and the resource that each stands for: a word that only its owner
/// accesses.
///
/// `COUNTED` means that each put is counted.
struct List<const COUNTED: bool> {
    free: FreeList,
    links: [AtomicU32; 2],
    owned: [loom::cell::UnsafeCell<u32>; 2],
}

impl<const COUNTED: bool> List<COUNTED> {
    fn new() -> Arc<Self> {
        let list = List {
            free: FreeList::new(),
            links: std::array::from_fn(|_| AtomicU32::new(0)),
            owned: std::array::from_fn(|_| loom::cell::UnsafeCell::new(0)),
        };
        list.put(0);
        list.put(1);
        Arc::new(list)
    }

    fn link(&self, number: u32) -> &AtomicU32 {
        &self.links[number as usize]
    }

    fn put(&self, number: u32) {
        self.free.put_and_count(number, self.link(number), u64::from(COUNTED));
    }

    fn take(&self) -> Option<u32> {
        let taken = self.free.take(|number| self.link(number));
        if let Some(number) = taken {
            // Loom fails if another thread's access does not happen before this one.
            self.owned[number as usize].with_mut(|_| ());
            // The link belongs to the number's owner. Relaxed: as in the list.
            self.link(number).store(number, Ordering::Relaxed);
        }
        taken
    }

    /// Takes both, and puts the first back: the head is the same as before, but its successor is
    /// not.
    fn take_two(&self) -> Option<u32> {
        let first = self.take();
        let second = self.take();
        if let Some(first) = first {
            self.put(first);
        }
        second
    }
}

fn one_takes_beside_another<const COUNTED: bool>() {
    let list = List::<COUNTED>::new();
    let other = thread::spawn({
        let list = Arc::clone(&list);
        move || list.take_two()
    });
    let mine = list.take();
    let theirs = other.join().expect("no panic");
    witness("both have one", mine.is_some() && theirs.is_some());
    let left = [list.take(), list.take(), list.take()];
    let mut all: Vec<u32> = left.into_iter().chain([mine, theirs]).flatten().collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1], "of two numbers");
}

/// No number belongs to two threads, and none is lost.
#[test]
fn loom_free_list_each_number_has_one_owner() {
    explore(one_takes_beside_another::<true>);
}

/// Finds that a head without a count gives a number to two threads.
///
/// One thread reads the head and its successor; another takes both and puts the first back; the
/// exchange finds the expected head, and makes the second number free, which is not free.
#[test]
#[should_panic(expected = "of two numbers")]
fn loom_free_list_finds_aba_of_a_head_alone() {
    explore(one_takes_beside_another::<false>);
}

/// The thread that takes a number sees everything that its last owner did.
#[test]
fn loom_free_list_next_owner_sees_the_last() {
    explore(|| {
        let list = List::<true>::new();
        let other = thread::spawn({
            let list = Arc::clone(&list);
            move || {
                let taken = list.take().expect("two of them, and one other thread");
                list.put(taken);
                taken
            }
        });
        let mine = list.take().expect("as above");
        witness("the same by turns", other.join().expect("no panic") == mine);
    });
}
