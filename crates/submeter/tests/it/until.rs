//! Futures that end with their group, and places that end with the first wait.

use std::cell::Cell;
use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use submeter::admission::Admission;
use submeter::switch::{self, InGroup};
use submeter::{Group, Schema, Tree};

fn tree() -> (Tree, Group) {
    let tree = Tree::new(Schema::builder().build().expect("no names")).expect("a tree");
    let web = tree.create("/web").expect("room");
    (tree, web)
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Notes the group in which it is dropped.
struct Dropped(Rc<Cell<Option<Group>>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(switch::current());
    }
}

/// With its group a future ends where it waits, and is dropped there, in the group.
#[test]
fn a_future_ends_with_its_group() {
    let (_tree, web) = tree();
    let dropped = Rc::new(Cell::new(None));
    let held = Dropped(Rc::clone(&dropped));
    let waits = async move {
        pending::<()>().await;
        drop(held);
    };
    let mut served = pin!(waits.in_group(&web).until_killed());
    assert!(poll(served.as_mut()).is_pending());
    assert!(dropped.take().is_none());
    web.kill().expect("alive");
    assert_eq!(poll(served.as_mut()), Poll::Ready(None));
    assert_eq!(dropped.take(), Some(web), "at once, and in the group");
}

#[test]
fn a_dead_groups_future_is_never_polled() {
    let (_tree, web) = tree();
    web.kill().expect("alive");
    let mut late = pin!(async { unreachable!("polled") }.in_group(&web).until_killed());
    assert_eq!(poll(late.as_mut()), Poll::Ready(None::<()>));
}

/// A place is given back at the first wait, at the end, with a panic, and if nothing is polled.
#[test]
fn a_place_ends_with_the_first_wait() {
    let (tree, _web) = tree();
    let turns = Admission::new(1);
    let place = || turns.try_acquire(tree.root()).expect("free");
    let mut waits = pin!(place().until_pending(pending::<()>()));
    assert_eq!(turns.in_flight(), 1);
    assert!(poll(waits.as_mut()).is_pending());
    assert_eq!(turns.in_flight(), 0);
    let mut ends = pin!(place().until_pending(ready(1)));
    assert_eq!((poll(ends.as_mut()), turns.in_flight()), (Poll::Ready(1), 0));
    drop(place().until_pending(ready(1)));
    assert_eq!(turns.in_flight(), 0);
    let mut panics = Box::pin(place().until_pending(async { panic!("as work may") }));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(panics.as_mut()))).is_err());
    drop(panics);
    assert_eq!(turns.in_flight(), 0);
}

/// What is wrapped has room once, not once for each layer.
#[test]
fn wrappers_have_room_for_one_future() {
    let (tree, web) = tree();
    let work = || async {
        let bytes = [0_u8; 10_000];
        pending::<()>().await;
        bytes
    };
    let bare = size_of_val(&work());
    let until_killed = size_of_val(&work().in_group(&web).until_killed());
    let place = Admission::new(1).try_acquire(tree.root()).expect("free");
    let until_pending = size_of_val(&place.until_pending(work()));
    assert!(until_killed < bare + 200, "{until_killed} for {bare}");
    assert!(until_pending < bare + 200, "{until_pending} for {bare}");
}
