//! Compares who holds what with a ledger that knows each block.

use std::alloc::System;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use submeter::{Group, Schema, Tree};
use submeter_alloc::exact::{Exact, Heap};
use submeter_alloc::{Live, StartError};

#[path = "common/books.rs"]
mod books;
#[path = "common/lists.rs"]
mod lists;
#[path = "common/operations.rs"]
mod operations;
#[path = "common/storm.rs"]
mod storm;
#[path = "../../submeter-percpu/tests/it/witness.rs"]
mod witness;

use books::books;
use operations::operations;
use storm::{Block, ChangeOne, storm};

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

#[test]
fn a_process_has_one_heap_of_one_tree() {
    let (books, _alone) = books();
    let error = Heap::start(&books.tree, books.live).expect_err("the second");
    assert!(matches!(error, StartError::Twice), "{error}");
    let schema = Schema::builder();
    let other = Tree::new(schema.build().expect("valid")).expect("address space");
    let error = Heap::start(&other, books.live).expect_err("not its gauge");
    assert!(matches!(error, StartError::OtherTree), "{error}");
    assert!(other.schema().metrics().is_empty(), "nothing is added");
    let mut schema = Schema::builder();
    let _: Live = schema.declare();
    let other = Tree::new(schema.build().expect("valid")).expect("address space");
    let error = Heap::start(&other, books.live).expect_err("not its gauge");
    assert!(matches!(error, StartError::OtherTree), "{error}");
    assert!(Exact::<System>::is_linked());
}

#[test]
fn a_block_is_its_groups_wherever_it_is_freed() {
    let (books, _alone) = books();
    let [a, b] = ["/where/a", "/where/b"].map(|path| books.tree.get_or_create(path).expect("room"));
    let [mine, there, outside] = a.run(|| [vec![0_u8; 10], vec![0; 200], vec![0; 70_000]]);
    assert_eq!(books.of(&a), 10 + 200 + 70_000);
    a.run(|| drop(mine));
    assert_eq!(books.of(&a), 200 + 70_000);
    b.run(|| thread::scope(|scope| _ = scope.spawn(move || drop(there)).join()));
    assert_eq!(books.of(&a), 70_000);
    drop(outside);
    assert_eq!((books.of(&a), books.of(&b)), (0, 0));
    books.must_balance();
}

/// A size that is no valid layout once it is aligned is refused.
#[test]
fn a_size_beyond_any_layout_is_refused() {
    let (books, _alone) = books();
    let a = books.tree.get_or_create("/huge").expect("room");
    let mut block = a.run(|| Vec::<u8>::with_capacity(10));
    assert!(block.try_reserve_exact(isize::MAX as usize).is_err());
    assert!(a.run(|| Vec::<u8>::new().try_reserve_exact(isize::MAX as usize)).is_err());
    drop(block);
    assert_eq!(books.of(&a), 0);
}

#[test]
fn a_parent_created_anew_has_nothing_of_the_last() {
    let (books, _alone) = books();
    let web = books.tree.get_or_create("/renewed/web").expect("room");
    let kept = web.run(|| vec![0_u8; 5_000]);
    assert_eq!(books.of(&web), 5_000);
    web.kill().expect("a leaf");
    books.tree.get("/renewed").expect("made").kill().expect("a leaf now");
    drop(web);
    let again = books.tree.create("/renewed").expect("new");
    drop(kept);
    assert_eq!(books.of(&again), 0);
}

#[test]
fn what_a_switch_makes_is_not_the_last_groups() {
    let (books, _alone) = books();
    let [a, b] = ["/last", "/next"].map(|path| books.tree.create(path).expect("new"));
    a.run(|| ());
    let mut entered = a.enter();
    entered.switch_to(&b);
    drop(entered);
    assert_eq!(books.of(&a), 0);
}

#[test]
fn nobodys_block_in_a_groups_place_stays_so() {
    let (books, _alone) = books();
    let a = books.tree.get_or_create("/was").expect("room");
    // Miri reuses at most every other address.
    let (sizes, tries, blocks): (&[usize], _, _) = match cfg!(miri) {
        true => (&[16, 1_000], 12, 10),
        false => (&[1, 16, 17, 64, 1_000, 100_000], 3, 50),
    };
    for &size in sizes {
        let (mut places, mut met) = (Vec::new(), false);
        for way in (0..tries).map(|n| n % 3) {
            let mut block = a.run(|| Vec::<u8>::with_capacity(size));
            places.push(block.as_ptr().addr());
            let moved = match way {
                0 => {
                    drop(block);
                    None
                }
                1 => {
                    a.run(|| drop(block));
                    None
                }
                _ => {
                    // A block that moves leaves its place to others.
                    block.reserve_exact(50 * size);
                    assert_eq!(books.of(&a), block.capacity() as i64);
                    Some(block)
                }
            };
            let others: Vec<_> = (0..blocks).map(|_| Vec::<u8>::with_capacity(size)).collect();
            met |= others.iter().any(|other| places.contains(&other.as_ptr().addr()));
            drop((others, moved));
            assert_eq!(books.of(&a), 0, "{size} bytes, way {way}");
        }
        assert!(met, "no block of {size} bytes lay where a group's was");
    }
}

/// Memory of common types belongs to their group, whichever thread frees it.
#[test]
fn the_usual_types_are_held_by_their_groups() {
    let (books, _alone) = books();
    let a = books.tree.get_or_create("/types/a").expect("room");
    let b = books.tree.get_or_create("/types/b").expect("room");
    let (shared, text, mut list, boxed) = a.run(|| {
        (Arc::new([7_u8; 48]), "text".repeat(5), Vec::<u8>::with_capacity(8), Box::new([0_u64; 3]))
    });
    let other = Arc::clone(&shared);
    assert_eq!(books.of(&a), (48 + 16) + 20 + 8 + 24);
    b.run(|| list.extend_from_slice(&[0; 100]));
    drop(shared);
    assert_eq!(books.of(&a), (48 + 16) + 20 + 100 + 24, "a list that grows elsewhere is the same");
    let bytes = a.run(|| Bytes::from(vec![0_u8; 1_000]));
    // The count of its parts is made with the first one.
    let part = b.run(|| bytes.slice(10..20));
    drop(bytes);
    assert_eq!(books.of(&a), (48 + 16) + 20 + 100 + 24 + 1_000, "a part holds all of it");
    thread::scope(|scope| {
        scope.spawn(|| b.run(|| drop((other, text, list, boxed, part))));
    });
    assert_eq!((books.of(&a), books.of(&b)), (0, 0));
}

/// Memory that outlives its tenant belongs to the parent until it is freed.
#[test]
fn memory_that_outlives_its_tenant_goes_up() {
    let (books, _alone) = books();
    let top = books.tree.get_or_create("/outlives").expect("room");
    let below = books.tree.create("/outlives/tenant").expect("new");
    let kept = below.run(|| vec![0_u8; 5_000]);
    let unknown = below.run(|| vec![0_u8; 300]);
    assert_eq!(books.of(&top), 5_300);
    below.kill().expect("no children");
    let later = below.run(|| vec![0_u8; 77]);
    drop(below);
    assert_eq!(books.of(&top), 5_377);
    // A new group of the same name has nothing to do with it.
    let again = books.tree.create("/outlives/tenant").expect("new");
    let own = again.run(|| vec![0_u8; 9]);
    assert_eq!(books.of(&again), 9);
    again.run(|| drop(unknown));
    drop(kept);
    assert_eq!((books.of(&again), books.of(&top)), (9, 9 + 77));
    drop((later, own));
    assert_eq!(books.of(&top), 0);
    books.must_balance();
}

/// A group and its blocks.
type Tenant = (Group, [Vec<u8>; 3]);

/// The numbers of ended groups are reused, and those beyond one byte count as well.
#[test]
fn numbers_of_ended_groups_come_back() {
    const TENANTS: usize = if cfg!(miri) { 2 } else { 700 };
    let (books, _alone) = books();
    let many = books.tree.create("/many").expect("new");
    let mut numbers = Vec::new();
    for round in 0..3 {
        // More than a byte can name, and in total more than there would be without reuse.
        let mut held: Vec<Tenant> = Vec::with_capacity(TENANTS);
        for tenant in 0..TENANTS {
            let group = books.tree.create(&format!("/many/t{tenant}")).expect("new");
            let blocks = group.run(|| [vec![1_u8; 3], vec![2; 16], vec![3; 100]]);
            held.push((group, blocks));
        }
        assert_eq!(books.of(&many), 119 * TENANTS as i64);
        for (group, blocks) in &mut held {
            assert_eq!(group.sum(books.live.bytes), 119, "round {round}");
            // Narrow, wide, and narrow again, outside all groups.
            blocks[0].reserve_exact(30);
            blocks[0].shrink_to_fit();
            blocks[2].truncate(4);
            blocks[2].shrink_to_fit();
            assert_eq!(blocks[0], [1; 3]);
            assert_eq!(blocks[2], [3; 4]);
            if group.path().ends_with('9') {
                assert_eq!(books.of(group), 3 + 16 + 4);
            }
        }
        for (group, blocks) in held {
            group.kill().expect("no children");
            drop(group);
            drop(blocks);
        }
        assert_eq!(books.of(&many), 0);
        numbers.push(books.heap.numbers());
    }
    books.must_balance();
    assert_eq!(numbers[2], numbers[1], "no more than in the round before: {numbers:?}");
}

type Left = Arc<Mutex<Vec<Vec<u8>>>>;

/// Allocates when its thread ends, and leaves a block behind.
struct Late(RefCell<Option<Left>>);

impl Drop for Late {
    fn drop(&mut self) {
        if let Some(left) = self.0.borrow().as_ref() {
            let block = vec![0_u8; 77];
            left.lock().expect("whole").push(block);
        }
    }
}

thread_local! {
    static FIRST: Late = const { Late(RefCell::new(None)) };
    static LAST: Late = const { Late(RefCell::new(None)) };
}

/// Destructors of thread-local values allocate for the thread's group, or for none.
#[test]
fn destructors_of_thread_locals_have_an_owner() {
    let (books, _alone) = books();
    let group = books.tree.create("/late").expect("new");
    let left = Arc::new(Mutex::new(Vec::with_capacity(4)));
    let (inside, behind) = (group.clone(), Arc::clone(&left));
    let thread = thread::spawn(move || {
        FIRST.with(|late| *late.0.borrow_mut() = Some(Arc::clone(&behind)));
        std::mem::forget(inside.enter());
        LAST.with(|late| *late.0.borrow_mut() = Some(behind));
    });
    thread.join().expect("no panic");
    // One destructor runs before the switch's own values end, in the group, and one after.
    assert_eq!(books.of(&group), 77);
    books.must_balance();
    drop(left);
    assert_eq!(books.of(&group), 0);
}

const HELD: usize = 1_000;

/// Allocates, grows, shrinks or frees.
fn change_one(own: &mut Vec<Block>, at: usize, random: &mut fastrand::Rng) {
    match random.u32(..8) {
        0..4 if own.len() < HELD => {
            let size = 1 + (random.usize(..1 << 12) >> random.u32(..12));
            own.push((vec![0; size], at));
        }
        4 if !own.is_empty() => {
            let any = random.usize(..own.len());
            let (block, _) = &mut own[any];
            let more = random.usize(1..200);
            block.reserve_exact(block.len() + more);
        }
        5 if !own.is_empty() => {
            let any = random.usize(..own.len());
            let (block, _) = &mut own[any];
            block.truncate(1);
            block.shrink_to_fit();
        }
        _ => drop(own.pop()),
    }
}

/// Counts are exact when threads free what others allocated while groups are killed.
#[test]
fn frees_by_other_threads_are_exact_stress() {
    let (books, _alone) = books();
    let top = books.tree.get_or_create("/storm").expect("room");
    let change = (HELD, change_one as ChangeOne);
    let (blocks, all) = storm(&books.tree, || books.heap.flush(), change, operations(480));
    let mut ledger = vec![0_i64; all.len()];
    for (block, at) in &blocks {
        ledger[*at] += block.capacity() as i64;
    }
    assert_eq!(books.of(&top), ledger.iter().sum::<i64>(), "of the living and the dead");
    for (group, own) in all.iter().zip(&ledger).filter(|(group, _)| !group.is_killed()) {
        assert_eq!(group.sum(books.live.bytes), *own, "{group:?}");
    }
    books.must_balance();
    drop(blocks);
    assert_eq!(books.of(&top), 0);
}
