//! Every interleaving of a writer and its readers, within loom's memory model.
//!
//! Every read must be a consistent snapshot: of a value, and of times that are multiples of it.
//! Four models contain mistakes, and pass only while loom finds them.

use loom::thread;

use super::SeqLatch;
use crate::models::witness;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// A value, and the times for which it could have been counted and was: the value identifies the
/// moment.
type Moment = [u64; 3];

fn moment(n: u64) -> Moment {
    [n, 3 * n, 2 * n]
}

/// Number of writes: overtaking a reader needs two, and a third returns to the reader's copy.
const WRITES: u64 = 3;

fn store(words: &[AtomicU64], n: u64) {
    for (word, value) in words.iter().zip(moment(n)) {
        // Relaxed: as `SeqLatch::write` allows.
        word.store(value, Ordering::Relaxed);
    }
}

fn load(words: &[AtomicU64]) -> Moment {
    // Relaxed: as `SeqLatch::try_read` allows.
    std::array::from_fn(|at| words[at].load(Ordering::Relaxed))
}

fn read(latest: &SeqLatch) -> Option<Moment> {
    let mut seen = Moment::default();
    latest.try_read(|words| seen = load(words)).then_some(seen)
}

type Write = fn(&SeqLatch, u64);
type Read = fn(&SeqLatch) -> Option<Moment>;

fn write(latest: &SeqLatch, n: u64) {
    latest.write(|words| store(words, n));
}

/// Runs a reader beside a writer: its reads are whole, and never go back.
fn explore(write: Write, read: Read) {
    crate::models::explore(move || {
        let latest = SeqLatch::new(moment(0).len());
        let writer = thread::spawn({
            let latest = latest.clone();
            move || (1..=WRITES).for_each(|n| write(&latest, n))
        });
        let mut last = 0;
        for seen in (0..2).filter_map(|_| {
            let seen = read(&latest);
            witness("a reader that is overtaken", seen.is_none());
            seen
        }) {
            witness("a reader of a moment between", (1..WRITES).contains(&seen[0]));
            assert_eq!(seen, moment(seen[0]), "a mixture of moments");
            assert!(seen[0] >= last, "went back");
            last = seen[0];
        }
        writer.join().unwrap();
        assert_eq!(read(&latest), Some(moment(WRITES)), "the last is missing");
    });
}

#[test]
fn loom_latest_is_one_moment_and_never_goes_back() {
    explore(write, read);
}

/// A read shows every write of which the reader already knows.
#[test]
fn loom_latest_shows_what_a_reader_knows_of() {
    crate::models::explore_all(|| {
        let latest = SeqLatch::new(moment(0).len());
        let announced = loom::sync::Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (latest, announced) = (latest.clone(), announced.clone());
            move || {
                for n in 1..=2 {
                    write(&latest, n);
                    // Release: pairs with the Acquire below.
                    announced.store(n, Ordering::Release);
                }
            }
        });
        // Acquire: pairs with the Release above.
        let at_least = announced.load(Ordering::Acquire);
        let seen = read(&latest);
        witness("a reader that learned of one of two", at_least == 1 && seen.is_some());
        if let Some(seen) = seen {
            assert!(seen[0] >= at_least, "{seen:?} after {at_least}");
        }
        writer.join().unwrap();
    });
}

/// A reader that was stopped finds, whenever it continues, the last complete write of a writer that
/// stopped half-way.
#[test]
fn loom_latest_waits_for_no_stopped_writer() {
    crate::models::explore_apart(|| {
        let latest = SeqLatch::new(moment(0).len());
        write(&latest, 1);
        let writer = thread::spawn({
            let latest = latest.clone();
            // Like `write`, but it stops after one word of the copy: in a forked child, forever.
            move || {
                fence(Ordering::Release);
                // Relaxed: as in `store`.
                latest.copy(2)[0].store(2, Ordering::Relaxed);
            }
        });
        assert_eq!(read(&latest), Some(moment(1)), "waits for no writer");
        writer.join().unwrap();
        assert_eq!(read(&latest), Some(moment(1)), "waits for no writer");
    });
}

fn next(latest: &SeqLatch) -> u64 {
    // Relaxed: as in `SeqLatch::write`.
    latest.version().load(Ordering::Relaxed) + 1
}

#[test]
#[should_panic(expected = "a mixture of moments")]
fn loom_latest_finds_a_writer_without_its_fence() {
    let write: Write = |latest, n| {
        let version = next(latest);
        store(latest.copy(version), n);
        // Release: as in `SeqLatch::write`.
        latest.version().store(version, Ordering::Release);
    };
    explore(write, read);
}

#[test]
#[should_panic(expected = "a mixture of moments")]
fn loom_latest_finds_a_reader_without_its_fence() {
    let read: Read = |latest| {
        // Acquire: as in `SeqLatch::try_read`.
        let version = latest.version().load(Ordering::Acquire);
        let seen = load(latest.copy(version));
        // Relaxed: as in `SeqLatch::try_read`.
        (latest.version().load(Ordering::Relaxed) == version).then_some(seen)
    };
    explore(write, read);
}

#[test]
#[should_panic(expected = "a mixture of moments")]
fn loom_latest_finds_an_unpublishing_version() {
    let write: Write = |latest, n| {
        let version = next(latest);
        // Release: as in `SeqLatch::write`.
        fence(Ordering::Release);
        store(latest.copy(version), n);
        // Relaxed: the mistake.
        latest.version().store(version, Ordering::Relaxed);
    };
    explore(write, read);
}

#[test]
#[should_panic(expected = "a mixture of moments")]
fn loom_latest_finds_a_reader_that_looks_once() {
    let read: Read = |latest| {
        // Acquire: as in `SeqLatch::try_read`.
        Some(load(latest.copy(latest.version().load(Ordering::Acquire))))
    };
    explore(write, read);
}
