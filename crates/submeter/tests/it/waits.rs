//! Charges that wait for room.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use submeter::{Bytes, Charge, Group, LimitError, Quota, Schema, Tree};

use crate::witness::Witness;

/// Longer than any machine takes for what should happen at once.
const LONG: Duration = Duration::from_secs(30);

fn tree(limit: u64) -> (Tree, Quota<Bytes>) {
    let mut schema = Schema::builder();
    let memory = schema.quota::<Bytes>("memory", "Memory held");
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    tree.root().set_limit(memory, Some(limit));
    (tree, memory)
}

fn poll<F: Future<Output = Result<Charge, LimitError>>>(
    future: &mut Pin<&mut F>,
) -> Poll<Result<Charge, LimitError>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_future_dropped_after_its_grant_returns_it() {
    let (tree, memory) = tree(100);
    let held = tree.root().try_charge(memory, 60).expect("it fits");
    let mut first = Box::pin(tree.root().charge(memory, 50));
    assert!(poll(&mut first.as_mut()).is_pending());
    drop(held);
    assert_eq!(tree.root().usage(memory).current, 50, "granted before anybody polls it");
    let mut second = pin!(tree.root().charge(memory, 70));
    assert!(poll(&mut second).is_pending());
    drop(first);
    assert!(poll(&mut second).is_ready());
    assert_eq!(tree.root().usage(memory).current, 0);
}

#[test]
fn a_dropped_future_lets_those_behind_it_pass() {
    let (tree, memory) = tree(100);
    let _held = tree.root().try_charge(memory, 60).expect("it fits");
    let mut first = Box::pin(tree.root().charge(memory, 50));
    assert!(poll(&mut first.as_mut()).is_pending());
    let mut second = pin!(tree.root().charge(memory, 10));
    assert!(poll(&mut second).is_pending(), "it fits, and another was first");
    assert!(tree.root().try_charge(memory, 10).is_ok(), "who does not wait may pass");
    drop(first);
    assert!(poll(&mut second).is_ready());
}

#[test]
fn a_timeout_lets_those_behind_it_pass() {
    let (tree, memory) = tree(100);
    let _held = tree.root().try_charge(memory, 60).expect("it fits");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            tree.root().charge_blocking(memory, 50, Duration::from_millis(100)).map(drop)
        });
        // Granted until the other charge is waiting.
        let mut second = loop {
            let mut second = Box::pin(tree.root().charge(memory, 10));
            if poll(&mut second.as_mut()).is_pending() {
                break second;
            }
        };
        first.join().expect("no panic").expect_err("60 are held");
        assert!(poll(&mut second.as_mut()).is_ready());
    });
}

#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        // Relaxed: one thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Only granted charges are woken, by the waker that polled last.
#[test]
fn only_granted_charges_are_woken() {
    let (tree, memory) = tree(100);
    let held = tree.root().try_charge(memory, 60).expect("it fits");
    let woken: [Arc<Woken>; 3] = Default::default();
    let wakers = woken.each_ref().map(|woken| Waker::from(Arc::clone(woken)));
    let mut first = pin!(tree.root().charge(memory, 80));
    let mut second = pin!(tree.root().charge(memory, 30));
    for waker in &wakers[..2] {
        assert!(first.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    assert!(second.as_mut().poll(&mut Context::from_waker(&wakers[2])).is_pending());
    drop(held);
    // Relaxed: one thread.
    assert_eq!(woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed)), [0, 1, 0]);
    assert!(poll(&mut first).is_ready());
}

/// A charge that alone exceeds a limit fails at once, and says whose limit.
#[test]
fn what_exceeds_a_limit_alone_fails_at_once() {
    let (tree, memory) = tree(100);
    let web = tree.create("/web").expect("a group");
    let refused = web.charge_blocking(memory, 101, LONG).expect_err("more than the limit");
    assert_eq!((refused.limiting(), refused.limit()), (tree.root(), 100));
    let mut waits = pin!(web.charge(memory, 80));
    let held = tree.root().try_charge(memory, 60).expect("it fits");
    assert!(poll(&mut waits).is_pending());
    tree.root().set_limit(memory, Some(70));
    let Poll::Ready(Err(refused)) = poll(&mut waits) else { panic!("it can never be granted") };
    assert_eq!((refused.requested(), refused.limit()), (80, 70));
    assert_eq!(tree.root().usage(memory).refused, 2);
    drop(held);
}

#[test]
fn a_timeout_reports_the_limit_in_its_way() {
    let (tree, memory) = tree(1000);
    let web = tree.create("/web").expect("a group");
    web.set_limit(memory, Some(100));
    let held = web.try_charge(memory, 60).expect("it fits");
    let late = web.charge_blocking(memory, 50, Duration::from_millis(5)).expect_err("60 are held");
    assert_eq!((late.limiting(), late.current(), late.limit()), (&web, 60, 100));
    let refused = [tree.root(), &web].map(|group| group.usage(memory).refused);
    assert_eq!(refused, [0, 1]);
    drop(held);
    assert!(web.charge_blocking(memory, 50, Duration::ZERO).is_ok(), "there is room");
}

/// A charge that gave up behind another says so; no limit that has room is blamed.
#[test]
fn giving_up_behind_another_says_so() {
    let (tree, memory) = tree(100);
    let [web, mail] = ["/web", "/mail"].map(|path| tree.create(path).expect("a group"));
    let held = mail.try_charge(memory, 60).expect("it fits");
    let mut first = Box::pin(mail.charge(memory, 50));
    assert!(poll(&mut first.as_mut()).is_pending());
    let wait = Duration::from_millis(1);
    let late = web.charge_blocking(memory, 10, wait).expect_err("another is before it");
    assert!(late.is_behind() && !late.is_killed());
    assert_eq!((late.limiting(), late.current(), late.limit()), (tree.root(), 60, 100));
    let told = "10 more of memory waited too long: others are ahead of it at a limit shared with \
                others";
    assert_eq!(late.to_string(), told);
    let detail = "/web: 10 more of memory waited too long: others are ahead of it at the limit of \
                  /: 60 of 100 held; most by /mail (60)";
    assert_eq!(late.detail().to_string(), detail);
    let late = web.charge_blocking(memory, 41, wait).expect_err("nor does it fit");
    assert!(!late.is_behind());
    assert!(
        late.detail().to_string().contains("41 more of memory would exceed the limit of /: 60")
    );
    drop(first);
    assert!(web.charge_blocking(memory, 10, wait).is_ok(), "nobody is before it");
    drop(held);
}

#[test]
fn a_future_out_of_time_says_why_and_leaves() {
    let (tree, memory) = tree(100);
    let web = tree.create("/web").expect("a group");
    let mut held = tree.root().try_charge(memory, 60).expect("it fits");
    let at_once = || std::future::ready(());
    let mut first = Box::pin(web.charge(memory, 50).until(std::future::pending::<()>()));
    assert!(poll(&mut first.as_mut()).is_pending());
    let late = |n| match poll(&mut pin!(web.charge(memory, n).until(at_once()))) {
        Poll::Ready(charged) => charged.map(|charge| charge.amount()),
        Poll::Pending => panic!("its time is up"),
    };
    assert!(late(10).expect_err("the first is before it").is_behind());
    let full = late(41).expect_err("no room");
    assert_eq!((full.is_behind(), full.limiting(), full.current()), (false, tree.root(), 60));
    drop(first);
    assert_eq!(late(40).expect("it fits before any timer is asked"), 40);
    // Granted and not polled since: the timer comes second.
    let mut granted = Box::pin(web.charge(memory, 50).until(std::future::poll_fn(|_| {
        held.resize(40).expect("less is never refused");
        Poll::Ready(())
    })));
    let Poll::Ready(Ok(charge)) = poll(&mut granted.as_mut()) else { panic!("it fits by now") };
    assert_eq!(charge.amount(), 50);
    drop(granted);
    drop((charge, held));
    assert_eq!(tree.root().usage(memory).current, 0);
}

/// A waiting charge ends with its group, and no longer keeps it.
#[test]
fn a_waiting_charge_ends_with_its_group() {
    let (tree, memory) = tree(100);
    let [acme, mail] = ["/acme", "/mail"].map(|path| tree.create(path).expect("a group"));
    let [page, idle] = ["page", "idle"].map(|name| acme.create_child(name).expect("a group"));
    let _held = mail.try_charge(memory, 60).expect("it fits");
    let woken: [Arc<Woken>; 3] = Default::default();
    let mut waits = [&acme, &page, &mail].map(|group| Box::pin(group.charge(memory, 50)));
    for (waits, woken) in waits.iter_mut().zip(&woken) {
        let waker = Waker::from(Arc::clone(woken));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let blocks = std::thread::spawn({
        let page = page.clone();
        move || page.charge_blocking(memory, 50, LONG).map(drop).expect_err("killed").is_killed()
    });
    let killed = acme.kill_subtree().expect("alive");
    assert!(blocks.join().expect("no panic"));
    // Relaxed: one thread.
    assert_eq!(woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed)), [1, 1, 0]);
    let [first, second, third] = &mut waits;
    for waits in [first, second] {
        let Poll::Ready(Err(refused)) = poll(&mut waits.as_mut()) else { panic!("it ended") };
        assert!(refused.is_killed() && !refused.is_behind());
        assert_eq!(refused.limiting(), refused.group());
        let told = "50 more of memory cannot be waited for: the group was killed";
        assert_eq!(refused.to_string(), told);
        assert_eq!(refused.detail().to_string(), format!("{}: {told}", refused.group()));
    }
    assert!(poll(&mut third.as_mut()).is_pending(), "it is of another");
    // A charge that would have to wait ends at once, even in a group that was never charged before.
    // A charge that fits is granted, as for any handle of a killed group.
    for group in [&acme, &page, &idle] {
        assert!(group.charge_blocking(memory, 50, LONG).expect_err("killed").is_killed());
        assert!(group.try_charge(memory, 40).is_ok());
    }
    assert_eq!(tree.root().usage(memory).refused, 0, "no limit refused anything");
    drop((waits, acme, page, idle));
    for killed in killed {
        killed.released_blocking(LONG).expect("nothing keeps it");
    }
}

/// Each wait begins while the kill runs, in groups that were never charged before, so that the kill
/// races with the first wait, which makes the list of waits.
#[test]
fn no_wait_outlives_a_kill_beside_it_stress() {
    let (tree, memory) = tree(0);
    let rounds = if cfg!(miri) { 5 } else { 2_000 };
    let start = Barrier::new(3);
    let groups: Vec<Group> =
        (0..rounds).map(|n| tree.create(&format!("/{n}")).expect("a group")).collect();
    tree.root().set_limit(memory, Some(1));
    let _full = tree.root().try_charge(memory, 1).expect("it fits");
    // After a failure the others only keep step: a thread that panicked would keep them at the
    // barrier.
    let failed = AtomicBool::new(false);
    let each = |act: &dyn Fn(&Group) -> bool| {
        for group in &groups {
            start.wait();
            // Relaxed: a flag that publishes nothing else.
            if !failed.load(Ordering::Relaxed) && !act(group) {
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            each(&|group| {
                group.charge_blocking(memory, 1, LONG).is_err_and(|refused| refused.is_killed())
            });
        });
        scope.spawn(|| each(&|group| wait_for(group.killed())));
        each(&|group| group.kill().is_ok());
    });
    // Relaxed: all threads were joined.
    assert!(!failed.load(Ordering::Relaxed), "nobody woke it");
}

/// Returns whether the future was ready in time.
fn wait_for(future: impl Future<Output = ()>) -> bool {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let (mut future, begun) = (pin!(future), Instant::now());
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        if begun.elapsed() >= LONG {
            return false;
        }
        std::thread::park_timeout(LONG);
    }
    true
}

/// The kill of a group wakes all that wait for it, no matter who kills it.
#[test]
fn a_kill_wakes_all_that_wait_for_it() {
    let (tree, _) = tree(100);
    let [acme, mail, hog] =
        ["/acme", "/mail", "/hog"].map(|path| tree.create(path).expect("a group"));
    let web = acme.create_child("web").expect("a group");
    let groups = [&acme, &web, &web, &mail, &hog];
    let woken: [Arc<Woken>; 5] = Default::default();
    let mut waits = groups.map(|group| Box::pin(group.killed()));
    let mut poll = |at: usize| {
        let waker = Waker::from(Arc::clone(&woken[at]));
        waits[at].as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    };
    // Relaxed: one thread.
    let woken = || woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed));
    assert_eq!([0, 1, 2, 3, 4].map(&mut poll), [false; 5]);
    assert_eq!([0, 1, 2, 3, 4].map(&mut poll), [false; 5], "whose waker is another now");
    acme.kill_subtree().expect("alive");
    assert_eq!(woken(), [1, 1, 1, 0, 0]);
    mail.kill().expect("alive");
    assert_eq!(woken(), [1, 1, 1, 1, 0]);
    drop(tree);
    assert_eq!(woken(), [1; 5]);
    assert_eq!([0, 1, 2, 3, 4].map(&mut poll), [true; 5]);
    let mut late = pin!(web.killed());
    let polled = late.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready(), "it was killed before");
}

/// The data of a group is available after the groups above it were killed.
#[test]
fn killed_groups_keep_their_data() {
    let (tree, _) = tree(100);
    let dropped = Arc::new(());
    for path in ["/acme", "/acme/web", "/acme/web/page"] {
        let group = tree.get_or_create(path).expect("a group");
        group.data_or_init(|| (path, Arc::clone(&dropped))).expect("alive");
    }
    tree.get_or_create("/acme/mail").expect("a group");
    let killed = tree.get("/acme").expect("made above").kill_subtree().expect("alive");
    for killed in &killed {
        assert!(killed.is_released(), "nobody held it");
        let data = killed.data::<(&str, Arc<()>)>().map(|data| data.0);
        assert_eq!(data, Some(killed.path()).filter(|path| *path != "/acme/mail"));
        assert!(killed.data::<u64>().is_none());
    }
    assert_eq!(Arc::strong_count(&dropped), 4);
    drop(killed);
    assert_eq!(Arc::strong_count(&dropped), 1);
}

/// Threads that wait are all served, and the limit holds.
#[test]
fn waiting_threads_are_all_served_stress() {
    let (tree, memory) = tree(100);
    let rounds = if cfg!(miri) { 3 } else { 1500 };
    let groups = ["/a", "/b"].map(|path| tree.create(path).expect("a group"));
    groups[0].set_limit(memory, Some(70));
    let (held, witness) = (AtomicU64::new(0), Witness::new());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (group, held, witness) = (&groups[thread % 2], &held, &witness);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread as u64);
                for n in (0..).take_while(|&n| witness.goes_on(n, rounds)) {
                    if n % 64 == 0 {
                        witness.met(group.pressure(memory).some.total > Duration::ZERO);
                    }
                    let n = rng.u64(1..=70);
                    let charge =
                        group.charge_blocking(memory, n, LONG).expect("everybody is served");
                    // Relaxed: the sum is at most what is charged, because it is lowered before the
                    // release.
                    let together = held.fetch_add(n, Ordering::Relaxed) + n;
                    assert!(together <= 100, "{together} of 100");
                    held.fetch_sub(n, Ordering::Relaxed);
                    drop(charge);
                }
            });
        }
    });
    witness.assert_met();
    assert_eq!(tree.root().usage(memory).current, 0);
    assert_eq!(tree.root().usage(memory).refused, 0, "to wait is not to be refused");
}

#[cfg(not(miri))]
#[test]
fn futures_that_give_up_leave_nothing_stress() {
    let (tree, memory) = tree(100);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    let group = tree.create("/web").expect("a group");
    let tasks: Vec<_> =
        (0..8).map(|seed| runtime.spawn(task(group.clone(), memory, seed))).collect();
    let served: u32 = runtime.block_on(async {
        let mut served = 0;
        for task in tasks {
            served += tokio::time::timeout(LONG, task).await.expect("served").expect("no panic");
        }
        served
    });
    assert!(served > 0);
    assert_eq!(tree.root().usage(memory).current, 0);
    assert!(
        tree.root().charge_blocking(memory, 100, Duration::ZERO).is_ok(),
        "nobody is before it"
    );
}

/// Charges again and again, for a while each, and gives up every third time.
async fn task(group: Group, memory: Quota<Bytes>, seed: u64) -> u32 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut served = 0;
    for _ in 0..2000 {
        let charging = group.charge(memory, rng.u64(1..=100));
        let charge = if rng.u8(..3) == 0 {
            let patience = tokio::task::yield_now();
            tokio::select! { biased; charge = charging => Some(charge), () = patience => None }
        } else {
            Some(charging.await)
        };
        if let Some(charge) = charge {
            let charge = charge.expect("it fits the limit");
            served += 1;
            tokio::task::yield_now().await;
            drop(charge);
        }
    }
    served
}

#[test]
fn pressure_is_of_who_waits_and_all_above_it() {
    let mut schema = Schema::builder();
    let quotas = ["memory", "disk"].map(|name| schema.quota::<Bytes>(name, "Held"));
    let tree = Tree::new(schema.build().expect("a schema")).expect("a tree");
    let [acme, web, mail, idle] =
        ["/acme", "/acme/web", "/acme/mail", "/idle"].map(|path| tree.get_or_create(path).unwrap());
    acme.set_limit(quotas[0], Some(100));
    let _held = mail.try_charge(quotas[0], 60).expect("it fits");

    let before = Instant::now();
    let mut waits = Box::pin(web.charge(quotas[0], 50));
    assert!(poll(&mut waits.as_mut()).is_pending());
    std::thread::sleep(Duration::from_millis(1));
    drop(waits);
    let longest = before.elapsed();

    let totals = |group: &Group, quota| {
        let pressure = group.pressure(quota);
        [pressure.some.total, pressure.full.total]
    };
    let [some, full] = totals(&web, quotas[0]);
    assert!((Duration::from_millis(1)..=longest).contains(&some), "{some:?} of {longest:?}");
    assert_eq!(full, some, "it held nothing");
    for group in [&acme, tree.root()] {
        assert_eq!(totals(group, quotas[0]), [some, Duration::ZERO], "mail can go on");
    }
    for (group, quota) in [(&mail, quotas[0]), (&idle, quotas[0]), (&web, quotas[1])] {
        assert_eq!(totals(group, quota), [Duration::ZERO; 2], "{}", group.path());
    }
}
