//! Every interleaving, within loom's memory model: `RUSTFLAGS="--cfg loom" cargo test --release`.
//!
//! Three of the models contain mistakes, and pass only while loom finds them.

use std::sync::Arc;
// Not loom's atomics: the models' own notes must add neither orderings nor states.
use std::sync::atomic::AtomicU32 as Notes;

use loom::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use loom::thread;

use super::count::{Count, DEAD, NOREF, Notice, RELEASED};
use super::{RcuArc, RcuSlot, pin};
use crate::models::{Note, explore, explore_all, witness};

/// Increments a note. Relaxed: loom runs one thread at a time.
fn note(notes: &Notes) {
    notes.fetch_add(1, Ordering::Relaxed);
}

/// Relaxed: as in `note`.
fn noted(notes: &Notes) -> u32 {
    notes.load(Ordering::Relaxed)
}

fn unexpected(notice: Notice) {
    panic!("told of misuse where there was none: {notice:?}");
}

fn put(count: &Count) -> bool {
    count.put(unexpected)
}

/// Puts like the drop of an `RcuArc`: without a guard if the reference is not the last.
fn put_as_dropped(count: &Count) -> bool {
    !count.put_one_of_many() && put(count)
}

/// Two holders put, and the one that must free sees what the other did before.
fn one_put_wins(put: fn(&Count) -> bool) {
    explore_all(move || {
        let shared = Arc::new((Count::new(2), AtomicU32::new(0), AtomicU32::new(0)));
        let wins = Arc::new(Notes::new(0));
        let other = thread::spawn({
            let (shared, wins) = (shared.clone(), wins.clone());
            move || {
                // Relaxed: only the puts may order what was written under the references.
                shared.1.store(1, Ordering::Relaxed);
                if put(&shared.0) {
                    note(&wins);
                    // Relaxed: as above.
                    assert_eq!(shared.2.load(Ordering::Relaxed), 1, "the winner sees all");
                }
            }
        });
        // Relaxed: as above.
        shared.2.store(1, Ordering::Relaxed);
        let last = put(&shared.0);
        witness("the one put last", last);
        witness("the other put last", !last);
        if last {
            note(&wins);
            // Relaxed: as above.
            assert_eq!(shared.1.load(Ordering::Relaxed), 1, "the winner sees all");
        }
        other.join().unwrap();
        assert_eq!((noted(&wins), shared.0.word()), (1, DEAD));
    });
}

#[test]
fn loom_rcuref_1_exactly_one_put_returns_true() {
    one_put_wins(put);
}

/// Exactly one put returns true, although others take no guard.
#[test]
fn loom_rcuref_1_one_put_is_last_without_guards() {
    one_put_wins(put_as_dropped);
}

#[test]
fn loom_rcuref_2_no_get_succeeds_after_dead() {
    explore_all(|| {
        let count = Arc::new(Count::new(1));
        let other = thread::spawn({
            let count = count.clone();
            move || {
                let dead = count.is_dead();
                let got = count.get(unexpected);
                witness("a get that succeeds", got);
                witness("a get that knows of the death", dead);
                assert!(!(dead && got), "a get succeeded on the dead");
                got && count.put(unexpected)
            }
        });
        let won = count.put(unexpected);
        if won {
            assert!(!count.get(unexpected), "a get succeeded after the last put");
        }
        assert!(won ^ other.join().unwrap());
        assert!(count.is_dead() && !count.get_ordered(unexpected));
    });
}

/// Runs one put against two threads that get and put, and returns how many puts won.
fn revive(count: &Arc<Count>, lookups: usize, put: fn(&Count) -> bool) -> u32 {
    let others: Vec<_> = (0..lookups)
        .map(|lookup| {
            let count = count.clone();
            let get = if lookup % 2 == 0 { Count::get } else { Count::get_ordered };
            thread::spawn(move || get(&count, unexpected) && put(&count))
        })
        .collect();
    let won = put(count);
    witness("a put that is revived", !won);
    others.into_iter().map(|other| u32::from(other.join().unwrap())).sum::<u32>() + u32::from(won)
}

#[test]
fn loom_rcuref_3_revived_dies_by_the_later_put() {
    explore(|| {
        let count = Arc::new(Count::new(1));
        assert_eq!(revive(&count, 2, put), 1);
        assert_eq!(count.word(), DEAD, "failed gets take back what they added");
    });
}

/// A revived count dies once, although others take no guard.
#[test]
fn loom_rcuref_3_dies_once_without_guards() {
    explore(|| {
        let count = Arc::new(Count::new(2));
        let before = put_as_dropped(&count);
        assert_eq!(u32::from(before) + revive(&count, 2, put_as_dropped), 1);
        assert_eq!(count.word(), DEAD);
    });
}

/// The slow path uses the result of its decrement.
#[test]
fn loom_rcuref_4_slow_path_uses_its_decrement() {
    explore_all(|| {
        // `unexpected` is the check: no thread puts too often here, however the two puts meet.
        let count = Arc::new(Count::new(1));
        assert_eq!(revive(&count, 1, put), 1);
    });
}

/// The slow path as it was until January 2025: it rereads the word to find out what its put did.
fn put_reading_again(word: &AtomicI32) -> bool {
    // Release: as in `Count::decrement`.
    if word.fetch_add(-1, Ordering::Release).wrapping_add(-1) >= 0 {
        return false;
    }
    // Relaxed: the mistake, whatever the ordering.
    let now = word.load(Ordering::Relaxed).cast_unsigned();
    if now == NOREF {
        let (noref, dead) = (NOREF.cast_signed(), DEAD.cast_signed());
        // Acquire, Relaxed: as in `Count::put_slow`.
        return word.compare_exchange(noref, dead, Ordering::Acquire, Ordering::Relaxed).is_ok();
    }
    assert!(now < RELEASED, "told of misuse where there was none");
    false
}

#[test]
#[should_panic(expected = "told of misuse where there was none")]
fn loom_rcuref_4_finds_a_slow_path_reading_again() {
    explore_all(|| {
        let word = Arc::new(AtomicI32::new(0));
        let other = thread::spawn({
            let word = word.clone();
            move || {
                // Relaxed: as in `Count::get`.
                if word.fetch_add(1, Ordering::Relaxed).wrapping_add(1) >= 0 {
                    put_reading_again(&word);
                }
            }
        });
        put_reading_again(&word);
        other.join().unwrap();
    });
}

/// A put marks the count dead late, while a lookup revives the object, ends it, and makes the next
/// one in its place.
fn a_late_mark_of_death(guarded: bool) {
    explore(move || {
        let word = Arc::new(AtomicI32::new(0));
        let lookup = thread::spawn({
            let word = word.clone();
            move || {
                let guard = guarded.then(pin);
                // Relaxed: as in `Count::get`.
                let got = word.fetch_add(1, Ordering::Relaxed).wrapping_add(1) >= 0;
                let last = got && put_as_it_is(&word);
                witness("a lookup that revives and ends it", last);
                if last {
                    recycle(word, guard.as_ref());
                }
            }
        });
        let guard = guarded.then(pin);
        put_as_it_is(&word);
        drop(guard);
        lookup.join().unwrap();
    });
}

/// Checks the result of its own decrement, then marks.
fn put_as_it_is(word: &AtomicI32) -> bool {
    // Release: as in `Count::decrement`.
    if word.fetch_add(-1, Ordering::Release).wrapping_add(-1) != NOREF.cast_signed() {
        return false;
    }
    let (noref, dead) = (NOREF.cast_signed(), DEAD.cast_signed());
    // Acquire, Relaxed: as in `Count::put_slow`.
    word.compare_exchange(noref, dead, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Makes the next object, at once or after a grace period, and puts its only reference.
fn recycle(word: Arc<AtomicI32>, guard: Option<&super::Guard>) {
    let next = move || {
        // Release: as when publishing an object.
        word.store(0, Ordering::Release);
        assert!(put_as_it_is(&word), "a late mark ended the next object");
    };
    match guard {
        Some(guard) => guard.defer(next),
        None => next(),
    }
}

/// A guard keeps a late mark of death away from recycled memory.
#[test]
fn loom_rcuref_a_guard_defeats_a_late_mark() {
    a_late_mark_of_death(true);
}

/// The mistake: no grace period between the end of an object and the next one in its place.
#[test]
#[should_panic(expected = "a late mark ended the next object")]
fn loom_rcuref_finds_a_mark_on_recycled_memory() {
    a_late_mark_of_death(false);
}

#[test]
fn loom_rcuref_excess_puts_are_told_of_once_each() {
    explore(|| {
        let (count, excess) = (Arc::new(Count::at(DEAD)), Arc::new(Notes::new(0)));
        let counting = |excess: &Arc<Notes>| {
            let excess = excess.clone();
            move |notice| match notice {
                // Relaxed: as in `note`.
                Notice::ExcessPuts(more) => drop(excess.fetch_add(more, Ordering::Relaxed)),
                Notice::Saturated => unexpected(notice),
            }
        };
        let putters: Vec<_> = (0..2)
            .map(|_| {
                let (count, notify) = (count.clone(), counting(&excess));
                thread::spawn(move || assert!(!count.put(notify), "a dead count died again"))
            })
            .collect();
        assert!(!count.get(counting(&excess)));
        witness("a get between the puts", noted(&excess) == 1);
        putters.into_iter().for_each(|putter| putter.join().unwrap());
        assert_eq!((noted(&excess), count.word()), (2, DEAD));
    });
}

#[test]
fn loom_rcuref_6_saturation_told_once_and_stays() {
    explore_all(|| {
        let (count, told) = (Arc::new(Count::new(1 << 31)), Arc::new(Notes::new(0)));
        let other = thread::spawn({
            let (count, told) = (count.clone(), told.clone());
            move || assert!(count.get(|_| note(&told)), "a get fails on the dead only")
        });
        let own = Notes::new(0);
        assert!(count.get(|_| note(&own)));
        other.join().unwrap();
        witness("the one is told", noted(&own) == 1);
        witness("the other is told", noted(&told) == 1);
        assert_eq!(noted(&own) + noted(&told), 1);
        assert!(!count.put(unexpected) && !count.is_dead());
    });
}

/// A reader checks the pointer again, and a remover reads the count: tests whether both may miss.
fn both_may_miss(get: fn(&Count) -> bool) {
    explore_all(move || {
        let mut object = 0_u8;
        let shared = Arc::new((Count::new(1), AtomicPtr::new(&raw mut object), AtomicU32::new(0)));
        let reader = thread::spawn({
            let shared = shared.clone();
            move || {
                assert!(get(&shared.0));
                // SeqCst: the second check, as in `Cell::load`.
                !shared.1.load(Ordering::SeqCst).is_null()
            }
        });
        // SeqCst: unlinks, as in `Cell::swap`.
        shared.1.swap(std::ptr::null_mut(), Ordering::SeqCst);
        let alone = shared.0.read() == 1;
        let kept = reader.join().unwrap();
        witness("a remover that finds itself alone", alone);
        witness("a reader that keeps it", kept);
        assert!(!(alone && kept), "each missed the other");
    });
}

/// A get with a second check meets the remover.
#[test]
fn loom_rcuref_ordered_get_meets_the_remover() {
    both_may_miss(|count| count.get_ordered(unexpected));
}

/// Finds that a relaxed get misses the remover.
#[test]
#[should_panic(expected = "each missed the other")]
fn loom_rcuref_finds_a_relaxed_get() {
    both_may_miss(|count| count.get(unexpected));
}

/// Detects, by loom's own rules, a drop that is concurrent with a read.
struct Canary(AtomicU32);

impl Canary {
    fn new() -> Canary {
        Canary(AtomicU32::new(7))
    }

    fn look(&self) {
        // Relaxed: adds no ordering that could hide a missing one.
        assert_eq!(self.0.load(Ordering::Relaxed), 7, "looked at after its drop");
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.with_mut(|value| *value = 0);
    }
}

#[test]
fn loom_rcuarc_the_last_drop_follows_every_look() {
    explore_all(|| {
        let arc = RcuArc::new(Canary::new());
        let looked = Note::default();
        let other = thread::spawn({
            let (arc, looked) = (arc.clone(), looked.clone());
            move || {
                arc.look();
                looked.take();
            }
        });
        arc.look();
        witness("a drop before the other has looked", !looked.is_taken());
        drop(arc);
        witness("a drop after it", looked.is_taken());
        other.join().unwrap();
    });
}

#[test]
fn loom_rcuslot_reads_survive_a_replacement() {
    explore(|| {
        let slot = Arc::new(RcuSlot::new(RcuArc::new(Canary::new())));
        let replaced = Note::default();
        let reader = thread::spawn({
            let (slot, replaced) = (slot.clone(), replaced.clone());
            move || {
                let guard = pin();
                let seen = slot.peek(&guard).expect("never empty");
                let before = replaced.is_taken();
                let kept = slot.load(&guard).expect("never empty");
                seen.look();
                drop(guard);
                kept.look();
                witness("a reader of what was replaced", !before && replaced.is_taken());
            }
        });
        slot.replace(RcuArc::new(Canary::new())).expect("never empty").look();
        replaced.take();
        reader.join().unwrap();
    });
}

#[test]
fn loom_rcuslot_taken_and_alone_has_no_loader() {
    explore(|| {
        let slot = Arc::new(RcuSlot::new(RcuArc::new(AtomicU32::new(0))));
        let reader = thread::spawn({
            let slot = slot.clone();
            move || {
                let guard = pin();
                let kept = slot.load(&guard);
                // Relaxed: only the taker's conclusion may order this.
                kept.inspect(|value| assert_eq!(value.load(Ordering::Relaxed), 0, "in use"));
            }
        });
        let taken = slot.take().expect("filled once");
        let alone = RcuArc::references(&taken) == 1;
        witness("a taker that is alone", alone);
        witness("one that is not", !alone);
        if alone {
            // Relaxed: as above.
            taken.store(1, Ordering::Relaxed);
        }
        reader.join().unwrap();
    });
}

/// Counts itself where no model sees it, so that both a leak and a double free show.
struct Alive(Arc<Notes>);

impl Alive {
    fn new(alive: &Arc<Notes>) -> RcuArc<Alive> {
        note(alive);
        RcuArc::new(Alive(alive.clone()))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // Relaxed: as in `note`.
        assert_ne!(self.0.fetch_sub(1, Ordering::Relaxed), 0, "freed twice");
    }
}

#[test]
fn loom_rcuslot_frees_each_version_once() {
    explore(|| {
        let alive = Arc::new(Notes::new(0));
        let slot = Arc::new(RcuSlot::new(Alive::new(&alive)));
        let replacer = thread::spawn({
            let (slot, alive) = (slot.clone(), alive.clone());
            move || drop(slot.replace(Alive::new(&alive)))
        });
        let reader = thread::spawn({
            let slot = slot.clone();
            move || {
                let guard = pin();
                let seen = slot.peek(&guard);
                witness("a reader before the taker", seen.is_some());
                witness("a reader after the taker", seen.is_none());
                drop(seen.and_then(|seen| seen.try_get()));
                drop(slot.load(&guard).map(|kept| (kept.clone(), kept)));
            }
        });
        drop(slot.take());
        witness("a version that came before it was taken", noted(&alive) == 0);
        witness("one that comes after", noted(&alive) == 1);
        replacer.join().unwrap();
        reader.join().unwrap();
        drop(slot);
        assert_eq!(noted(&alive), 0, "leaked");
    });
}
