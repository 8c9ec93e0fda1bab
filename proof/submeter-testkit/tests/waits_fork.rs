//! Waits for the end of a group in children of a fork: the parent's waiters do not exist there, nor
//! does a thread that was about to wait and holds the lock.
#![cfg(not(miri))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::thread;

use submeter::admission::Admission;
use submeter::{Group, Schema, Tree};

#[path = "common/fork.rs"]
#[expect(unsafe_code, reason = "forks")]
mod fork;

thread_local! {
    /// Whether the thread is to stop in its next allocation.
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

static HAS_STOPPED: AtomicBool = AtomicBool::new(false);
static GOES_ON: AtomicBool = AtomicBool::new(false);

struct Stopping;

#[expect(unsafe_code, reason = "an allocator")]
// SAFETY: 1. What an allocator promises holds: the system's does all the work, and what is done
// beside it does not unwind.
unsafe impl GlobalAlloc for Stopping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if STOPS.take() {
            HAS_STOPPED.store(true, Ordering::SeqCst);
            until(&GOES_ON);
        }
        // SAFETY: 1. The caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: 1. The caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Stopping = Stopping;

/// SeqCst, here and above: two flags of two threads, and speed does not matter.
fn until(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

/// A waker that counts its calls.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        // Relaxed: read by the same thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn woken() -> (Arc<Woken>, Waker) {
    let woken = Arc::new(Woken::default());
    (Arc::clone(&woken), Waker::from(woken))
}

fn times(woken: &Woken) -> u32 {
    // Relaxed: one thread.
    woken.0.load(Ordering::Relaxed)
}

fn waits(future: &mut Pin<Box<impl Future<Output = ()>>>, waker: &Waker) -> bool {
    future.as_mut().poll(&mut Context::from_waker(waker)).is_pending()
}

/// Lets one test run at a time: trees share an allocator, whose lock a thread of the other test
/// might hold at a fork.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls `test` while another thread is in the middle of waiting for the group's kill: it holds the
/// lock, in a map that allocates as it grows.
fn amid_a_wait(group: &Group, test: impl FnOnce()) {
    thread::scope(|scope| {
        scope.spawn(|| {
            // Twelve, including one of the test: a node of the map has room for eleven.
            let mut several: Vec<_> = (0..11).map(|_| Box::pin(group.killed())).collect();
            let (last, others) = several.split_last_mut().expect("eleven");
            assert!(others.iter_mut().all(|one| waits(one, Waker::noop())));
            STOPS.set(true);
            assert!(waits(last, Waker::noop()));
            assert!(!STOPS.get(), "it allocates in the map");
        });
        until(&HAS_STOPPED);
        test();
        GOES_ON.store(true, Ordering::SeqCst);
    });
}

/// A child that is forked amid a wait for a kill waits for it itself.
///
/// Without care, the lock of a group's waits would belong to the parent forever, and asking for it
/// would panic.
#[test]
fn a_child_forked_amid_a_wait_waits_itself() {
    let _alone = alone();
    let tree = Tree::new(Schema::builder().build().expect("no names")).expect("a tree");
    let group = tree.create("/acme").expect("room");
    let admission = Admission::new(1);
    let (of_parent, waker) = woken();
    let mut waiting = Box::pin(group.killed());
    assert!(waits(&mut waiting, &waker));
    let mut passed = [false; 4];
    amid_a_wait(&group, || {
        passed[0] = fork::in_a_fork(|| {
            let (of_child, waker) = woken();
            let mut own = Box::pin(group.killed());
            let waits = waits(&mut own, &waker);
            group.kill().expect("it lives here too");
            waits && times(&of_child) == 1 && times(&of_parent) == 0
        });
        // The queue learns of kills in the same way.
        passed[1] = fork::in_a_fork(|| {
            admission.set_weight(&group, Some(300)).expect("in range");
            let held = admission.try_acquire(&group).expect("free");
            let mut late = pin!(admission.acquire(&group));
            let mut context = Context::from_waker(Waker::noop());
            let waits = late.as_mut().poll(&mut context).is_pending();
            group.kill().expect("it lives here too");
            drop(held);
            waits && late.poll(&mut context).is_ready() && admission.in_flight() == 0
        });
        // A wait that began in the parent is polled, or given up.
        passed[2] = fork::in_a_fork(|| {
            let (of_child, waker) = woken();
            let mut others = [0; 20].map(|_| Box::pin(group.killed()));
            let all_wait = others.iter_mut().all(|one| waits(one, Waker::noop()));
            let waits = all_wait && waits(&mut waiting, &waker);
            group.kill().expect("it lives here too");
            waits && times(&of_child) == 1 && times(&of_parent) == 0
        });
        // The same by the waker that it has in the parent's list, which the child's lacks.
        passed[3] = fork::in_a_fork(|| {
            let waits = waits(&mut waiting, &waker);
            group.kill().expect("it lives here too");
            waits && times(&of_parent) == 1
        });
    });
    assert_eq!(passed, [true; 4], "the children");
    assert_eq!(times(&of_parent), 0, "only children killed it");
    group.kill().expect("it lives");
    assert_eq!(times(&of_parent), 1);
}

/// Waiters belong to the parent's runtime, which does not exist in the child.
#[test]
fn a_forked_childs_release_wakes_no_parents_task() {
    let _alone = alone();
    let tree = Tree::new(Schema::builder().build().expect("no names")).expect("a tree");
    let group = tree.create("/acme").expect("room");
    let killed = group.kill().expect("it lives");
    let (of_parent, waker) = woken();
    let mut waiting = Box::pin(killed.released());
    assert!(waits(&mut waiting, &waker));
    let held = Arc::strong_count(&of_parent);
    let mut group = Some(group);
    assert!(fork::in_a_fork(|| {
        let (of_child, waker) = woken();
        let mut own = Box::pin(killed.released());
        let waits = waits(&mut own, &waker);
        // The last handle.
        group = None;
        let is_told = times(&of_child) == 1 && killed.is_released();
        waits && is_told && times(&of_parent) == 0 && Arc::strong_count(&of_parent) == held
    }));
    assert_eq!(times(&of_parent), 0);
    drop(group);
    assert_eq!(times(&of_parent), 1);
}

/// A place that a child gives back goes to a task of the child.
#[test]
fn a_forked_childs_place_goes_to_its_own_task() {
    let _alone = alone();
    let tree = Tree::new(Schema::builder().build().expect("no names")).expect("a tree");
    let group = tree.create("/acme").expect("room");
    let admission = Admission::new(1);
    let mut held = Some(admission.try_acquire(&group).expect("free"));
    let (of_parent, waker) = woken();
    let mut waiting = pin!(admission.acquire(&group));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(fork::in_a_fork(|| {
        let (of_child, waker) = woken();
        let mut own = pin!(admission.acquire(&group));
        let mut context = Context::from_waker(&waker);
        let waits = own.as_mut().poll(&mut context).is_pending();
        held = None;
        let is_told = times(&of_child) == 1 && times(&of_parent) == 0;
        waits && is_told && own.poll(&mut context).is_ready()
    }));
    assert_eq!(times(&of_parent), 0);
    drop(held);
    assert_eq!(times(&of_parent), 1);
}
