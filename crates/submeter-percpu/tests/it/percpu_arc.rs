//! The pointers drop their values once, after the kill and the last drop, never before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use submeter_percpu::percpu_ref::{Options, Start};
use submeter_percpu::{PercpuArc, PercpuOwner, PercpuRef};

use crate::common::{migrate, on_every_backend, rounds, soon};

/// A value that counts its drops and panics if it is used afterwards.
struct Canary {
    alive: AtomicBool,
    drops: Arc<AtomicU32>,
}

impl Canary {
    fn new(drops: &Arc<AtomicU32>) -> Canary {
        Canary { alive: AtomicBool::new(true), drops: Arc::clone(drops) }
    }

    fn look(&self) {
        // Relaxed: adds no ordering that could hide a missing one.
        assert!(self.alive.load(Ordering::Relaxed), "looked at after its drop");
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // Relaxed: as above.
        assert!(self.alive.swap(false, Ordering::Relaxed), "dropped twice");
        // Relaxed: tests join or wait before they look.
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn times(drops: &AtomicU32) -> u32 {
    // Relaxed: as in `drop`.
    drops.load(Ordering::Relaxed)
}

/// The value is dropped once, after the kill and the last pointer.
#[test]
fn percpu_arc_drops_its_value_once() {
    on_every_backend(|area| {
        let drops = Arc::new(AtomicU32::new(0));
        let new = || PercpuArc::with(Options::new().area(area), Canary::new(&drops)).expect("room");
        let (owner, pointer) = new();
        drop(pointer);
        owner.try_clone_live().expect("nobody killed it").look();
        assert_eq!(times(&drops), 0, "alive without pointers");
        let pointer = owner.try_clone().expect("alive");
        assert!(owner.kill() && owner.is_dying());
        assert!(owner.try_clone_live().is_none() && pointer.try_clone_live().is_none());
        let copies = [pointer.clone(), owner.try_clone().expect("held")];
        assert!(copies[0].ptr_eq(&copies[1]));
        drop(pointer);
        copies[0].look();
        drop(copies);
        assert!(times(&drops) == 1 && owner.is_released() && owner.try_clone().is_none());
        drop(owner);
        let (owner, pointer) = new();
        drop(owner);
        pointer.look();
        drop(pointer);
        assert_eq!(times(&drops), 2, "dropping the owner kills");
        let (owner, pointer) = new();
        drop(pointer);
        drop(owner);
        assert_eq!(times(&drops), 3);
    });
}

#[test]
fn percpu_arc_has_the_name_that_it_was_given() {
    let options = Options::new().name("session");
    let (owner, pointer) = PercpuArc::with(options, 7).expect("room");
    assert_eq!((pointer.name(), pointer.clone().name()), ("session", "session"));
    let text = r#"PercpuOwner { name: "session", dying: false, released: false, .. }"#;
    assert_eq!((owner.name(), format!("{owner:?}").as_str()), ("session", text));
    assert_eq!(format!("{pointer:?}"), "PercpuArc(7)");
    let count = PercpuRef::with(Options::new().name("worker").start(Start::Atomic), || ());
    let count = count.expect("room");
    let text = r#"PercpuRef { name: "worker", dying: false, references: 1, released: false }"#;
    assert_eq!((count.name(), format!("{count:?}").as_str()), ("worker", text));
}

#[test]
fn percpu_arc_tells_pointers_to_one_value() {
    let ((_one, pointer), (_other, elsewhere)) =
        (PercpuArc::new(1).expect("room"), PercpuArc::new(1).expect("room"));
    let again = pointer.try_clone_live().expect("alive");
    assert!(pointer.ptr_eq(&again) && !pointer.ptr_eq(&elsewhere));
}

#[test]
fn percpu_arc_is_not_used_after_its_drop_stress() {
    on_every_backend(|area| {
        let drops = Arc::new(AtomicU32::new(0));
        // Under Miri, each way to kill once.
        for round in 0..rounds(if cfg!(miri) { 100 } else { 500 }) {
            let options = Options::new().area(area);
            let (owner, first) = PercpuArc::with(options, Canary::new(&drops)).expect("room");
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (pointer, owner) = (first.clone(), &owner);
                    scope.spawn(move || {
                        migrate(thread + round as usize);
                        let mut mine = vec![pointer];
                        for step in 0..20 {
                            mine.push(mine[step / 2].clone());
                            mine.extend(owner.try_clone_live());
                        }
                        migrate(thread + 1);
                        mine.iter().for_each(|pointer| pointer.look());
                    });
                }
                drop(first);
                match round % 3 {
                    0 => drop(owner.kill()),
                    1 => drop(owner.kill_and_confirm(|| assert!(owner.try_clone_live().is_none()))),
                    _ => assert_eq!(PercpuOwner::kill_many([&owner]), 1),
                }
                owner.released_blocking(soon()).expect("every pointer goes");
                assert_eq!(times(&drops), round + 1);
            });
        }
    });
}

/// The last pointer may outlive the owner and the area's last other clone.
#[test]
fn percpu_arc_keeps_what_it_needs() {
    on_every_backend(|area| {
        let own = submeter_percpu::Area::with_backend(
            if area.rseq().is_some() {
                submeter_sys::probe().backend
            } else {
                submeter_sys::Backend::LockedByCpu
            },
            |_| 0,
        )
        .expect("address space");
        let (owner, pointer) =
            PercpuArc::with(Options::new().area(&own), vec![1, 2, 3]).expect("room");
        drop((owner, own));
        let other = pointer.clone();
        drop(pointer);
        assert_eq!(other.iter().sum::<i32>(), 6);
    });
}

/// Drops may nest: a value may point to itself through its last pointer, and a drop may drop
/// another value.
#[test]
fn percpu_arc_drops_may_nest() {
    on_every_backend(|area| {
        let drops = Arc::new(AtomicU32::new(0));
        let options = || Options::new().area(area);
        let (inner, pointer) = PercpuArc::with(options(), Canary::new(&drops)).expect("room");
        let (outer, last) = PercpuArc::with(options(), (pointer, inner)).expect("room");
        drop(last);
        assert!(outer.kill());
        assert_eq!(times(&drops), 1);
    });
}
