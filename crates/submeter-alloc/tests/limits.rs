//! A tenant over its heap limit ends, and no other does.

use std::alloc::System;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use submeter::switch::InGroup;
use submeter::{Group, Schema, Tree};
use submeter_alloc::Live;
use submeter_alloc::exact::{self, Exact, OrOverHeap};

#[path = "common/books.rs"]
mod books;
#[path = "../../submeter-percpu/tests/it/witness.rs"]
mod witness;

use books::{Books, books};
use witness::Witness;

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

const LIMIT: u64 = 1_000_000;

fn limited(books: &Books, path: &str) -> Group {
    let group = books.tree.get_or_create(path).expect("room");
    books.heap.set_limit(&group, Some(LIMIT)).expect("a number");
    group
}

/// Writes to another variable of its future, even when the future is dropped, as guards do.
struct Ends<'a>(&'a mut u32);

impl Ends<'_> {
    fn count(&mut self) {
        *self.0 += 1;
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.count();
    }
}

/// Allocates a block of `size` bytes at each poll, `polls` times.
async fn takes(size: usize, polls: usize) -> usize {
    let mut ends = 0;
    let mut guard = Ends(&mut ends);
    guard.count();
    let mut blocks = Vec::new();
    let poll = |_: &mut Context<'_>| match blocks.len() == polls {
        true => Poll::Ready(blocks.len()),
        false => {
            blocks.push(vec![0_u8; size]);
            Poll::Pending
        }
    };
    poll_fn(poll).await
}

/// A runaway tenant ends with the poll that crosses its limit; its neighbour does not.
#[test]
fn a_runaway_ends_with_the_poll_over_its_limit() {
    const POLL: usize = 100_000;
    let (books, _alone) = books();
    let [a, b] = ["/runaway", "/neighbour"].map(|path| limited(books, path));
    let mut runaway = pin!(takes(POLL, usize::MAX).in_group(&a).or_over_heap());
    let mut neighbour = pin!(takes(POLL / 10, 50).in_group(&b).or_over_heap());
    let mut context = Context::from_waker(Waker::noop());
    let mut polls = 0;
    let over = loop {
        polls += 1;
        assert!(neighbour.as_mut().poll(&mut context).is_pending());
        match runaway.as_mut().poll(&mut context) {
            Poll::Pending => assert!(books.of(&a) as u64 <= LIMIT, "{polls}"),
            Poll::Ready(ended) => break ended.expect_err("it never ends by itself"),
        }
    };
    assert_eq!((over.path.as_str(), over.limit), ("/runaway", LIMIT));
    assert!(over.bytes > LIMIT && over.bytes < LIMIT + POLL as u64 + 1_000, "{over}");
    // Dropped with the poll that found the excess, and before the outer future.
    assert_eq!(books.of(&a), 0);
    let done = loop {
        if let Poll::Ready(done) = neighbour.as_mut().poll(&mut context) {
            break done;
        }
    };
    assert_eq!(done, Ok(50));
    assert_eq!((books.of(&a), books.of(&b)), (0, 0));
    books.must_balance();
}

#[test]
fn what_ended_by_itself_is_returned_over_a_limit() {
    let (books, _alone) = books();
    let a = limited(books, "/done");
    let held = async { vec![0_u8; 2 * LIMIT as usize] }.in_group(&a).or_over_heap();
    let mut held = pin!(held);
    let Poll::Ready(Ok(held)) = held.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it was ended")
    };
    let over = exact::admit(&a).expect_err("twice the limit");
    assert_eq!((over.bytes, over.limit), (2 * LIMIT, LIMIT));
    drop(held);
    assert_eq!(exact::admit(&a), Ok(()));
}

#[test]
fn a_long_poll_finds_at_once_its_group_is_over() {
    let (books, _alone) = books();
    let [a, b] = ["/long", "/long/below"].map(|path| limited(books, path));
    assert_eq!(exact::check(), Ok(()), "nobody's");
    let blocks = a.run(|| {
        let mut blocks = Vec::with_capacity(100);
        while exact::check().is_ok() {
            // Less than a thread keeps before it posts.
            blocks.push(vec![0_u8; 30_000]);
            assert!(blocks.len() < 100, "{:?}", exact::check());
        }
        assert_eq!(b.run(exact::check), Ok(()), "of the group alone");
        blocks
    });
    assert_eq!(blocks.len(), LIMIT.div_ceil(30_000) as usize);
    // Blocks without an owner count for no limit.
    books.heap.set_limit(&a, None).expect("a number");
    assert_eq!(exact::admit(&a), Ok(()));
    books.heap.set_limit(&a, Some(0)).expect("a number");
    exact::admit(&a).expect_err("it holds something");
    drop(blocks);
    assert_eq!(exact::admit(&a), Ok(()), "it holds nothing, and may");
    books.must_balance();
}

/// What ended groups below a group leave counts for its limit, until it is freed.
#[test]
fn what_ended_children_left_counts_above() {
    /// More than one look covers.
    const CHILDREN: usize = if cfg!(miri) { 3 } else { 300 };
    const EACH: usize = 2 * LIMIT as usize / CHILDREN;
    let (books, _alone) = books();
    let top = limited(books, "/top");
    let held = |group: &Group| exact::admit(group).map_or_else(|over| over.bytes, |()| 0);
    let mut blocks = Vec::new();
    for child in 0..CHILDREN {
        // An ended group leaves what it was left, too.
        let middle = books.tree.create(&format!("/top/m{child}")).expect("new");
        let below = middle.create_child("below").expect("new");
        blocks.push(below.run(|| vec![0_u8; EACH]));
        assert_eq!(middle.run(|| (exact::check(), held(&middle))), (Ok(()), 0), "no limit");
        for group in [below, middle] {
            let killed = group.kill().expect("no children");
            drop(group);
            killed.released_blocking(Duration::from_secs(60)).expect("no handles");
        }
    }
    assert_eq!(held(&top), (CHILDREN * EACH) as u64);
    let over = top.run(exact::check).expect_err("over");
    assert_eq!(over.bytes, (CHILDREN * EACH) as u64);
    drop(over);
    // A flush changes nothing, nor does a block that moves and grows.
    assert_eq!(books.of(&top), (CHILDREN * EACH) as i64);
    blocks[0].reserve_exact(3 * EACH);
    let looks = || (0..CHILDREN).fold(0, |_, _| held(&top));
    assert_eq!(looks(), ((CHILDREN + 3) * EACH) as u64);
    blocks.truncate(CHILDREN / 3);
    looks();
    assert_eq!(exact::admit(&top), Ok(()));
    // Numbers that are another group's are not counted: here, of the same size.
    drop(blocks);
    books.heap.flush();
    books.heap.set_limit(&top, Some(0)).expect("a number");
    let other = books.tree.create("/other").expect("new");
    let many: Vec<_> = (0..CHILDREN)
        .map(|n| {
            let group = other.create_child(&format!("g{n}")).expect("new");
            let block = group.run(|| vec![0_u8; EACH]);
            (group, block)
        })
        .collect();
    assert_eq!(looks(), 0);
    drop(many);
    books.must_balance();
}

/// Of many ended groups those that hold nothing any more refuse nobody, whatever they had last.
#[test]
fn what_was_freed_after_an_end_is_not_refused() {
    const CHILDREN: usize = if cfg!(miri) { 200 } else { 2_000 };
    const EACH: usize = 4 * LIMIT as usize / CHILDREN;
    let (books, _alone) = books();
    let top = limited(books, "/freed");
    let child = |n| {
        let group = top.create_child(&format!("g{n}")).expect("new");
        let block = group.run(|| vec![0_u8; EACH]);
        let killed = group.kill().expect("no children");
        drop(group);
        killed.released_blocking(Duration::from_secs(60)).expect("no handles");
        block
    };
    let mut blocks: Vec<_> = (0..CHILDREN).map(child).collect();
    let over = exact::admit(&top).expect_err("four times the limit");
    assert_eq!(over.bytes, 4 * LIMIT);
    // Those in between stay: whichever was looked at last, a round must reach all that are gone.
    let mut kept = 0;
    blocks.retain(|_| {
        kept += 1;
        kept % 5 == 0
    });
    assert_eq!(exact::admit(&top), Ok(()), "four fifths of the limit");
    blocks.push(top.run(|| vec![0_u8; LIMIT as usize]));
    exact::admit(&top).expect_err("with its own");
    drop(blocks);
    assert_eq!(exact::admit(&top), Ok(()));
}

/// Limits need no flush: the numbers of ended groups are reused all the same.
#[test]
fn numbers_come_back_without_a_flush() {
    const TENANTS: usize = if cfg!(miri) { 200 } else { 3_000 };
    let (books, _alone) = books();
    let before = books.heap.numbers();
    let mut left = Vec::new();
    for tenant in 0..TENANTS {
        let group = limited(books, "/sequence/tenant");
        let block = group.run(|| vec![0_u8; 10]);
        left.extend((tenant % 100 == 0).then_some(block));
        let killed = group.kill().expect("no children");
        drop(group);
        killed.released_blocking(Duration::from_secs(60)).expect("no handles");
    }
    let more = books.heap.numbers() - before;
    assert!(more <= 2 * (64 + left.len()), "{more} numbers for one group at a time");
    let sequence = books.tree.get("/sequence").expect("made");
    assert_eq!(books.of(&sequence), 10 * left.len() as i64, "blocks keep their numbers");
    drop(left);
    assert_eq!(books.of(&sequence), 0);
}

#[test]
fn a_group_of_another_tree_has_no_limit() {
    let (books, _alone) = books();
    let mut schema = Schema::builder();
    let _: Live = schema.declare();
    let other = Tree::new(schema.build().expect("valid")).expect("address space");
    let error = books.heap.set_limit(other.root(), Some(1)).expect_err("not counted");
    assert_eq!(
        error.to_string(),
        "the heap memory of / is not counted: it belongs to another tree than the `Heap`"
    );
    assert_eq!(exact::admit(other.root()), Ok(()));
}

/// Never more than 400,000 of 1,000,000 bytes are held, however much is allocated and freed while a
/// check is preempted.
#[test]
fn what_comes_and_goes_is_never_refused_stress() {
    const THREADS: usize = 4;
    let looks = if cfg!(miri) { 50 } else { 1_000_000 };
    let (books, _alone) = books();
    let group = limited(books, "/churn");
    let (is_over, made, much) = (AtomicBool::new(false), AtomicU64::new(0), Witness::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let _in_group = group.enter();
                // Relaxed, here and below: it only ends this loop, and numbers it.
                while !is_over.load(Ordering::Relaxed) {
                    drop(black_box(vec![0_u8; LIMIT as usize / 10]));
                    made.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let refused = (0..).take_while(|&look| much.goes_on(look, looks)).find_map(|_| {
            let before = made.load(Ordering::Relaxed);
            let refused = exact::admit(&group).err();
            // While it looked, more than the limit came and went.
            much.met(made.load(Ordering::Relaxed) - before > 10);
            refused
        });
        // Relaxed: as above.
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(refused, None);
        much.assert_met();
    });
}
