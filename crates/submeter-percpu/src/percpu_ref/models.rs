//! The subject of the model checkers: the real count, switch, kills and rows, over two
//! implementations of words.
//!
//! A sequence is a critical section of its CPU: it happens whole or not at all. Its loads and its
//! store are plain. So are the loads of a fold, which no lock orders: only the barrier does, by
//! waiting for the section that each CPU is in. The locked rows are the real ones. Either way a get
//! counts on the first CPU and a put on the second, the worst case of migration.

use std::cell::Cell;
use std::sync::Arc;
// Not the checkers' atomics: the models' own notes must add neither orderings nor states.
use std::sync::atomic::{AtomicI32 as Notes, Ordering::Relaxed as Noted};

use super::count::{Put, Revival};
use super::kill::{Counted, kill_and_confirm, kill_many};
use super::rows;
use super::switch::{After, Slots, Stopping, Switch};
use crate::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use loom::sync::Mutex;
use loom::thread::{self, JoinHandle};

/// The mistake that slots make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mistake {
    #[default]
    Nothing,
    /// Nothing waits for adds under way; without sequences, rows are summed and left alive.
    NoBarrier,
    /// The barrier is issued before the gate closes.
    BarrierTooEarly,
    /// The gate is tested before the section begins.
    TestOutside,
    /// An add to a row is not ordered after the start of the life.
    AddWithoutAcquire,
}

loom::thread_local! {
    /// Whether the calling thread's last add was taken by the slots.
    static PER_CPU: Cell<bool> = Cell::new(false);
}

/// Whether the calling thread's last get or put was counted per CPU.
pub(super) fn was_per_cpu() -> bool {
    PER_CPU.with(Cell::get)
}

fn noted(taken: bool) -> bool {
    PER_CPU.with(|last| last.set(taken));
    taken
}

/// An implementation of words, correct or with a mistake.
pub(super) trait Modelled: Slots + Default + Send + Sync + 'static {
    fn with(mistake: Mistake) -> Self;
    /// Makes the words of another count on the same machine.
    fn beside(&self) -> Self;
}

/// The sections of a machine's CPUs: each runs one sequence at a time.
#[derive(Default)]
struct Cpus([Mutex<()>; 2]);

impl Cpus {
    /// Does what `membarrier` does.
    fn wait(&self) {
        for cpu in &self.0 {
            drop(cpu.lock().expect("nobody panics inside"));
        }
    }
}

/// Words written by sequences.
pub(super) struct Sequences {
    mistake: Mistake,
    cpus: Arc<Cpus>,
    gate: AtomicU32,
    words: [AtomicI64; 2],
}

impl Sequences {
    fn new(mistake: Mistake, cpus: Arc<Cpus>) -> Sequences {
        let words = [AtomicI64::new(0), AtomicI64::new(0)];
        Sequences { mistake, cpus, gate: AtomicU32::new(0), words }
    }

    fn sum(&self) -> i64 {
        // Acquire: as in the real one.
        self.words.iter().map(|word| word.load(Ordering::Acquire)).sum()
    }
}

impl Default for Sequences {
    fn default() -> Sequences {
        Sequences::with(Mistake::Nothing)
    }
}

impl Modelled for Sequences {
    fn with(mistake: Mistake) -> Sequences {
        Sequences::new(mistake, Arc::default())
    }

    fn beside(&self) -> Sequences {
        Sequences::new(self.mistake, Arc::clone(&self.cpus))
    }
}

impl Slots for Sequences {
    fn add_one<const N: i32>(&self) -> bool {
        self.add(i64::from(N))
    }

    fn add(&self, n: i64) -> bool {
        let cpu = usize::from(n < 0);
        let outside = (self.mistake == Mistake::TestOutside).then(|| self.is_open());
        let _section = self.cpus.0[cpu].lock().expect("nobody panics inside");
        let open = outside.unwrap_or_else(|| self.is_open());
        if open {
            // Relaxed, both: the sequence's plain load and plain store.
            let before = self.words[cpu].load(Ordering::Relaxed);
            self.words[cpu].store(before + n, Ordering::Relaxed);
        }
        noted(open)
    }

    fn add_slow(&self, _: i64) -> bool {
        false
    }

    fn is_open(&self) -> bool {
        // Relaxed: the sequence's plain load; elsewhere as in the real one.
        self.gate.load(Ordering::Relaxed) != 0
    }

    fn prepare(&self) -> i64 {
        self.sum()
    }

    fn open(&self) {
        // Release: as in the real one.
        self.gate.store(2, Ordering::Release);
    }

    fn close(&self) {
        if self.mistake == Mistake::BarrierTooEarly {
            self.cpus.wait();
        }
        // Relaxed: as in the real one.
        self.gate.store(0, Ordering::Relaxed);
    }

    fn needs_barrier(&self) -> bool {
        true
    }

    fn barrier(&self) {
        if matches!(self.mistake, Mistake::Nothing | Mistake::TestOutside) {
            self.cpus.wait();
        }
    }

    fn collect(&self) -> i64 {
        self.sum()
    }
}

/// Words written by locked adds: the emulated backend.
pub(super) struct Locked {
    mistake: Mistake,
    rows: [(AtomicI64, AtomicI64); 2],
    live: AtomicU32,
}

impl Default for Locked {
    fn default() -> Locked {
        Locked::with(Mistake::Nothing)
    }
}

impl Modelled for Locked {
    fn with(mistake: Mistake) -> Locked {
        let row = || (AtomicI64::new(0), AtomicI64::new(0));
        Locked { mistake, rows: [row(), row()], live: AtomicU32::new(0) }
    }

    fn beside(&self) -> Locked {
        Locked::with(self.mistake)
    }
}

impl Slots for Locked {
    fn add_one<const N: i32>(&self) -> bool {
        false
    }

    fn add(&self, _: i64) -> bool {
        false
    }

    fn add_slow(&self, n: i64) -> bool {
        let row = &self.rows[usize::from(n < 0)].0;
        // Relaxed: a hint, as in the real one.
        if self.live.load(Ordering::Relaxed) == 0 {
            return noted(false);
        }
        noted(match self.mistake {
            Mistake::AddWithoutAcquire => row.fetch_add(n, Ordering::Release) + n >= 0,
            _ => rows::add(row, n),
        })
    }

    fn is_open(&self) -> bool {
        // Relaxed: as in the real one.
        self.live.load(Ordering::Relaxed) != 0
    }

    fn prepare(&self) -> i64 {
        self.rows.iter().for_each(|(row, collected)| rows::forget(row, collected));
        0
    }

    fn open(&self) {
        self.rows.iter().for_each(|(row, _)| rows::live(row));
        // Relaxed: as in the real one.
        self.live.store(1, Ordering::Relaxed);
    }

    fn close(&self) {
        // Relaxed: as in the real one.
        self.live.store(0, Ordering::Relaxed);
    }

    fn needs_barrier(&self) -> bool {
        false
    }

    fn barrier(&self) {}

    fn collect(&self) -> i64 {
        let each = self.rows.iter().map(|(row, collected)| {
            if self.mistake == Mistake::NoBarrier {
                // Acquire: as in the exchange of `die`, which this leaves out.
                return row.load(Ordering::Acquire) - (1 << 62);
            }
            rows::die(row, collected);
            rows::collected(collected)
        });
        each.sum()
    }
}

/// A count under a checker, with outside knowledge about it.
pub(super) struct Model<S> {
    pub(super) switch: Switch<S>,
    /// The number of references held, including the initial one. Lowered before a put.
    held: Notes,
    releases: Notes,
    /// Written, without any ordering of its own, by the thread that then puts.
    written: [AtomicU32; 4],
    /// The number of these writes that the release must see.
    writers: Notes,
}

impl<S: Modelled> Model<S> {
    pub(super) fn new() -> Arc<Model<S>> {
        Model::over(S::default())
    }

    pub(super) fn over(slots: S) -> Arc<Model<S>> {
        Arc::new(Model {
            switch: Switch::new(slots, false, false),
            held: Notes::new(1),
            releases: Notes::new(0),
            written: std::array::from_fn(|_| AtomicU32::new(0)),
            writers: Notes::new(0),
        })
    }

    /// Calls `act` on a new thread.
    pub(super) fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Model<S>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let model = Arc::clone(self);
        thread::spawn(move || act(&model))
    }

    pub(super) fn get(&self) {
        assert!(self.switch.get_one(), "told of misuse where there was none");
        self.held.fetch_add(1, Noted);
    }

    pub(super) fn try_get(&self, live: bool) -> bool {
        let took = self.switch.try_get_one(live);
        if took {
            assert_eq!(self.releases(), 0, "taken after the release");
            self.held.fetch_add(1, Noted);
        }
        took
    }

    pub(super) fn put(&self) {
        self.held.fetch_sub(1, Noted);
        self.act(After::from(self.switch.put_one()));
    }

    /// Writes something that the release must see, then puts.
    pub(super) fn write_and_put(&self, place: usize) {
        self.writers.fetch_add(1, Noted);
        // Relaxed: only the puts may order it.
        self.written[place].store(1, Ordering::Relaxed);
        self.put();
    }

    pub(super) fn begin_kill(&self) -> (After, Option<Stopping>) {
        self.held.fetch_sub(1, Noted);
        self.switch.begin_kill(false).expect("killed once")
    }

    pub(super) fn finish(&self, (after, stopping): (After, Option<Stopping>)) {
        self.act(after);
        if let Some(stopping) = stopping {
            self.switch.slots.barrier();
            self.act(self.switch.finish(stopping));
        }
    }

    pub(super) fn kill(&self) {
        self.held.fetch_sub(1, Noted);
        assert_eq!(kill_many([self]), 1, "killed once");
    }

    /// Kills both, in this order.
    pub(super) fn kill_both(&self, other: &Model<S>) {
        self.held.fetch_sub(1, Noted);
        other.held.fetch_sub(1, Noted);
        assert_eq!(kill_many([self, other]), 2, "killed once");
    }

    pub(super) fn kill_and_confirm(&self, confirm: impl FnOnce()) {
        let confirmed = || {
            assert_eq!(self.releases(), 0, "released before the confirmation");
            confirm();
            self.held.fetch_sub(1, Noted);
        };
        assert!(kill_and_confirm(self, confirmed), "killed once");
    }

    /// Undoes the kill. Returns whether it did.
    pub(super) fn resurrect(&self) -> bool {
        let (revival, after) = self.switch.resurrect();
        assert_ne!(revival, Revival::NotDead, "killed before");
        let done = revival == Revival::Done;
        self.held.fetch_add(i32::from(done), Noted);
        self.act(after);
        done
    }

    /// Starts a new life after the release.
    pub(super) fn reinit(&self) {
        let restart = || self.releases.swap(0, Noted) == 1;
        let (done, after) = self.switch.reinit(restart);
        assert!(done && after == After::default());
        self.held.fetch_add(1, Noted);
    }

    pub(super) fn to_atomic(&self) {
        self.act(self.switch.to_atomic());
    }

    pub(super) fn to_percpu(&self) {
        self.act(self.switch.to_percpu());
    }

    pub(super) fn act(&self, after: After) {
        assert!(!after.below, "told of misuse where there was none");
        if after.last {
            assert_eq!(self.held.load(Noted), 0, "released while held");
            assert_eq!(self.releases.fetch_add(1, Noted), 0, "released twice");
            // Relaxed: as in `write_and_put`.
            let seen = self.written.iter().filter(|word| word.load(Ordering::Relaxed) == 1).count();
            assert_eq!(
                seen,
                self.writers.load(Noted) as usize,
                "a write before a put is not visible"
            );
            // This check is last: its load is Acquire, and would hide an ordering that the put
            // lacks.
            assert_eq!(self.switch.count.exact(), Some(0));
        }
    }

    /// Checks the count. It must be exact, and no thread may be changing it.
    pub(super) fn must_be_exact(&self, what: &str) {
        let (counted, held) = (self.switch.count.exact(), self.held.load(Noted));
        assert_eq!(counted, Some(held.into()), "{what}: a get was lost");
    }

    /// Checks that the count is alive. A reference must be held, and no thread may be killing.
    pub(super) fn must_be_alive(&self) {
        let count = self.switch.count_since_opening();
        assert!(!count.is_dead() && count.exact() != Some(0), "told of another life");
    }

    /// Ends a life in which only the initial reference is left.
    pub(super) fn end(&self) {
        assert_eq!(self.releases(), 0, "released while alive");
        self.kill();
        self.must_be_released();
    }

    pub(super) fn releases(&self) -> i32 {
        self.releases.load(Noted)
    }

    /// Checks for one release, once everything has been put and joined.
    pub(super) fn must_be_released(&self) {
        assert_eq!(self.releases(), 1, "never released");
        assert_eq!(self.switch.put_one(), Put::Below, "zero is exact");
    }
}

impl<S: Modelled> Counted for &Model<S> {
    type Slots = S;

    fn switch(&self) -> &Switch<S> {
        &self.switch
    }

    fn second_kill(&self) {
        panic!("killed twice");
    }

    fn act(&self, after: After) {
        Model::act(self, after);
    }
}
