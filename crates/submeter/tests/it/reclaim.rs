//! Reclaim: charges that find no room make other groups give something back.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use submeter::{Bytes, Charge, Group, Quota, Reclaimable, Schema, Tree};

/// Longer than any machine takes for what should happen at once.
const LONG: Duration = Duration::from_secs(30);

/// How long others wait for the end of a call.
const PATIENCE: Duration = Duration::from_millis(100);

/// The log of a callback that was not called.
const NOTHING: [u64; 0] = [];

fn tree(limit: u64) -> (Tree, Quota<Bytes>) {
    let mut schema = Schema::builder();
    schema.quota::<Bytes>("disk", "Held");
    let memory = schema.quota::<Bytes>("memory", "Held");
    let tree = Tree::new(schema.build().expect("valid")).expect("room");
    tree.root().set_limit(memory, Some(limit));
    (tree, memory)
}

/// A group that gives back what it is asked for, and records that.
struct Cache {
    group: Group,
    held: Arc<Mutex<Charge>>,
    asked: Arc<Mutex<Vec<u64>>>,
    registered: Reclaimable,
}

impl Cache {
    fn new(tree: &Tree, memory: Quota<Bytes>, path: &str, n: u64) -> Cache {
        let group = tree.get_or_create(path).expect("room");
        let held = Arc::new(Mutex::new(group.try_charge(memory, n).expect("it fits")));
        let asked = Arc::<Mutex<Vec<u64>>>::default();
        let (items, notes) = (Arc::clone(&held), Arc::clone(&asked));
        let registered = group.on_reclaim(memory, move |wanted| {
            notes.lock().unwrap().push(wanted);
            let mut items = items.lock().unwrap();
            let freed = wanted.min(items.amount());
            drop(items.split(freed));
        });
        Cache { group, held, asked, registered }
    }

    fn refill(&self, memory: Quota<Bytes>, n: u64) {
        let more = self.group.try_charge(memory, n).expect("it fits");
        self.held.lock().unwrap().merge(more);
    }

    fn holds(&self) -> u64 {
        self.held.lock().unwrap().amount()
    }

    fn asked(&self) -> Vec<u64> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

/// Groups that exceed their protection most are asked first, and for no more than the excess.
#[test]
fn the_least_protected_are_asked_first() {
    let (tree, memory) = tree(1000);
    let new = |path, n| Cache::new(&tree, memory, path, n);
    let [small, large, sheltered] = [new("/s", 100), new("/l", 300), new("/p", 600)];
    sheltered.group.set_low(memory, Some(500));
    let web = tree.create("/web").expect("room");

    let first = web.charge_reclaiming(memory, 50).expect("they give it");
    let asked = || [&small, &large, &sheltered].map(Cache::asked);
    assert_eq!(asked(), [vec![], vec![50], vec![]]);
    let second = web.charge_reclaiming(memory, 300).expect("they give it");
    // 250 from the large one and, of the two with an excess of 100, the one that uses more.
    assert_eq!(asked(), [vec![], vec![250], vec![50]]);

    let third = web.charge_reclaiming(memory, 120).expect("they give it");
    assert_eq!(asked(), [vec![100], vec![], vec![20]]);
    assert_eq!([&small, &large, &sheltered].map(Cache::holds), [0, 0, 530]);
    assert_eq!(sheltered.group.usage(memory).counts.reclaimed, 70);
    let usage = tree.root().usage(memory);
    assert_eq!((usage.current, usage.counts.postponed, usage.refused), (1000, 3, 0));
    drop((first, second, third));
}

#[test]
fn low_protection_goes_last_and_min_never() {
    let (tree, memory) = tree(300);
    let new = |path| Cache::new(&tree, memory, path, 100);
    let caches = [new("/free"), new("/low"), new("/min")];
    caches[1].group.set_low(memory, Some(100));
    caches[2].group.set_min(memory, Some(80));
    let web = tree.create("/web").expect("room");
    let asked = || caches.each_ref().map(Cache::asked);

    let held = web.charge_reclaiming(memory, 120).expect("they give it");
    assert_eq!(asked(), [vec![100], vec![], vec![20]]);
    let more = web.charge_reclaiming(memory, 30).expect("low gives way");
    assert_eq!(asked(), [vec![], vec![30], vec![]]);
    assert_eq!(caches[1].group.usage(memory).counts.reclaimed_low, 1);

    web.charge_reclaiming(memory, 71).expect_err("70 could be had");
    assert_eq!(asked(), [NOTHING; 3], "and nobody loses anything for it");
    assert_eq!(tree.root().usage(memory).refused, 1);
    let all = web.charge_reclaiming(memory, 70).expect("all that may be had");
    assert_eq!(caches.each_ref().map(Cache::holds), [0, 0, 80]);
    assert_eq!(caches[2].group.usage(memory).counts.reclaimed_low, 0);
    drop((held, more, all));
}

#[test]
fn what_a_callback_protected_is_not_asked_for() {
    let (tree, memory) = tree(300);
    let first = tree.create("/first").expect("room");
    let mut held = first.try_charge(memory, 150).expect("it fits");
    let [sheltered, other] =
        [("/s", 100), ("/o", 50)].map(|(path, n)| Cache::new(&tree, memory, path, n));
    let shelters = sheltered.group.clone();
    let registered = first.on_reclaim(memory, move |wanted| {
        shelters.set_low(memory, Some(100));
        drop(held.split(wanted));
    });
    let web = tree.create("/web").expect("room");
    drop(web.charge_reclaiming(memory, 170).expect("they give it"));
    assert_eq!((sheltered.asked(), other.asked()), (vec![], vec![20]));
    drop(registered);
}

/// Other charges wait for a call in progress, and do not ask smaller groups meanwhile.
#[test]
fn others_wait_for_a_call_under_way() {
    let (tree, memory) = tree(300);
    let first = tree.create("/first").expect("room");
    let mut held = first.try_charge(memory, 200).expect("it fits");
    let cache = Cache::new(&tree, memory, "/cache", 100);
    let (begun, has_begun) = mpsc::channel();
    let registered = first.on_reclaim(memory, move |wanted| {
        begun.send(()).expect("the test waits");
        // Less than the time that others wait.
        thread::sleep(Duration::from_millis(30));
        drop(held.split(wanted));
    });
    let web = tree.create("/web").expect("room");
    thread::scope(|scope| {
        let other = scope.spawn(|| web.charge_reclaiming(memory, 10).is_ok());
        has_begun.recv().expect("it is asked");
        let start = Instant::now();
        let granted = web.charge_reclaiming(memory, 10).is_ok();
        // On a busy machine the call may take so long that it is passed over.
        let is_slow = start.elapsed() >= PATIENCE;
        assert!(granted && (cache.asked() == NOTHING || is_slow));
        assert!(other.join().expect("no panic"));
    });
    drop(registered);
}

/// Runs a group that holds the most and frees one unit per call beside one that frees what it is
/// asked for, of which `low` is protected.
fn beside_one_that_frees_little(low: u64) -> [usize; 2] {
    let (tree, memory) = tree(1900);
    let group = tree.create("/a").expect("room");
    let held = Arc::new(Mutex::new(group.try_charge(memory, 1000).expect("it fits")));
    let calls = Arc::<Mutex<usize>>::default();
    let (items, noted) = (Arc::clone(&held), Arc::clone(&calls));
    let _slow = group.on_reclaim(memory, move |_| {
        *noted.lock().unwrap() += 1;
        drop(items.lock().unwrap().split(1));
    });
    let quick = Cache::new(&tree, memory, "/b", 900);
    quick.group.set_low(memory, Some(low));
    let web = tree.create("/web").expect("room");
    let charge = web.charge_reclaiming(memory, 160).expect("the other one has it");
    assert_eq!(charge.amount(), 160);
    let calls = *calls.lock().unwrap();
    [calls, quick.asked().len()]
}

/// A group that frees little at a time does not keep others from being asked.
#[test]
fn one_that_frees_little_hides_no_others() {
    assert_eq!(beside_one_that_frees_little(0), [1, 1]);
    // It has its sixteen attempts before any group loses what `low` protects.
    assert_eq!(beside_one_that_frees_little(900), [16, 1]);
}

#[test]
fn a_panic_is_contained_and_counted() {
    let (tree, memory) = tree(200);
    let bad = tree.create("/bad").expect("room");
    let held = bad.try_charge(memory, 150).expect("it fits");
    let registered = bad.on_reclaim(memory, |_| panic!("on purpose"));
    let cache = Cache::new(&tree, memory, "/cache", 50);
    let web = tree.create("/web").expect("room");
    for n in 1..=3 {
        drop(web.charge_reclaiming(memory, 10).expect("the other gives it"));
        drop(web.try_charge(memory, 10).expect("it was freed"));
        let refill = cache.group.try_charge(memory, 10).expect("it was freed");
        cache.held.lock().unwrap().merge(refill);
        assert_eq!((bad.usage(memory).counts.panics, cache.asked()), (n, vec![10]));
    }
    drop((registered, held));
}

#[test]
fn updates_and_plain_charges_call_nobody() {
    let (tree, memory) = tree(100);
    let cache = Cache::new(&tree, memory, "/cache", 100);
    let web = tree.create("/web").expect("room");
    web.try_charge(memory, 1).expect_err("full");
    web.try_charge_all([memory.amount(1)]).expect_err("full");
    let mut held = web.charge_forced(memory, 5);
    held.resize(6).expect_err("full");
    tree.root().set_limit(memory, Some(50));
    tree.flush();
    assert_eq!((cache.asked(), cache.holds()), (vec![], 100));
    assert_eq!(tree.root().reclaim(memory, tree.root().usage(memory).excess()), 55);
    assert_eq!(tree.root().usage(memory).current, 50);
}

#[test]
fn reclaim_takes_what_it_can_get() {
    let (tree, memory) = tree(1000);
    let caches = ["/a", "/b"].map(|path| Cache::new(&tree, memory, path, 100));
    caches[0].group.set_low(memory, Some(60));
    caches[1].group.set_min(memory, Some(90));
    let root = tree.root();
    assert_eq!((root.reclaim(memory, 0), root.reclaim(memory, 45)), (0, 45));
    assert_eq!(caches.each_ref().map(Cache::asked), [vec![40], vec![5]]);
    assert_eq!(root.reclaim(memory, u64::MAX), 65, "but for what `min` protects");
    assert_eq!(caches.each_ref().map(Cache::holds), [0, 90]);
    assert_eq!(caches[1].group.reclaim(memory, 7), 7, "its own protection does not count");
}

#[test]
fn a_blocking_callback_stops_its_charge_only() {
    let (tree, memory) = tree(300);
    let slow = tree.create("/slow").expect("room");
    let held = slow.try_charge(memory, 200).expect("it fits");
    let (goes_on, blocks) = mpsc::channel::<()>();
    let (tells, called) = mpsc::channel();
    let registered = slow.on_reclaim(memory, move |_| {
        _ = tells.send(());
        _ = blocks.recv();
    });
    let cache = Cache::new(&tree, memory, "/cache", 100);
    let [web, mail] = ["/web", "/mail"].map(|path| tree.create(path).expect("room"));
    thread::scope(|scope| {
        // Dropped before the thread is joined, even if something fails here.
        let goes_on = goes_on;
        let stuck = scope.spawn(|| web.charge_reclaiming(memory, 10).is_ok());
        called.recv().expect("it is called");
        // One charge waits for it briefly; from then on none does.
        for _ in 0..3 {
            drop(mail.charge_reclaiming(memory, 20).expect("the other gives it"));
            cache.refill(memory, 20);
        }
        // At first it was the turn of the group that is stuck.
        assert_eq!(cache.asked(), [20, 10, 20, 20]);
        mail.charge_reclaiming(memory, 150).expect_err("what is stuck cannot be had");
        assert_eq!(cache.asked(), NOTHING);
        drop(goes_on);
        assert!(stuck.join().expect("no panic"));
    });
    assert_eq!(cache.asked(), NOTHING);
    drop((registered, held));
}

/// Concurrent charges share one callback, whose calls never overlap.
#[test]
fn calls_of_one_callback_never_overlap_stress() {
    const THREADS: usize = 8;
    let (tree, memory) = tree(10_000);
    let cache = tree.create("/cache").expect("room");
    let mut held = cache.try_charge(memory, 10_000).expect("it fits");
    // If two calls overlapped, the second would find the lock taken.
    let alone = Mutex::new(());
    let registered = cache.on_reclaim(memory, move |wanted| {
        let _alone = alone.try_lock().expect("no other call");
        thread::yield_now();
        drop(held.split(wanted.min(held.amount())));
    });
    let charge_many = || {
        let web = tree.root().get_or_create_child("web").expect("room");
        let (mut held, mut refused, mut longest) = (Vec::new(), 0, Duration::ZERO);
        for _ in 0..if cfg!(miri) { 3 } else { 100 } {
            let start = Instant::now();
            match web.charge_reclaiming(memory, 10) {
                Ok(charge) => held.push(charge),
                Err(_) => refused += 1,
            }
            longest = start.elapsed().max(longest);
        }
        (refused, longest)
    };
    let results: Vec<(usize, Duration)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(charge_many)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    // On a busy machine a call may take so long that others pass it over.
    let is_slow = results.iter().any(|(_, longest)| *longest >= PATIENCE);
    let refused: usize = results.iter().map(|(refused, _)| refused).sum();
    assert!(refused == 0 || is_slow, "the cache has enough for all: {results:?}");
    assert_eq!(cache.usage(memory).counts.panics, 0);
    drop(registered);
    assert_eq!(tree.root().usage(memory).current, 0);
}

#[test]
fn a_callback_may_call_everything() {
    let (tree, memory) = tree(100);
    let cache = tree.create("/cache").expect("room");
    let victim = Cache::new(&tree, memory, "/victim", 40);
    let mut held = cache.try_charge(memory, 60).expect("it fits");
    let (of_callback, inner) = (tree.clone(), Arc::<Mutex<Vec<Reclaimable>>>::default());
    let mine = Arc::clone(&inner);
    let group = cache.clone();
    let registered = cache.on_reclaim(memory, move |wanted| {
        drop(held.split(wanted));
        let root = of_callback.root();
        // What it freed belongs to the charge that asked, and no callback is called from here.
        let refused = root.charge_reclaiming(memory, 1);
        assert_eq!(refused.expect_err("nothing is free").current(), 100);
        assert!(root.charge_blocking(memory, 1, Duration::ZERO).is_err());
        assert_eq!(root.reclaim(memory, 10), 0);
        drop(held.split(1));
        drop(root.charge_reclaiming(memory, 1).expect("it was freed"));
        of_callback.create("/new").expect("free").kill().expect("no children");
        of_callback.flush();
        mine.lock().unwrap().push(group.on_reclaim(memory, |_| {}));
        drop(mine.lock().unwrap().remove(0));
    });
    inner.lock().unwrap().push(registered);
    let web = tree.create("/web").expect("room");
    drop(web.charge_reclaiming(memory, 30).expect("it was freed"));
    assert_eq!(
        (cache.usage(memory).counts.panics, cache.usage(memory).current),
        (0, 0),
        "it has ended"
    );
    assert_eq!((inner.lock().unwrap().len(), victim.asked()), (1, vec![]));
    inner.lock().unwrap().clear();
    drop(web.charge_reclaiming(memory, 80).expect("the other gives it"));
    assert_eq!(victim.asked(), [20]);
}

/// A value that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// A registration that ends during a call lets it finish, and is not asked again.
#[test]
fn an_ended_registration_lets_its_call_end() {
    let (tree, memory) = tree(100);
    let slow = tree.create("/slow").expect("room");
    let mut held = slow.try_charge(memory, 100).expect("it fits");
    let (goes_on, blocks) = mpsc::channel::<()>();
    let (tells, called) = mpsc::channel();
    let bomb = Bomb;
    let registered = slow.on_reclaim(memory, move |wanted| {
        _ = &bomb;
        _ = tells.send(());
        _ = blocks.recv();
        drop(held.split(wanted));
    });
    let killed = slow.kill().expect("no children");
    thread::scope(|scope| {
        // As above.
        let goes_on = goes_on;
        let charge = scope.spawn(|| tree.root().charge_reclaiming(memory, 10));
        called.recv().expect("a killed group is asked as well");
        drop(registered);
        drop(slow);
        assert!(!killed.is_released(), "a call is under way");
        tree.root().charge_reclaiming(memory, 1).expect_err("nobody can be asked");
        drop(goes_on);
        drop(charge.join().expect("the panic of its last owner is contained").expect("freed"));
    });
    assert!(killed.is_released());
    assert_eq!(tree.root().usage(memory).current, 0, "what it owned went with it");
}

/// A registration that another callback ends is not called again.
#[test]
fn a_registration_ended_by_another_is_not_called() {
    let (tree, memory) = tree(100);
    let Cache { held, asked, registered, .. } = Cache::new(&tree, memory, "/second", 40);
    let first = tree.create("/first").expect("room");
    let (mut own, mut other) = (first.try_charge(memory, 60).expect("it fits"), Some(registered));
    let registered = first.on_reclaim(memory, move |wanted| {
        drop(own.split(wanted));
        drop(other.take());
    });
    tree.root().charge_reclaiming(memory, 70).expect_err("60 were freed");
    assert_eq!((asked.lock().unwrap().len(), held.lock().unwrap().amount()), (0, 40));
    assert_eq!(tree.root().usage(memory).current, 40);
    drop(registered);
}

#[test]
fn a_killed_group_claims_nothing_and_is_asked() {
    let (tree, memory) = tree(200);
    let caches = ["/a", "/b"].map(|path| Cache::new(&tree, memory, path, 100));
    caches[0].group.set_min(memory, Some(100));
    let web = tree.create("/web").expect("room");
    web.charge_reclaiming(memory, 150).expect_err("half is protected");
    let killed = caches[0].group.kill().expect("no children");
    drop(web.charge_reclaiming(memory, 150).expect("all may be had"));
    assert_eq!(caches.each_ref().map(Cache::holds), [0, 50]);
    assert!(!killed.is_released());
    drop(caches);
    assert!(killed.is_released());
}

fn poll<F: Future>(future: &mut std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Room is made for a charge that would wait, and it is granted at once.
#[test]
fn a_waiting_charge_has_room_made() {
    let (tree, memory) = tree(100);
    let cache = Cache::new(&tree, memory, "/cache", 100);
    let web = tree.create("/web").expect("room");
    let start = Instant::now();
    let first = web.charge_blocking(memory, 30, LONG).expect("it was made");
    let mut future = pin!(web.charge(memory, 20));
    let Poll::Ready(second) = poll(&mut future) else { panic!("it was made") };
    assert!(start.elapsed() < LONG);
    assert_eq!((cache.asked(), tree.root().usage(memory).counts.postponed), (vec![30, 20], 2));

    cache.group.set_min(memory, Some(50));
    web.charge_blocking(memory, 10, Duration::ZERO).expect_err("the rest is protected");
    let mut waits = pin!(web.charge(memory, 10));
    assert!(poll(&mut waits).is_pending() && poll(&mut waits).is_pending());
    assert_eq!(cache.asked(), NOTHING);
    drop(first);
    let Poll::Ready(third) = poll(&mut waits) else { panic!("there is room") };
    let usage = tree.root().usage(memory);
    assert_eq!((usage.counts.postponed, usage.refused), (3, 1));
    drop((second, third));
}

/// Room is made for earlier waits as well, or not at all.
#[test]
fn room_is_made_for_earlier_waits_too() {
    let (tree, memory) = tree(100);
    let held = tree.root().try_charge(memory, 80).expect("it fits");
    let cache = Cache::new(&tree, memory, "/cache", 20);
    let web = tree.create("/web").expect("room");
    let mut large = Box::pin(web.charge(memory, 30));
    assert!(poll(&mut large.as_mut()).is_pending());
    let mut small = pin!(web.charge(memory, 5));
    assert!(poll(&mut small).is_pending());
    assert_eq!(cache.asked(), NOTHING, "30 and 5 are more than it has");
    drop(large);
    assert!(poll(&mut small).is_pending());
    let mut another = pin!(web.charge(memory, 10));
    let Poll::Ready(granted) = poll(&mut another) else { panic!("it has that much") };
    assert_eq!(cache.asked(), [15], "for both");
    assert!(poll(&mut small).is_ready());
    drop((granted, held));
}

/// A group's own callbacks are asked alone, for no more than what they answer for.
#[test]
fn own_callbacks_are_asked_alone() {
    let (tree, memory) = tree(1000);
    let own = Cache::new(&tree, memory, "/a", 30);
    let below = Cache::new(&tree, memory, "/a/b", 100);
    assert_eq!(own.group.reclaim_own(memory, 20), 20);
    assert_eq!(own.group.reclaim_own(memory, 50), 10);
    assert_eq!((own.asked(), below.asked()), (vec![20, 10], NOTHING.to_vec()));
    assert_eq!(tree.root().reclaim_own(memory, 50), 0, "it has none of its own");
    assert_eq!(own.group.reclaim(memory, 50), 50);
    assert_eq!((own.holds(), below.holds()), (0, 50));
}
