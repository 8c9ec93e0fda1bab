//! Misuse is contained and reported, by kind and name.
//!
//! A single test with a process of its own, because a process has one hook.
#![cfg(not(loom))]

use std::sync::{Arc, Mutex};

use submeter_percpu::misuse::{Misuse, MisuseKind, set_misuse_hook};
use submeter_percpu::percpu_ref::Options;
use submeter_percpu::rcuref::{RcuRef, pin};
use submeter_percpu::{PercpuArc, PercpuRef};

#[allow(dead_code, reason = "shared with other tests")]
#[path = "it/common.rs"]
mod common;
use common::on_every_backend;

/// A copy of a report, which lives only during the hook's call.
struct Seen {
    kind: MisuseKind,
    address: usize,
    times: u32,
    name: String,
    text: String,
}

impl Seen {
    fn new(misuse: &Misuse<'_>) -> Seen {
        let (kind, address, times) = (misuse.kind(), misuse.address(), misuse.times());
        Seen { kind, address, times, name: misuse.name().to_owned(), text: misuse.to_string() }
    }
}

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

fn note(misuse: &Misuse<'_>) {
    assert!(misuse.to_string().contains(misuse.name()));
    SEEN.lock().expect("no panic inside").push(Seen::new(misuse));
}

/// Returns the reports since the last call.
fn seen() -> Vec<Seen> {
    std::mem::take(&mut SEEN.lock().expect("no panic inside"))
}

#[test]
fn the_first_hook_sees_all_misuse() {
    set_misuse_hook(note).expect("the first");
    let refused = set_misuse_hook(|_| ()).expect_err("the second");
    assert!(refused.to_string().contains("once"), "{refused}");
    percpu_ref_misuse_is_reported_and_contained();
    an_owners_second_kill_is_reported();
    rcuref_misuse_is_reported_with_its_object();
}

fn percpu_ref_misuse_is_reported_and_contained() {
    on_every_backend(|area| {
        let new = |options: Options, name: &'static str| {
            let releases = Arc::new(Mutex::new(0));
            let counter = Arc::clone(&releases);
            let release = move || *counter.lock().expect("no panic inside") += 1;
            (PercpuRef::with(options.area(area).name(name), release).expect("room"), releases)
        };
        let releases = |releases: &Mutex<i32>| *releases.lock().expect("no panic inside");
        let told = || -> Vec<_> { seen().into_iter().map(|seen| (seen.kind, seen.name)).collect() };
        let expect = |kind, name: &str| assert_eq!(told(), [(kind, name.to_owned())]);

        let (twice, count) = new(Options::new(), "killed twice");
        twice.get();
        assert!(twice.kill() && !twice.kill() && !twice.kill_and_confirm(|| panic!("not killed")));
        assert_eq!(PercpuRef::kill_many([&twice, &twice]), 0);
        expect(MisuseKind::SecondKill, "killed twice");
        assert_eq!((twice.holders().references(), releases(&count)), (Some(1), 0));
        twice.put();
        assert_eq!(releases(&count), 1);

        twice.put();
        twice.put_many(7);
        expect(MisuseKind::ExcessPut, "killed twice");
        twice.get();
        assert!(!twice.tryget());
        expect(MisuseKind::GetAtZero, "killed twice");
        assert!(twice.is_zero() && releases(&count) == 1, "zero stays zero, released once");

        let (pinned, count) = new(Options::new().allow_reinit(), "put too often");
        pinned.get();
        pinned.put_many(5);
        pinned.kill();
        expect(MisuseKind::ExcessPut, "put too often");
        pinned.put_many(2);
        pinned.switch_to_percpu();
        assert!(!pinned.is_zero() && releases(&count) == 0, "leaked rather than released");
        drop(pinned);
        expect(MisuseKind::ExitDying, "put too often");

        let (alive, _) = new(Options::new().allow_reinit(), "alive");
        assert!(!alive.reinit() && !alive.reinit());
        expect(MisuseKind::ReinitAlive, "alive");
        assert!(!alive.resurrect() && !alive.resurrect());
        expect(MisuseKind::ResurrectAlive, "alive");
        assert!(alive.tryget_live());
        alive.kill();
        assert!(!alive.reinit(), "one is held");
        assert_eq!(told(), [], "told of before");
        alive.put();
        assert!(alive.is_released());

        let (once, _) = new(Options::new(), "one life");
        once.switch_to_percpu();
        once.kill();
        assert!(!once.reinit() && !once.resurrect());
        expect(MisuseKind::ReinitNotAllowed, "one life");

        let (forgotten, _) = new(Options::new(), "forgotten");
        forgotten.get();
        forgotten.kill();
        drop(forgotten);
        expect(MisuseKind::ExitDying, "forgotten");
        drop(new(Options::new(), "never killed"));
        assert_eq!(told(), []);
    });
}

fn an_owners_second_kill_is_reported() {
    on_every_backend(|area| {
        let options = Options::new().area(area).name("owned");
        let (owner, _) = PercpuArc::with(options, ()).expect("room");
        assert!(owner.kill() && !owner.kill());
        let told: Vec<_> = seen().into_iter().map(|seen| (seen.kind, seen.name)).collect();
        assert_eq!(told, [(MisuseKind::SecondKill, String::from("owned"))]);
    });
}

fn rcuref_misuse_is_reported_with_its_object() {
    let guard = pin();
    let dead = RcuRef::new();
    assert!(dead.put(&guard) && !dead.put(&guard) && !dead.put(&guard));
    let pinned = RcuRef::with_refs(1 << 31);
    assert!(pinned.get() && pinned.get() && !pinned.put(&guard));

    let seen = seen();
    let kinds: Vec<MisuseKind> = seen.iter().map(|misuse| misuse.kind).collect();
    assert_eq!(kinds, [MisuseKind::ExcessPut, MisuseKind::ExcessPut, MisuseKind::Saturated]);
    let addresses: Vec<usize> = seen.iter().map(|misuse| misuse.address).collect();
    let at = |count: &RcuRef| std::ptr::from_ref(count).addr();
    assert_eq!(addresses, [at(&dead), at(&dead), at(&pinned)]);
    assert!(seen.iter().all(|misuse| misuse.name == "RcuRef" && misuse.times == 1));
    assert!(seen[0].text.contains("look for a put without its get"), "{}", seen[0].text);
    assert!(seen[2].text.contains("never freed"), "{}", seen[2].text);
}
