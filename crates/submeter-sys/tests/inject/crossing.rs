//! Crosses each sequence, at each point, with each disturbance.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use submeter_sys::inject::{self, Point};
use submeter_sys::{CpuRows, Exit, Rseq, barrier, cpu};

use crate::rows::Rows;
use crate::stop::StopOnDrop;

/// A delay of about 100 µs: long enough for another thread's system call, short enough to repeat.
const ROUNDS: u32 = 400_000;
/// Number of aborts that each combination must see.
const ABORTS_WANTED: u64 = 3;
/// After this time without enough aborts, a combination has failed.
const PATIENCE: Duration = Duration::from_secs(120);
const WORD: usize = 0;
/// The line of that word, whose mark the indexed sequence tests.
const WORD_LINE: usize = WORD / CpuRows::LINE_WORDS;
const MARKS: usize = 16;
/// The first of the packed words, which are adjacent in the first row.
const PACKED: usize = 24;
const IN_HANDLER: i64 = 1000;
/// The mask of a batch that no positive sum exceeds.
const ALL: u64 = i64::MAX.cast_unsigned();

/// The sequences.
#[derive(Clone, Copy, Debug)]
enum Sequence {
    Add,
    AddPacked,
    AddWhile,
    AddValueWhile,
    AddCapped,
    AddCarry,
    AddMarked,
    AddWithin,
    AddIndexedWithin,
}

const SEQUENCES: [Sequence; 9] = [
    Sequence::Add,
    Sequence::AddPacked,
    Sequence::AddWhile,
    Sequence::AddValueWhile,
    Sequence::AddCapped,
    Sequence::AddCarry,
    Sequence::AddMarked,
    Sequence::AddWithin,
    Sequence::AddIndexedWithin,
];

/// The sequences that a mode stops.
const GATED: [Sequence; 3] = [Sequence::AddWhile, Sequence::AddValueWhile, Sequence::AddCapped];

impl Sequence {
    /// Runs the sequence once. Returns what it added, 0 if it did not commit.
    fn step(self, rows: &Rows, mode: &AtomicU32) -> i64 {
        let (rseq, word) = (rows.rseq, rows.word(WORD));
        let marks = rows.word(MARKS).cast::<u64>();
        let took = |done: bool, n: i64| if done { n } else { 0 };
        // SAFETY: 1. Both words lie in rows `0..cpus`, packed ones in the first: the test keeps
        // them. 2. Only sequences write the words that are added to. 3. `mode` holds 0 or the
        // number of rows.
        unsafe {
            match self {
                Sequence::Add => took(rseq.add(word, 5), 5),
                Sequence::AddPacked => took(rseq.add_packed(rows.word(PACKED), 5), 5),
                Sequence::AddWhile => took(rseq.gated().add_while::<-1>(word, mode.as_ptr()), -1),
                Sequence::AddValueWhile => {
                    took(rseq.gated().add_value_while(word, mode.as_ptr(), 7), 7)
                }
                Sequence::AddCapped => {
                    took(rseq.gated().add_capped(word, mode.as_ptr(), 19, 1 << 62), 19)
                }
                Sequence::AddCarry => took(committed(rseq.add_carry(word, 3).exit()), 3),
                Sequence::AddMarked => {
                    took(committed(rseq.add_marked(word, 11, marks, 5).exit()), 11)
                }
                // The batch is never exceeded, so each failure to commit is an abort.
                Sequence::AddWithin => took(rseq.add_within(word, 13, ALL), 13),
                Sequence::AddIndexedWithin => {
                    let rows = CpuRows::new(rows.base(), rseq);
                    took(rows.add_marked_within::<{ MARKS * 8 }>(WORD as u32, 23, ALL), 23)
                }
            }
        }
    }
}

/// Returns whether a sequence committed. On a registered thread, on a CPU with a row and a mark, it
/// fails only by an abort.
fn committed(exit: Option<Exit>) -> bool {
    assert!(matches!(exit, None | Some(Exit::Aborted)), "{exit:?}");
    exit.is_none()
}

/// The thread that adds, and what the test knows of it.
struct Victim {
    rows: Rows,
    mode: AtomicU32,
    stop: AtomicBool,
    tid: AtomicU64,
    pthread: AtomicU64,
    added: AtomicI64,
    commits: AtomicU64,
    aborts: AtomicU64,
}

impl Victim {
    fn new(rows: Rows) -> Victim {
        let mode = AtomicU32::new(rows.rseq.cpus());
        for cpu in 0..rows.rseq.cpus() {
            // SeqCst: set-up.
            rows.row(cpu, MARKS).store(1 << 5 | 1 << WORD_LINE, Ordering::SeqCst);
        }
        Victim {
            rows,
            mode,
            stop: AtomicBool::new(false),
            tid: AtomicU64::new(0),
            pthread: AtomicU64::new(0),
            added: AtomicI64::new(0),
            commits: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
        }
    }

    /// Adds until told to stop.
    fn run(&self, sequence: Sequence) {
        // SAFETY: 1. Both calls take nothing and name the calling thread.
        let (tid, pthread) = unsafe { (libc::gettid(), libc::pthread_self()) };
        // Release: pairs with the Acquire in `cross`, which waits for `tid`.
        self.pthread.store(pthread, Ordering::Release);
        self.tid.store(tid.cast_unsigned().into(), Ordering::Release);
        // Relaxed: statistics and a plain signal; the thread is joined before they are compared.
        while !self.stop.load(Ordering::Relaxed) {
            let added = sequence.step(&self.rows, &self.mode);
            self.added.fetch_add(added, Ordering::Relaxed);
            let count = if added == 0 { &self.aborts } else { &self.commits };
            // Relaxed: see above.
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs `sequence` on a thread that is delayed at `point`, calls `disturb` until enough aborts were
/// seen, then lets it run undisturbed. The sum must hold every commit and nothing else.
fn cross(point: Point, sequence: Sequence, disturb: impl Fn(Point, &Victim, u64)) {
    let Some(rows) = Rows::new() else { return };
    let victim = Victim::new(rows);
    let start = Instant::now();
    // Relaxed: a statistic of the handler's; no thread adds now.
    let handled_before = HANDLED.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| victim.run(sequence));
        // Also if `disturb` finds something wrong.
        let stopping = StopOnDrop(&victim.stop);
        // Acquire: pairs with the Release in `run`.
        while victim.tid.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        inject::delay(point, ROUNDS);
        let mut turn = 0;
        // Relaxed, here and below: statistics, which are polled.
        while victim.aborts.load(Ordering::Relaxed) < ABORTS_WANTED && start.elapsed() < PATIENCE {
            if inject::entered(point) {
                disturb(point, &victim, turn);
                turn += 1;
            } else {
                std::thread::yield_now();
            }
        }
        inject::delay(point, 0);
        let commits = victim.commits.load(Ordering::Relaxed);
        while victim.commits.load(Ordering::Relaxed) < commits + 1000 && start.elapsed() < PATIENCE
        {
            std::thread::yield_now();
        }
        drop(stopping);
    });
    // Relaxed: the only other thread was joined.
    let handled = HANDLED.load(Ordering::Relaxed) - handled_before;
    let added = victim.added.load(Ordering::Relaxed) + IN_HANDLER * handled;
    // Relaxed: as above.
    let packed = (0..victim.rows.rseq.cpus() as usize)
        .map(|cpu| victim.rows.row(0, PACKED + cpu).load(Ordering::Relaxed));
    assert_eq!(victim.rows.sum(WORD) + packed.sum::<i64>(), added, "{point:?} {sequence:?}");
    // Relaxed: as above.
    let (aborts, commits) =
        (victim.aborts.load(Ordering::Relaxed), victim.commits.load(Ordering::Relaxed));
    assert!(aborts >= ABORTS_WANTED, "{point:?} {sequence:?}: {aborts} aborts");
    assert!(commits >= 1000, "{point:?} {sequence:?}: {commits} commits");
}

/// Combines every point with each of `sequences`.
fn cross_all(sequences: &[Sequence], disturb: impl Fn(Point, &Victim, u64)) {
    let _alone = alone();
    for point in Point::ALL {
        for &sequence in sequences {
            cross(point, sequence, &disturb);
        }
    }
}

/// Lets one test run at a time, because delays affect the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn migration_at_every_point_loses_nothing() {
    let allowed = cpu::affinity().expect("readable");
    if allowed.len() < 2 {
        eprintln!("skipped: one CPU allowed, nowhere to migrate to");
        return;
    }
    cross_all(&SEQUENCES, |_, victim, turn| {
        // Relaxed: set once, before the first call.
        let tid = victim.tid.load(Ordering::Relaxed) as libc::pid_t;
        let target = allowed[turn as usize % allowed.len()];
        // SAFETY: 1. A CPU set is plain data. 2. The victim runs until it is told to stop, so `tid`
        // is its own.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(target, &mut set);
            assert_eq!(libc::sched_setaffinity(tid, size_of_val(&set), &raw const set), 0);
        }
    });
}

#[test]
fn a_barrier_at_every_point_loses_nothing() {
    cross_all(&SEQUENCES, |_, _, _| barrier::wait().expect("granted"));
}

#[test]
fn a_kill_at_any_point_is_final_past_a_barrier() {
    cross_all(&GATED, |_, victim, _| {
        // Relaxed: the barrier orders it.
        victim.mode.store(0, Ordering::Relaxed);
        barrier::wait().expect("granted");
        let folded = victim.rows.sum(WORD);
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(150) {
            assert_eq!(victim.rows.sum(WORD), folded, "an add landed after the barrier");
        }
        // Relaxed: as above; a later sequence may see it late.
        victim.mode.store(victim.rows.rseq.cpus(), Ordering::Relaxed);
    });
}

static HANDLER: OnceLock<Rseq> = OnceLock::new();
/// The address of the word, 0 while there is none.
static HANDLER_WORD: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicI64 = AtomicI64::new(0);
/// Number of signals handled, whether or not an add of the handler committed.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_: libc::c_int) {
    add_in_handler();
    // Release: pairs with the Acquire in the test, which then clears the record of where this
    // handler was.
    SIGNALS.fetch_add(1, Ordering::Release);
}

fn add_in_handler() {
    // Acquire: pairs with the Release in the test.
    let word = HANDLER_WORD.load(Ordering::Acquire) as *mut i64;
    let Some(&rseq) = HANDLER.get() else { return };
    // Retried, because barriers, preemption and delays can abort the handler's sequence too.
    for _ in 0..3 {
        // SAFETY: 1. The word lies in rows `0..cpus`: the test keeps them. 2. Only sequences write
        // it.
        if unsafe { rseq.add(word, IN_HANDLER) } {
            // Relaxed: a statistic, read when the victim has been joined.
            HANDLED.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
}

/// A signal whose handler adds to the same word at every point loses nothing.
#[test]
fn a_handler_at_every_point_loses_nothing() {
    let Some(rseq) = Rseq::get() else { return };
    HANDLER.set(rseq).expect("set once");
    // SAFETY: 1. The handler does only what a handler may: sequences and atomics.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
    cross_all(&SEQUENCES, |point, victim, _| {
        // Release: pairs with the Acquire in the handler.
        HANDLER_WORD.store(victim.rows.word(WORD) as u64, Ordering::Release);
        // Relaxed: set once, before the first call.
        let pthread = victim.pthread.load(Ordering::Relaxed);
        // Acquire, here and below: pairs with the Release in `handle`.
        let before = SIGNALS.load(Ordering::Acquire);
        // SAFETY: 1. The thread exists: the victim runs until it is told to stop.
        assert_eq!(unsafe { libc::pthread_kill(pthread, libc::SIGUSR1) }, 0);
        // The handler passes the point too. A signal sent because of that would be taken as soon as
        // the handler returns, and so on: the victim itself would not run as long as nothing
        // disturbs the two.
        let start = Instant::now();
        while SIGNALS.load(Ordering::Acquire) == before && start.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let _ = inject::entered(point);
    });
}

#[test]
fn stop_and_continue_at_any_point_lose_nothing() {
    if std::env::var_os("SUBMETER_TEST_CHILD").is_some() {
        // The parent stops this process; this thread only watches.
        cross_all(&SEQUENCES, |_, _, _| std::thread::sleep(Duration::from_micros(50)));
        return;
    }
    let _alone = alone();
    let mut child = std::process::Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "crossing::stop_and_continue_at_any_point_lose_nothing"])
        .env("SUBMETER_TEST_CHILD", "1")
        .spawn()
        .expect("runs");
    let pid = child.id() as libc::pid_t;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        assert!(start.elapsed() < 4 * PATIENCE, "the child does not end");
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            // SAFETY: 1. `pid` names the child: it has not been waited for.
            assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
            std::thread::sleep(Duration::from_micros(300));
        }
    };
    assert!(status.success(), "{status}");
}
