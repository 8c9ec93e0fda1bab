//! Containers whose memory is charged to a group's quota, beside an allocator that counts it too.

use std::alloc::System;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;

use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec as GroupVec;
use hashbrown::{DefaultHashBuilder, HashMap};
use submeter::switch::InGroup;
use submeter::{Bytes, Charge, Group, Killed, Quota, Reclaimable, Schema, Tree};
use submeter_alloc::exact::{self, Exact, Heap, OrOverHeap, OverLimit};
use submeter_alloc::{GroupAlloc, Live};

#[path = "common/lists.rs"]
mod lists;
#[path = "common/operations.rs"]
mod operations;
#[path = "../../submeter-percpu/tests/it/witness.rs"]
mod witness;

use lists::Lists;
use operations::operations;

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

fn tree() -> (Tree, Quota<Bytes>) {
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Memory of containers");
    (Tree::new(schema.build().expect("valid")).expect("room"), memory)
}

fn current(group: &Group, memory: Quota<Bytes>) -> u64 {
    group.usage(memory).current
}

/// Containers are refused at a limit above their group, and continue with what they have.
#[test]
fn containers_are_refused_at_the_limit() {
    let (tree, memory) = tree();
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = web.parent().expect("acme");
    acme.set_limit(memory, Some(1_000));
    let alloc = GroupAlloc::new(&web, memory);

    let mut rows: GroupVec<u64, _> = GroupVec::new_in(alloc.clone());
    rows.try_reserve_exact(100).expect("800 of 1,000");
    rows.extend(0..100);
    assert!(rows.try_reserve_exact(26).is_err(), "1,008");
    assert_eq!((current(&web, memory), acme.usage(memory).refused), (800, 1));
    assert!(Box::try_new_in([0_u8; 201], alloc.clone()).is_err());
    let boxed = Box::try_new_in([0_u8; 200], alloc.clone()).expect("it is exactly full");
    assert!(Box::try_new_in(0_u8, &alloc).is_err());
    assert!(rows.iter().copied().eq(0..100));

    rows.truncate(10);
    rows.shrink_to_fit();
    assert_eq!(current(acme, memory), 280);
    let mut table: HashMap<u64, u64, _, _> =
        HashMap::with_hasher_in(DefaultHashBuilder::default(), alloc);
    table.try_reserve(10).expect("room");
    assert!(table.try_reserve(100).is_err(), "larger than the limit");
    table.insert(1, 1);
    assert_eq!(current(acme, memory), 280 + table.allocation_size() as u64);
    drop((rows, boxed, table));
    assert_eq!((current(acme, memory), current(tree.root(), memory)), (0, 0));
}

/// A killed group gets no memory; what it has stays its parent's until it is freed.
#[test]
fn a_killed_group_keeps_what_it_has() {
    let (tree, memory) = tree();
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = web.parent().expect("acme").clone();
    let mut rows: GroupVec<u8, _> =
        GroupVec::with_capacity_in(1_000, GroupAlloc::new(&web, memory));
    rows.extend(0..100);

    let killed = web.kill().expect("it has no children");
    drop(web);
    assert!(rows.try_reserve(1_000).is_err(), "no limit, but killed");
    assert_eq!((current(&acme, memory), acme.usage(memory).refused), (1_000, 0));
    // Where it shares a name it shares no books.
    let next = tree.get_or_create("/acme/web").expect("room");
    let other: GroupVec<u8, _> = GroupVec::with_capacity_in(50, GroupAlloc::new(&next, memory));
    rows.shrink_to_fit();
    assert_eq!([&next, &acme].map(|group| current(group, memory)), [50, 150]);

    thread::spawn(move || drop((rows, other))).join().expect("no panic");
    assert_eq!([&next, &acme, tree.root()].map(|group| current(group, memory)), [0; 3]);
    assert!(killed.is_released());
}

/// The tree of the process's only `Heap`.
struct Books {
    tree: Tree,
    memory: Quota<Bytes>,
    live: Live,
    heap: Heap,
}

fn books() -> &'static Books {
    static BOOKS: OnceLock<Books> = OnceLock::new();
    BOOKS.get_or_init(|| {
        let mut schema = Schema::builder();
        let memory = schema.quota::<Bytes>("memory", "Memory of containers");
        let live: Live = schema.declare();
        let tree = Tree::new(schema.build().expect("valid")).expect("room");
        let heap = Heap::start(&tree, live).expect("the first");
        Books { tree, memory, live, heap }
    })
}

/// The allocator's gauge has a block once, and the quota has it once, each for its own group.
#[test]
fn the_gauge_beside_the_quota_is_another_metric() {
    let Books { tree, memory, live, heap } = books();
    let groups = ["/gauge", "/gauge/owner", "/gauge/worker"];
    let [both, owner, worker] = groups.map(|path| tree.get_or_create(path).expect("room"));
    let alloc = GroupAlloc::new(&owner, *memory);
    // A group's first charge allocates.
    drop(GroupVec::<u8, _>::with_capacity_in(1, &alloc));
    let counted = |group: &Group| {
        heap.flush();
        (current(group, *memory), group.sum(live.bytes))
    };
    let all = || [&owner, &worker, &both].map(counted);

    heap.set_limit(&worker, Some(100)).expect("a number");
    let block = worker.run(|| GroupVec::<u8, _>::with_capacity_in(5_000, &alloc));
    assert_eq!(all(), [(5_000, 0), (0, 5_000), (5_000, 5_000)]);
    drop(block);
    let block = owner.run(|| GroupVec::<u8, _>::with_capacity_in(5_000, &alloc));
    assert_eq!(all(), [(5_000, 5_000), (0, 0), (5_000, 5_000)]);
    drop(block);
    assert_eq!(all(), [(0, 0); 3]);
}

/// A poll over the heap limit asks the group's cache first, and ends what that cannot help.
#[test]
fn a_cache_is_asked_before_a_future_ends() {
    const LIMIT: u64 = 100_000;
    const ITEM: usize = 10_000;
    const POLL: usize = 5_000;
    /// What lists and charges take beside that, at most.
    const LISTS: usize = POLL;
    let Books { tree, memory, heap, .. } = books();
    let acme = tree.create("/acme").expect("new");
    heap.set_limit(&acme, Some(LIMIT)).expect("a number");
    let item = || GroupVec::<u8, _>::with_capacity_in(ITEM, GroupAlloc::new(&acme, *memory));
    let items: Vec<_> = acme.run(|| (0..8).map(|_| item()).collect());
    let items = Arc::new(Mutex::new(items));
    let evicted = Arc::clone(&items);
    let registered = acme.on_reclaim(*memory, move |wanted| {
        let (mut items, mut freed) = (evicted.lock().expect("whole"), 0);
        while let Some(item) = items.pop_if(|_| freed < wanted) {
            freed += item.capacity() as u64;
        }
    });
    let held = || items.lock().expect("whole").len();
    let runaway = async {
        let mut blocks = Vec::with_capacity(100);
        loop {
            blocks.push(vec![0_u8; POLL]);
            yields().await;
        }
    };
    let mut runaway = pin!(runaway.in_group(&acme).or_over_heap().reclaiming(*memory));
    let mut polls = 0_usize;
    let ended: Result<(), _> = loop {
        polls += 1;
        match runaway.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => assert_eq!(exact::admit(&acme), Ok(()), "after {polls}"),
            Poll::Ready(ended) => break ended,
        }
        let room = LIMIT as usize - polls * POLL - LISTS;
        assert!(held() >= 8.min(room / ITEM), "{} after {polls}: more than needed", held());
    };
    let over = ended.expect_err("it never ends by itself");
    assert!((LIMIT..LIMIT + POLL as u64).contains(&over.bytes), "{over}");
    assert_eq!((held(), polls), (0, LIMIT as usize / POLL));
    drop(registered);
}

/// Values, each with a charge that need not be what the heap has of it.
type Items = Vec<(Vec<u8>, Charge)>;

/// Items of a group that are given back when they are asked for.
struct Cache {
    items: Arc<Mutex<Items>>,
    _registered: Reclaimable,
}

impl Cache {
    fn new(group: &Group, memory: Quota<Bytes>, n: usize, [bytes, charged]: [usize; 2]) -> Cache {
        let charge = || group.try_charge(memory, charged as u64).expect("no limit");
        let items: Items = group.run(|| (0..n).map(|_| (vec![0; bytes], charge())).collect());
        let items = Arc::new(Mutex::new(items));
        let evicted = Arc::clone(&items);
        let registered = group.on_reclaim(memory, move |wanted| {
            let (mut items, mut freed) = (evicted.lock().expect("whole"), 0);
            while let Some((_, charge)) = items.pop_if(|_| freed < wanted) {
                freed += charge.amount();
            }
        });
        Cache { items, _registered: registered }
    }

    fn held(&self) -> usize {
        self.items.lock().expect("whole").len()
    }
}

/// Polls once a future that allocates.
fn poll_with(group: &Group, bytes: usize, memory: Quota<Bytes>) -> Poll<Result<(), OverLimit>> {
    let work = async {
        let block = vec![0_u8; bytes];
        yields().await;
        drop(block);
    };
    let work = pin!(work.in_group(group).or_over_heap().reclaiming(memory));
    work.poll(&mut Context::from_waker(Waker::noop()))
}

/// A heap limit does not cover a living child: its cache loses nothing, however much it has.
#[test]
fn a_cache_of_a_group_below_is_not_asked() {
    let Books { tree, memory, heap, .. } = books();
    let child = tree.get_or_create("/family/child").expect("new");
    let family = child.parent().expect("/family");
    heap.set_limit(family, Some(100_000)).expect("a number");
    let own = Cache::new(family, *memory, 9, [10_000; 2]);
    let below = Cache::new(&child, *memory, 20, [10_000; 2]);
    assert_eq!(poll_with(family, 15_000, *memory), Poll::Pending);
    assert_eq!((own.held(), below.held()), (8, 20));
}

/// A cache that charges twice what it holds is asked until the heap has room.
#[test]
fn a_cache_is_asked_until_it_helps() {
    let Books { tree, memory, heap, .. } = books();
    let group = tree.create("/estimate").expect("new");
    heap.set_limit(&group, Some(100_000)).expect("a number");
    let cache = Cache::new(&group, *memory, 18, [5_000, 10_000]);
    // With the list and the charges, more than one item over.
    assert_eq!(poll_with(&group, 15_000, *memory), Poll::Pending);
    assert_eq!(cache.held(), 16);
    // More than the cache has: it gives all, and the future ends.
    assert!(poll_with(&group, 110_000, *memory).is_ready());
    assert_eq!(cache.held(), 0);
}

/// A cache whose items take next to nothing of the heap does not keep a poll until it is empty.
#[test]
fn a_poll_asks_a_cache_a_few_times_only() {
    let Books { tree, memory, heap, .. } = books();
    let group = tree.create("/light").expect("new");
    heap.set_limit(&group, Some(100_000)).expect("a number");
    let cache = Cache::new(&group, *memory, 200, [0, 20_000]);
    assert!(poll_with(&group, 110_000, *memory).is_ready());
    assert!((100..200).contains(&cache.held()), "{}", cache.held());
}

/// Is pending once.
async fn yields() {
    let mut polled = false;
    poll_fn(|_| match std::mem::replace(&mut polled, true) {
        false => Poll::Pending,
        true => Poll::Ready(()),
    })
    .await;
}

/// A container, which is charged its capacity, and its group.
type Held = (GroupVec<u8, GroupAlloc>, Group);

const LIMIT: u64 = 60_000;
const TENANT_LIMIT: u64 = 15_000;

struct Storm {
    tree: Tree,
    memory: Quota<Bytes>,
    lists: Lists<Held>,
    killed: Mutex<Vec<Killed>>,
}

impl Storm {
    fn change_one(&self, own: &mut Vec<Held>, group: &Group, random: &mut fastrand::Rng) {
        let at = random.usize(..own.len().max(1));
        match own.get_mut(at) {
            Some((vec, _)) if random.bool() => {
                let (had, more) = (vec.capacity(), random.usize(..2_000));
                vec.resize(had, 7);
                assert_eq!(vec.try_reserve_exact(more).is_ok(), vec.capacity() >= had + more);
                assert!(vec.capacity() == had || vec.capacity() == had + more, "nothing or all");
            }
            Some((vec, _)) if random.bool() => {
                vec.truncate(random.usize(..=vec.len()));
                vec.shrink_to_fit();
            }
            Some(_) if random.bool() => drop(own.swap_remove(at)),
            _ => own.push((GroupVec::new_in(GroupAlloc::new(group, self.memory)), group.clone())),
        }
    }

    fn work(&self, thread: usize, rounds: usize) {
        const ROUND: usize = if cfg!(miri) { 10 } else { 40 };
        let mut random = fastrand::Rng::with_seed(thread as u64);
        let mut own = Vec::new();
        for _ in self.lists.rounds(rounds / ROUND) {
            let path = format!("/t{}", random.u32(..6));
            let group = self.tree.get_or_create(&path).expect("room");
            group.set_limit(self.memory, Some(TENANT_LIMIT));
            (0..ROUND).for_each(|_| self.change_one(&mut own, &group, &mut random));
            // What cannot move has a limit of its own; it is exceeded at no time.
            assert!(current(self.tree.root(), self.memory) <= LIMIT);
            assert!(current(&group, self.memory) <= TENANT_LIMIT);
            self.lists.exchange(thread, &mut own, &mut random);
            if random.u8(..) < 16
                && let Ok(killed) = group.kill()
            {
                self.killed.lock().expect("whole").push(killed);
            }
        }
        self.lists.end(thread, own);
    }
}

/// Threads that resize and free each other's containers, in groups that live and die, leave what
/// the containers hold on the books, and none of it once they are gone.
#[test]
fn usage_is_what_containers_hold_stress() {
    const THREADS: usize = 4;
    let (tree, memory) = tree();
    tree.root().set_limit(memory, Some(LIMIT));
    let storm = Storm { tree, memory, lists: Lists::new(THREADS, 0), killed: Mutex::default() };
    let rounds = operations(160) / THREADS;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let storm = &storm;
            scope.spawn(move || storm.work(thread, rounds));
        }
    });
    let Storm { tree, lists, killed, .. } = storm;
    let held = lists.left();
    let mut ledger: HashMap<Group, u64> = HashMap::new();
    for (vec, group) in &held {
        *ledger.entry(group.clone()).or_default() += vec.capacity() as u64;
    }
    assert!(ledger.iter().all(|(group, bytes)| current(group, memory) == *bytes), "{ledger:?}");
    assert_eq!(current(tree.root(), memory), ledger.into_values().sum::<u64>());
    drop(held);
    assert_eq!(current(tree.root(), memory), 0);
    let killed = killed.into_inner().expect("whole");
    assert!(cfg!(miri) || !killed.is_empty(), "no group was killed");
    assert!(killed.iter().all(Killed::is_released));
    assert!(cfg!(miri) || tree.root().usage(memory).refused > 0, "it was near its limit");
}
