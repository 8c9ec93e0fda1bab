//! The guarantees of a lookup while owners come and go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::percpu_ref::{Options, OwnerMap, PercpuArc, PercpuOwner};
use crate::rcuref::pin;
use crate::stop::StopOnDrop;
use crate::witness::Witness;

/// Long enough for any machine: only a deadlock takes this long.
const PATIENCE: Duration = Duration::from_secs(120);

fn owner<T>(name: &str, value: T) -> PercpuOwner<T> {
    PercpuArc::with(Options::new().name(name.to_owned()), value).expect("room").0
}

fn get<T: Send + Sync>(map: &OwnerMap<T>, name: &str) -> Option<PercpuArc<T>> {
    map.get(1, |found| found == name, &pin())
}

fn insert<T: Send + Sync>(map: &OwnerMap<T>, name: &str, value: T) -> Option<PercpuOwner<T>> {
    map.write().insert(1, owner(name, value), |found| found == name)
}

fn remove<T: Send + Sync>(map: &OwnerMap<T>, name: &str) -> Option<PercpuOwner<T>> {
    map.write().remove(1, |found| found == name)
}

#[test]
fn names_tell_owners_of_one_hash_apart() {
    let map = OwnerMap::default();
    assert!(insert(&map, "a", 1).is_none() && insert(&map, "b", 2).is_none());
    assert_eq!((get(&map, "a").as_deref(), get(&map, "b").as_deref()), (Some(&1), Some(&2)));
    assert!(get(&map, "c").is_none());
    let replaced = insert(&map, "a", 3).expect("there was one");
    assert_eq!(replaced.try_clone().as_deref(), Some(&1), "not killed by its replacement");
    assert_eq!(get(&map, "a").as_deref(), Some(&3));
    assert_eq!(map.read().clone_live().len(), 2);
    assert_eq!((map.len(&pin()), format!("{map:?}").as_str()), (2, "OwnerMap { len: 2, .. }"));
    let mut writing = map.write();
    assert_eq!((writing.take().len(), writing.len()), (2, 0));
    drop(writing);
    assert!(get(&map, "a").is_none());
}

/// A writer finds and counts what it puts in and takes out, and readers find it as well.
#[test]
fn a_writer_finds_and_counts_what_it_puts_in() {
    let map = OwnerMap::default();
    let mut writing = map.write();
    assert_eq!((writing.len(), writing.is_empty()), (0, true));
    for (number, name) in [(1, "a"), (2, "b")] {
        assert!(writing.insert(1, owner(name, number), |found| found == name).is_none());
        assert_eq!(writing.get(1, |found| found == name).as_deref(), Some(&number));
        assert_eq!((writing.len(), writing.is_empty()), (number, false));
    }
    assert!(writing.remove(1, |found| found == "a").is_some());
    assert!(writing.get(1, |found| found == "a").is_none());
    assert_eq!((writing.len(), writing.take().len(), writing.is_empty()), (1, 1, true));
}

/// A map is unused before the first owner is inserted and after the last is taken out.
#[test]
fn a_map_without_owners_is_unused() {
    let map = OwnerMap::default();
    assert!(map.is_unused());
    insert(&map, "a", 1);
    assert!(!map.is_unused());
    remove(&map, "a");
    insert(&map, "b", 2);
    assert!(!map.is_unused());
    assert_eq!(map.write().take().len(), 1);
    assert!(map.is_unused());
}

#[test]
fn a_lookup_waits_for_nobody_who_changes_the_map() {
    let map = OwnerMap::default();
    assert!(insert(&map, "a", 1).is_none());
    let writing = map.write();
    std::thread::scope(|scope| {
        let (found, finds) = mpsc::channel();
        scope.spawn(|| {
            let found = found;
            found.send(get(&map, "a").as_deref().copied()).expect("the test waits");
        });
        let answer = finds.recv_timeout(PATIENCE);
        drop(writing);
        assert_eq!(answer, Ok(Some(1)));
    });
}

/// A killed owner is not found although it is in the map.
#[test]
fn a_killed_owner_is_not_found() {
    let map = OwnerMap::default();
    let one = owner("a", 1);
    // Otherwise the count is at zero, where nothing could take a reference, dead or not.
    let held = one.try_clone_live().expect("alive");
    one.kill();
    assert!(map.write().insert(1, one, |found| found == "a").is_none());
    assert!(get(&map, "a").is_none());
    assert!(map.read().clone_live().is_empty());
    assert_eq!(*held, 1, "still there");
}

/// Counts its drops.
struct Value<'a>(&'a AtomicU64);

impl Drop for Value<'_> {
    fn drop(&mut self) {
        // Relaxed: read after joins, or by the thread that wrote.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A value ends with its last pointer, not with its memory.
#[test]
fn a_value_ends_with_its_last_pointer() {
    static DROPS: AtomicU64 = AtomicU64::new(0);
    // Relaxed: one thread.
    let drops = || DROPS.load(Ordering::Relaxed);
    let map = OwnerMap::default();
    insert(&map, "a", Value(&DROPS));
    let held = get(&map, "a").expect("inserted");
    let guard = pin();
    let one = remove(&map, "a").expect("inserted");
    assert!(one.kill());
    assert_eq!(drops(), 0);
    drop(held);
    assert_eq!(drops(), 1, "whatever guards there are");
    drop((one, guard));
    insert(&map, "b", Value(&DROPS));
    drop(map);
    assert_eq!(drops(), 2, "what a map holds is killed with it");
}

/// A name that comes and goes is found alive or not at all.
///
/// Readers look up a name that is killed and created again all the time, and use what they find:
/// Miri and ThreadSanitizer tell whether it was in memory.
#[test]
fn a_name_is_found_alive_or_not_at_all_stress() {
    static DROPS: AtomicU64 = AtomicU64::new(0);
    static MADE: AtomicU64 = AtomicU64::new(0);
    static KILLED: AtomicU64 = AtomicU64::new(0);
    struct Numbered(u64);
    impl Drop for Numbered {
        fn drop(&mut self) {
            // Relaxed: read after joins.
            DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
    let map: OwnerMap<Numbered> = OwnerMap::default();
    let stop = AtomicBool::new(false);
    let (rounds, witness) = (if cfg!(miri) { 8 } else { 5_000 }, Witness::new());
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed: a flag.
                while !stop.load(Ordering::Relaxed) {
                    // SeqCst: the kills that had returned when the lookup began.
                    let killed = KILLED.load(Ordering::SeqCst);
                    if let Some(found) = get(&map, "name") {
                        witness.met(true);
                        assert!(found.0 > killed, "{} was killed before {killed}", found.0);
                        // SeqCst: as above.
                        assert!(found.0 <= MADE.load(Ordering::SeqCst));
                    }
                }
            });
        }
        for number in (1..).take_while(|&n| witness.goes_on(n - 1, rounds)) {
            // SeqCst: as above.
            MADE.store(number, Ordering::SeqCst);
            assert!(insert(&map, "name", Numbered(number)).is_none());
            let one = remove(&map, "name").expect("inserted");
            assert!(one.kill());
            // SeqCst: as above.
            KILLED.store(number, Ordering::SeqCst);
        }
    });
    witness.assert_met();
    // Relaxed: the readers were joined.
    assert_eq!(DROPS.load(Ordering::Relaxed), MADE.load(Ordering::Relaxed));
}
