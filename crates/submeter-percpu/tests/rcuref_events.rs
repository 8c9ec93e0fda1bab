//! The hook is the process's: a process of its own for it.
#![cfg(not(any(loom, shuttle)))]

use std::sync::Mutex;

use submeter_percpu::rcuref::{Event, EventKind, RcuRef, pin, set_event_hook};

static SEEN: Mutex<Vec<Event>> = Mutex::new(Vec::new());

#[test]
fn hook_sees_every_contained_misuse_with_its_object() {
    set_event_hook(|event| SEEN.lock().unwrap().push(*event)).expect("the first");
    let refused = set_event_hook(|_| ()).expect_err("the second");
    assert!(refused.to_string().contains("once"), "{refused}");

    let guard = pin();
    let dead = RcuRef::new();
    assert!(dead.put(&guard) && !dead.put(&guard) && !dead.put(&guard));
    let pinned = RcuRef::with_refs(1 << 31);
    assert!(pinned.get() && pinned.get() && !pinned.put(&guard));

    let seen = SEEN.lock().unwrap().clone();
    let kinds: Vec<EventKind> = seen.iter().map(Event::kind).collect();
    assert_eq!(kinds, [EventKind::ExcessPut, EventKind::ExcessPut, EventKind::Saturated]);
    let addresses: Vec<usize> = seen.iter().map(Event::address).collect();
    let at = |count: &RcuRef| std::ptr::from_ref(count).addr();
    assert_eq!(addresses, [at(&dead), at(&dead), at(&pinned)]);
    assert!(seen.iter().all(|event| event.name() == "RcuRef" && event.times() == 1));
    assert!(seen[0].to_string().contains("look for a put without its get"), "{}", seen[0]);
    assert!(seen[2].to_string().contains("never freed"), "{}", seen[2]);
}
