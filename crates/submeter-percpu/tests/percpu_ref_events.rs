//! Misuse is contained, and told of once for each count and kind, by name.
#![cfg(not(any(loom, shuttle)))]

use std::sync::{Arc, Mutex};

use submeter_percpu::PercpuRef;
use submeter_percpu::percpu_ref::{Event, EventKind, Options, set_event_hook};

#[allow(dead_code, reason = "shared with other tests")]
mod common;
use common::on_every_rung;

static TOLD: Mutex<Vec<(EventKind, String)>> = Mutex::new(Vec::new());

fn note(event: &Event<'_>) {
    assert!(event.to_string().contains(event.name()));
    TOLD.lock().expect("no panic inside").push((event.kind(), event.name().to_owned()));
}

/// One test: the hook is the process's.
#[test]
fn percpu_ref_misuse_is_told_of_once_and_contained() {
    set_event_hook(note).expect("first");
    assert!(set_event_hook(note).is_err());
    on_every_rung(|area| {
        let new = |options: Options, name: &'static str| {
            let releases = Arc::new(Mutex::new(0));
            let counter = Arc::clone(&releases);
            let release = move || *counter.lock().expect("no panic inside") += 1;
            (PercpuRef::with(options.area(area).name(name), release).expect("room"), releases)
        };
        let releases = |releases: &Mutex<i32>| *releases.lock().expect("no panic inside");
        let told = || std::mem::take(&mut *TOLD.lock().expect("no panic inside"));
        let expect = |kind, name: &str| assert_eq!(told(), [(kind, name.to_owned())]);

        let (twice, count) = new(Options::new(), "killed twice");
        twice.get();
        assert!(twice.kill() && !twice.kill() && !twice.kill_and_confirm(|| panic!("not killed")));
        assert_eq!(PercpuRef::kill_many([&twice, &twice]), 0);
        expect(EventKind::SecondKill, "killed twice");
        assert_eq!((twice.holders().references(), releases(&count)), (Some(1), 0));
        twice.put();
        assert_eq!(releases(&count), 1);

        twice.put();
        twice.put_many(7);
        expect(EventKind::PutBelowZero, "killed twice");
        twice.get();
        assert!(!twice.tryget());
        expect(EventKind::GetAtZero, "killed twice");
        assert!(twice.is_zero() && releases(&count) == 1, "zero stays zero, released once");

        let (pinned, count) = new(Options::new().allow_reinit(), "put too often");
        pinned.get();
        pinned.put_many(5);
        pinned.kill();
        expect(EventKind::PutBelowZero, "put too often");
        pinned.put_many(2);
        pinned.switch_to_percpu();
        assert!(!pinned.is_zero() && releases(&count) == 0, "leaked rather than released");
        drop(pinned);
        expect(EventKind::ExitDying, "put too often");

        let (alive, _) = new(Options::new().allow_reinit(), "alive");
        assert!(!alive.reinit() && !alive.reinit());
        expect(EventKind::ReinitAlive, "alive");
        assert!(!alive.resurrect() && !alive.resurrect());
        expect(EventKind::ResurrectAlive, "alive");
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
        expect(EventKind::ReinitNotAllowed, "one life");

        let (forgotten, _) = new(Options::new(), "forgotten");
        forgotten.get();
        forgotten.kill();
        drop(forgotten);
        expect(EventKind::ExitDying, "forgotten");
        drop(new(Options::new(), "never killed"));
        assert_eq!(told(), []);
    });
}
