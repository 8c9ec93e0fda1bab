//! Larger mixes than loom can exhaust, at random: `RUSTFLAGS="--cfg shuttle" cargo test --release`.

use std::sync::Arc;
// Not shuttle's: what the models note for themselves must add no scheduling points.
use std::sync::atomic::{AtomicI32 as Notes, Ordering};

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::count::{Count, DEAD, Notice};
use super::{RcuArc, RcuSlot, pin};

const SCHEDULES: usize = 5_000;
const THREADS: usize = 5;

/// Explores at random, and with priorities, which reach the rare orders of few preemptions.
fn explore(model: fn()) {
    shuttle::check_random(model, SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 4);
}

fn unexpected(notice: Notice) {
    panic!("told of misuse where there was none: {notice:?}");
}

#[test]
fn shuttle_rcuref_one_of_many_puts_wins() {
    explore(|| {
        let (count, wins) = (Arc::new(Count::new(1)), Arc::new(Notes::new(0)));
        let others: Vec<_> = (0..THREADS)
            .map(|_| {
                let (count, wins) = (count.clone(), wins.clone());
                thread::spawn(move || {
                    for _ in 0..thread_rng().gen_range(1..4) {
                        let got = match thread_rng().gen_range(0..2) {
                            0 => count.get(unexpected),
                            _ => count.get_ordered(unexpected),
                        };
                        if got && count.put(unexpected) {
                            // Relaxed: read after the joins.
                            wins.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        let won = i32::from(count.put(unexpected));
        others.into_iter().for_each(|other| other.join().unwrap());
        // Relaxed: after the joins.
        assert_eq!((won + wins.load(Ordering::Relaxed), count.word()), (1, DEAD));
    });
}

/// Counts itself, so that a leak and a second free both show.
struct Alive(Arc<Notes>);

impl Alive {
    fn new(alive: &Arc<Notes>) -> Alive {
        // Relaxed: a statistic.
        alive.fetch_add(1, Ordering::Relaxed);
        Alive(alive.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        // Relaxed: a statistic.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn shuttle_rcuslot_frees_each_version_once() {
    explore(|| {
        let alive = Arc::new(Notes::new(0));
        let slot = Arc::new(RcuSlot::new(RcuArc::new(Alive::new(&alive))));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (slot, alive) = (slot.clone(), alive.clone());
                thread::spawn(move || {
                    for _ in 0..3 {
                        let guard = pin();
                        match thread_rng().gen_range(0..4) {
                            0 => drop(slot.take()),
                            1 => drop(slot.replace(RcuArc::new(Alive::new(&alive)))),
                            2 => drop(slot.peek(&guard).and_then(|seen| seen.try_get())),
                            _ => drop(slot.load(&guard).map(|kept| (kept.clone(), kept))),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(slot);
        // Relaxed: after the joins.
        assert_eq!(alive.load(Ordering::Relaxed), 0, "leaked, or freed twice");
    });
}
