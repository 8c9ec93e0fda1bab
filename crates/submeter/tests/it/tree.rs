//! Groups, statistics and limits through the public interface.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Group, Histogram, Nanoseconds, Quota, Schema, Tree,
};

use crate::stop::StopOnDrop;

struct Fixture {
    tree: Tree,
    requests: Counter<Count>,
    sent: Counter<Bytes>,
    items: Gauge<Count>,
    latency: Histogram<Nanoseconds>,
    memory: Quota<Bytes>,
}

fn fixture() -> Fixture {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    let sent = schema.counter("sent", "Bytes sent");
    let items = schema.gauge("items", "Items");
    let latency = schema.histogram("latency", "Latency", Buckets::LATENCY_NS);
    let memory = schema.quota("memory", "Memory");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    Fixture { tree, requests, sent, items, latency, memory }
}

/// A flush carries updates to every ancestor and nowhere else.
#[test]
fn a_flush_carries_updates_to_ancestors_only() {
    let f = fixture();
    let web = f.tree.get_or_create("/acme/web").expect("created");
    let mail = f.tree.get_or_create("/acme/mail").expect("created");
    let other = f.tree.create("/other").expect("created");
    web.add(f.requests, 3);
    mail.add(f.requests, 4);
    other.add(f.sent, 70_000);
    web.adjust(f.items, -2);
    assert_eq!(web.read(f.requests).value, 0, "lazy");
    let report = f.tree.flush();
    assert_eq!((report.groups, report.joined), (5, false), "three leaves, /acme and /");
    for (path, requests, sent, items) in [
        ("/acme/web", 3, 0, -2),
        ("/acme/mail", 4, 0, 0),
        ("/acme", 7, 0, -2),
        ("/other", 0, 70_000, 0),
        ("/", 7, 70_000, -2),
    ] {
        let group = f.tree.get(path).expect("exists");
        assert_eq!(group.read(f.requests).value, requests, "{path}");
        assert_eq!(group.read(f.sent).value, sent, "{path}");
        assert_eq!(group.read(f.items).value, items, "{path}");
        assert_eq!(group.read(f.items).max_error, 0, "{path}");
    }
    assert_eq!(f.tree.flush().groups, 0, "nothing changed since");
}

#[test]
fn a_histogram_adds_up_the_tree() {
    let f = fixture();
    let (a, b) = (f.tree.create("/a").expect("created"), f.tree.create("/b").expect("created"));
    for i in 1..=100u64 {
        a.record(f.latency, i * 1000);
        b.record(f.latency, i * 1_000_000);
    }
    f.tree.flush();
    let root = f.tree.root().read_histogram(f.latency).value;
    assert_eq!(root.count(), 200);
    assert_eq!(root.sum(), 5050 * 1_001_000);
    assert_eq!(a.read_histogram(f.latency).value.count(), 100);
    let median = b.read_histogram(f.latency).value.quantile(0.5).expect("not empty");
    assert!(median.abs_diff(50_000_000) < 6_500_000, "{median}");
}

/// A killed child's totals stay in its parent, and its storage is reused.
#[test]
fn a_killed_childs_totals_stay_above() {
    let f = fixture();
    let before = f.tree.group_count();
    for round in 1..=200u64 {
        let child = f.tree.get_or_create("/p/child").expect("created");
        child.add(f.requests, 1);
        child.kill().expect("no children");
        assert!(child.is_killed());
        assert!(f.tree.get("/p/child").is_none());
        assert!(child.kill().expect_err("twice").is_killed());
        assert!(child.create_child("x").expect_err("dead").is_killed());
        child.add(f.requests, 1);
        drop(child);
        let parent = f.tree.get("/p").expect("lives");
        assert_eq!(parent.sum(f.requests), 2 * round);
    }
    assert_eq!(f.tree.group_count(), before + 1);
    assert_eq!(f.tree.root().sum(f.requests), 400);
}

/// A killed group is released when its last handle and charge are gone.
#[test]
fn a_killed_group_ends_with_its_last_holder() {
    let f = fixture();
    let group = f.tree.get_or_create("/p/tenant").expect("created");
    let charge = group.try_charge(f.memory, 10).expect("no limit");
    let request = f.tree.get("/p/tenant").expect("alive");
    let killed = group.kill().expect("a leaf");
    assert_eq!(killed.path(), "/p/tenant");
    assert!(f.tree.get("/p/tenant").is_none());
    drop(group);
    request.add(f.requests, 5);
    let soon = std::time::Duration::from_millis(10);
    let held = killed.released_blocking(soon).expect_err("a request and a charge hold it");
    assert_eq!(held.references(), Some(2), "{held}");
    drop(request);
    assert!(!killed.is_released());
    drop(charge);
    assert!(killed.is_released());
    assert_eq!(f.tree.get("/p").expect("lives").sum(f.requests), 5);
    assert_eq!(f.tree.root().usage(f.memory).current, 0);
    f.tree.get_or_create("/p/tenant").expect("the name is free").add(f.requests, 1);
    assert_eq!(f.tree.root().sum(f.requests), 6);
}

/// Deleting groups under load loses nothing, and no update gets in afterwards.
#[test]
fn deletions_under_load_lose_nothing_stress() {
    let f = fixture();
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    f.tree.get_or_create("/p/t").expect("created");
    std::thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // One request: it looks up its tenant, counts and ends.
                    let group = f.tree.get_or_create("/p/t").expect("room");
                    group.add(f.requests, 1);
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut killed = Vec::new();
        while killed.len() < 100 {
            let Some(group) = f.tree.get("/p/t") else { continue };
            let Ok(one) = group.kill() else { continue };
            drop(group);
            let patience = std::time::Duration::from_secs(60);
            one.released_blocking(patience).expect("requests end");
            killed.push(one);
        }
        drop(stopping);
    });
    assert_eq!(f.tree.get("/p").expect("lives").sum(f.requests), counted.into_inner());
    assert!(f.tree.group_count() <= 3, "/, /p and at most one /p/t");
}

/// A group with children cannot be killed, and the root never can.
#[test]
fn neither_parents_nor_the_root_can_be_killed() {
    let f = fixture();
    f.tree.get_or_create("/a/b").expect("created");
    let a = f.tree.get("/a").expect("exists");
    assert!(a.kill().expect_err("busy").is_busy());
    assert!(f.tree.root().kill().is_err());
    a.child("b").expect("exists").kill().expect("a leaf");
    a.kill().expect("empty now");
}

#[test]
fn names_are_checked() {
    let f = fixture();
    let long = "x".repeat(256);
    let deep = "/d".repeat(65);
    for bad in ["a", "/a//b", "/.", "/a/..", "/a\n", "/p/q/", "//", "/p/q/..", &deep]
        .into_iter()
        .chain([format!("/{long}"), format!("/p/q/{long}")].iter().map(String::as_str))
    {
        let groups = f.tree.group_count();
        assert!(f.tree.get_or_create(bad).expect_err(bad).is_invalid_name(), "{bad:?}");
        assert!(f.tree.get(bad).is_none(), "{bad:?}");
        assert!(f.tree.create(bad).is_err(), "{bad:?}");
        assert_eq!(f.tree.group_count(), groups, "{bad:?} has left groups behind");
    }
    f.tree.get_or_create(&deep[2..]).expect("64 levels");
    let below = f.tree.get_or_create(&deep).expect_err("one too many");
    assert!(below.to_string().contains(&deep), "{below}");
    assert!(f.tree.create("/no/parent").expect_err("none").is_not_found());
    f.tree.create("/twice").expect("created");
    assert!(f.tree.create("/twice").expect_err("exists").is_already_exists());
}

/// A full tree says so, and takes more groups once the dead are flushed.
#[test]
fn a_full_tree_takes_more_once_the_dead_go() {
    let mut schema = Schema::builder();
    let n = schema.counter::<Count>("n", "N");
    let tree = Tree::builder(schema.build().expect("valid")).groups_max(3).build().expect("room");
    let a = tree.create("/a").expect("second of three");
    let b = tree.create("/b").expect("third of three");
    assert!(tree.create("/c").expect_err("full").is_full());
    b.add(n, 5);
    b.kill().expect("a leaf");
    assert!(tree.create("/c").expect_err("the handle pins it").is_full());
    drop(b);
    tree.create("/c").expect("room again");
    assert_eq!(tree.root().sum(n), 5);
    drop(a);
}

#[test]
fn a_limit_refuses_at_its_level_naming_holders() {
    let f = fixture();
    let a = f.tree.get_or_create("/p/a").expect("created");
    let b = f.tree.get_or_create("/p/b").expect("created");
    let parent = f.tree.get("/p").expect("exists");
    parent.set_limit(f.memory, Some(1000));
    a.set_limit(f.memory, Some(400));
    let first = a.try_charge(f.memory, 300).expect("fits");
    let error = a.try_charge(f.memory, 101).expect_err("over /p/a");
    assert_eq!(error.limiting().path(), "/p/a");
    let mut second = b.try_charge(f.memory, 700).expect("fits exactly");
    let error = b.try_charge(f.memory, 1).expect_err("over /p");
    assert_eq!(error.limiting(), &parent);
    assert_eq!((error.limit(), error.current(), error.requested()), (1000, 1000, 1));
    let text = error.detail().to_string();
    assert!(text.contains("limit of /p: 1000 of 1000 held"), "{text}");
    assert!(text.contains("most by /p/b (700), /p/a (300)"), "{text}");
    assert!(second.resize(701).is_err());
    assert_eq!(second.amount(), 700);
    second.resize(100).expect("shrinks");
    assert_eq!(parent.usage(f.memory).current, 400);
    drop(first);
    drop(second);
    let usage = parent.usage(f.memory);
    assert_eq!((usage.current, usage.peak, usage.refused), (0, 1000, 2));
    assert_eq!(f.tree.root().usage(f.memory).current, 0);
}

/// Killed groups keep their numbers, and a successor at the path has another.
#[test]
fn a_killed_group_keeps_its_number() {
    let f = fixture();
    let paths = ["/acme/web/img", "/acme/web", "/acme"];
    let groups = paths.map(|path| f.tree.get_or_create(path).expect("created"));
    let numbers = groups.each_ref().map(Group::id);
    let killed = groups[2].kill_subtree().expect("alive");
    drop(groups);
    assert!(
        killed.iter().map(|killed| (killed.path(), killed.id())).eq(paths.into_iter().zip(numbers))
    );
    let again = f.tree.create("/acme").expect("the name is free");
    let number = again.id();
    assert_eq!(again.kill().expect("no children").id(), number);
    assert!(!numbers.contains(&number));
}

/// Their words lie in the order in which they were made: see `killed_memory`.
#[test]
fn a_subtrees_groups_end_in_order_of_words() {
    let f = fixture();
    let acme = f.tree.create("/acme").expect("created");
    let names: Vec<String> = (0..1_000).map(|n| (n * 7_919 % 1_000).to_string()).collect();
    for name in &names {
        acme.create_child(name).expect("created");
    }
    let killed = acme.kill_subtree().expect("alive");
    let ended = killed.iter().rev().skip(1).map(|killed| &killed.path()["/acme/".len()..]);
    assert!(ended.eq(&names));
}

#[test]
fn a_refusals_text_tells_nothing_of_others() {
    let f = fixture();
    // A name that reverses the text that follows it.
    let paths = ["/acme/web", "/acme/\u{202e}mail", "/\u{202e}hog"];
    let [web, mail, hog] = paths.map(|path| f.tree.get_or_create(path).expect("created"));
    let acme = web.parent().expect("below the root");
    let mut own = web.try_charge(f.memory, 40).expect("no limit");
    let _others = [&mail, &hog].map(|other| other.try_charge(f.memory, 777).expect("no limit"));
    for above in [acme, f.tree.root()] {
        above.set_limit(f.memory, Some(above.usage(f.memory).current + 5));
        let wait = Duration::from_micros(1);
        for refused in [
            web.try_charge(f.memory, 6).expect_err("no room"),
            web.charge_reclaiming(f.memory, 6).expect_err("nobody frees any"),
            web.charge_blocking(f.memory, 6, wait).expect_err("no room"),
            web.try_charge_all([f.memory.amount(6)]).expect_err("no room"),
            own.resize(46).expect_err("no room"),
        ] {
            let told = "6 more of memory would exceed a limit shared with others";
            assert_eq!(refused.to_string(), told);
            let detail = refused.detail().to_string();
            let whose = format!("/acme/web: 6 more of memory would exceed the limit of {above}: ");
            assert!(detail.starts_with(&whose) && detail.contains("(777)"), "{detail}");
            assert!(detail.contains(r"\u{202e}") && !detail.contains('\u{202e}'), "{detail:?}");
        }
        above.set_limit(f.memory, None);
    }
    web.set_limit(f.memory, Some(45));
    let told = web.try_charge(f.memory, 6).expect_err("its own limit").to_string();
    assert_eq!(told, "6 more of memory would exceed the limit: 40 of 45 held");
}

#[test]
fn concurrent_flushes_join() {
    // A flush of this many groups takes long enough for other threads to wait for it. Of the
    // threads that wait for the same flush, all but one join the next: ten joins take a few hundred
    // flushes. If fewer than ten of all flushes join, joining does not work.
    const GROUPS: usize = 300;
    const FLUSHES: u64 = 5_000;
    let f = fixture();
    let groups: Vec<Group> =
        (0..GROUPS).map(|n| f.tree.create(&format!("/{n}")).expect("created")).collect();
    let (joined, flushes) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Relaxed, here and below: read after the join, or used only to end the loop.
                while joined.load(Ordering::Relaxed) < 10
                    && flushes.fetch_add(1, Ordering::Relaxed) < FLUSHES
                {
                    groups.iter().for_each(|group| group.add(f.requests, 1));
                    joined.fetch_add(u64::from(f.tree.flush().joined), Ordering::Relaxed);
                }
            });
        }
    });
    let (joined, flushes) = (joined.into_inner(), flushes.into_inner());
    assert!(joined >= 10, "{joined} of {flushes} flushes joined another");
}

#[test]
fn handles_outlive_their_tree() {
    let f = fixture();
    let group = f.tree.get_or_create("/a/b").expect("created");
    let charge = group.try_charge(f.memory, 10).expect("no limit");
    drop(f.tree);
    group.add(f.requests, 1);
    assert_eq!(group.sum(f.requests), 1);
    assert!(group.is_killed());
    drop(charge);
}

#[test]
#[should_panic(expected = "another tree")]
fn a_metric_of_another_schema_is_refused() {
    let (f, g) = (fixture(), fixture());
    f.tree.root().add(g.requests, 1);
}

/// A group that was seen killed is not found by name.
#[test]
fn a_group_seen_killed_is_not_found_stress() {
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    let rounds = if cfg!(miri) { 20 } else { 2_000 };
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _stop = StopOnDrop(&stop);
        let others = [(); 2].map(|()| {
            threads.spawn(|| {
                // Relaxed, here and below: it only ends the loops.
                while !stop.load(Ordering::Relaxed) {
                    let Ok(web) = tree.root().get_or_create_child("web") else { continue };
                    while !web.is_killed() && !stop.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    if web.is_killed() {
                        let next = tree.root().get_or_create_child("web").expect("room");
                        assert_ne!(next, web, "killed, and found again");
                        assert_ne!(tree.get("/web"), Some(web));
                    }
                }
            })
        });
        let mut killed = 0;
        while killed < rounds && !others.iter().any(|other| other.is_finished()) {
            // None until the others have made it again.
            if let Some(web) = tree.root().child("web") {
                web.kill().expect("killed here alone");
                killed += 1;
            }
        }
    });
}
