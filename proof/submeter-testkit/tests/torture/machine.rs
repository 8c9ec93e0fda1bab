//! Disturbances of a process: its threads are moved and interrupted, it is stopped, it forks, its
//! children are killed, and memory becomes scarce; on a dedicated machine, CPUs go offline and
//! return.

use std::ffi::CStr;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use std::{fs, thread};

use submeter_sys::cpu;
use submeter_sys::memory::Reservation;

use crate::Running;
use crate::bounded::Bounded;
use crate::handler::Timer;

/// Ten thousand interruptions per second.
const PERIOD_NS: i64 = 100_000;
/// How long some threads are interrupted before others have their turn: an emulated CPU may get
/// nothing else done in this time.
const TURN: Duration = Duration::from_millis(50);
/// Time limit for a forked child, even on a very busy machine.
const CHILD_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the IDs of this process's threads.
fn threads() -> Vec<libc::pid_t> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let number =
        |task: std::io::Result<fs::DirEntry>| task.ok()?.file_name().to_str()?.parse().ok();
    tasks.filter_map(number).collect()
}

/// Restricts one thread after the other to some of the CPUs.
pub(crate) fn move_threads_until(running: Running<'_>) {
    let Ok(allowed) = cpu::affinity() else {
        println!("skipped: threads moved between CPUs: this build cannot read its affinity");
        // A thread that ends early ends the round.
        while running.go_on() {
            std::thread::sleep(TURN);
        }
        return;
    };
    let mut rng = fastrand::Rng::with_seed(4);
    while running.go_on() {
        let threads = threads();
        for _ in 0..50 {
            let Some(&tid) = rng.choice(&threads) else { break };
            // SAFETY: 1. Zeroes are an empty set: plain data. 2. The calls write and read a live
            // set, with numbers that the kernel gave. For a thread that has ended they fail.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                for &cpu in &allowed {
                    if rng.bool() {
                        libc::CPU_SET(cpu, &mut set);
                    }
                }
                // An empty set is refused, so that the thread stays.
                libc::sched_setaffinity(tid, size_of_val(&set), &raw const set);
            }
            thread::sleep(Duration::from_micros(500));
        }
    }
}

/// Interrupts a few threads at a time, chosen at random.
pub(crate) fn interrupt_threads_until(running: Running<'_>) {
    let mut rng = fastrand::Rng::with_seed(5);
    while running.go_on() {
        let threads = threads();
        let chosen = (0..4).filter_map(|_| rng.choice(&threads));
        // A thread may have ended, or the kernel may be short of timers: then there are fewer.
        let timers: Vec<_> =
            chosen.filter_map(|&tid| Timer::on_thread(tid, PERIOD_NS).ok()).collect();
        thread::sleep(TURN);
        drop(timers);
    }
}

/// Maps memory, uses it and unmaps it, repeatedly. It does not use the allocator, which keeps tens
/// of MiB of what it was given back: the amount of memory that the test holds would be a matter of
/// chance.
pub(crate) fn take_memory_until(running: Running<'_>, bytes_max: usize) {
    let mut rng = fastrand::Rng::with_seed(6);
    while running.go_on() {
        let taken = Reservation::new(rng.usize(bytes_max / 8..bytes_max)).expect("memory");
        for at in (0..taken.len()).step_by(4096) {
            // SAFETY: 1. Inside: `at` is below the length. 2. Nobody else knows the address.
            unsafe { taken.base().add(at).write_volatile(1) };
            if !running.go_on() {
                break;
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Forks repeatedly. Each child counts; every other one is killed while counting.
pub(crate) fn fork_until(running: Running<'_>, bounded: &Bounded) {
    let mut rng = fastrand::Rng::with_seed(7);
    while running.go_on() {
        let children: Vec<_> =
            (0..4).map(|n| (fork_child(bounded, n % 2 == 0), n % 2 == 0)).collect();
        thread::sleep(Duration::from_micros(rng.u64(..2_000)));
        for (pid, kill) in children {
            if kill {
                // SAFETY: 1. The call takes numbers; the child is ours and not waited for yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            let status = wait(pid);
            let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
            assert!(status == 0 || (kill && killed), "a child ended with {status:#x}");
            bounded.note_fork();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Forks one child, which counts for a while or, if it is to be killed, until then.
fn fork_child(bounded: &Bounded, for_ever: bool) -> libc::pid_t {
    child(|| {
        bounded.add_in_child();
        if for_ever {
            loop {
                bounded.add_in_child();
            }
        }
    })
}

/// Runs `work` in a forked child and waits for it. It may do only what a child of threads may.
pub(crate) fn in_a_child(work: impl FnOnce()) {
    let status = wait(child(work));
    assert_eq!(status, 0, "a child ended with {status:#x}");
}

/// Forks a child that runs `work` and ends.
fn child(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: 1. The child does only what a child of threads may: the callers' part. Updates and
    // switches take no lock.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: 1. The call takes numbers. The parent, which should kill this child, may fail.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // A panic must not unwind into the parent's code.
        let done = catch_unwind(AssertUnwindSafe(work));
        // SAFETY: 1. The call takes a number and does not return.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    pid
}

/// Returns the exit status of a child; kills one that hangs, and panics.
fn wait(pid: libc::pid_t) -> libc::c_int {
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: 1. The integer is live and writable. 2. The child is ours to wait for.
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            0 if start.elapsed() > CHILD_TIMEOUT => {
                // SAFETY: 1. The call takes numbers; the child is ours and not waited for yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                panic!("a child of a fork hung");
            }
            0 => thread::sleep(Duration::from_millis(1)),
            found => {
                assert_eq!(found, pid, "{}", std::io::Error::last_os_error());
                return status;
            }
        }
    }
}

/// Returns whether pages are so small that every fault maps one page of 4 KiB.
pub(crate) fn pages_are_small() -> bool {
    let huge = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    !huge.is_ok_and(|text| text.contains("[always]"))
}

/// A process that stops and continues the tortured one, and on a dedicated machine also freezes it,
/// changes its set of CPUs and takes a CPU offline.
pub(crate) struct Disturber {
    pid: libc::pid_t,
    /// A byte, or the end of this line, makes the process continue what it stopped and exit.
    line: Option<UnixStream>,
}

/// The number of disturbances: stop and continue, freeze, other CPUs, a CPU offline.
const KINDS: usize = 4;

const CGROUP: &str = "/sys/fs/cgroup/submeter-torture";

impl Disturber {
    pub(crate) fn start() -> Disturber {
        let own = std::env::var_os("SUBMETER_TORTURE_MACHINE").is_some_and(|value| value == "own");
        let (line, other) = UnixStream::pair().expect("descriptors");
        if own {
            make_cgroup();
        }
        // SAFETY: 1. The child does only what a child of threads may: system calls on memory that
        // exists already, and ends.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "{}", std::io::Error::last_os_error());
        if pid == 0 {
            // With an open copy of this end, the child would never see it closed.
            drop(line);
            disturb(other.as_raw_fd(), own);
        }
        if own {
            let moved = fs::write(format!("{CGROUP}/cgroup.procs"), std::process::id().to_string());
            moved.expect("a machine of its own has a cgroup");
        }
        Disturber { pid, line: Some(line) }
    }

    /// Ends the process; returns how often it did each.
    pub(crate) fn stop(&mut self) -> String {
        let Some(mut line) = self.line.take() else { return String::new() };
        let mut done = [0; KINDS];
        line.write_all(b"!").expect("it listens");
        line.read_exact(&mut done).expect("it says how often");
        let status = wait(self.pid);
        assert_eq!(status, 0, "the process that disturbs failed");
        let [stopped, frozen, confined, offline] = done;
        let of =
            |n| if n == u8::MAX { format!("{n} times and more") } else { format!("{n} times") };
        format!(
            "stopped {}, frozen {}, confined to other CPUs {}, without a CPU {}",
            of(stopped),
            of(frozen),
            of(confined),
            of(offline)
        )
    }
}

impl Drop for Disturber {
    fn drop(&mut self) {
        self.stop();
    }
}

fn make_cgroup() {
    let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset");
    fs::create_dir_all(CGROUP).expect("a machine of its own has a writable cgroup v2");
}

/// The child's loop, until the parent asks for the end or closes the line.
fn disturb(line: libc::c_int, own: bool) -> ! {
    // SAFETY: 1. The call takes nothing and returns a number.
    let parent = unsafe { libc::getppid() };
    // How often each disturbance was done, saturating: tests only ask for a few.
    let mut done = [0u8; KINDS];
    let mut turn = 0u32;
    loop {
        turn = turn.wrapping_add(1);
        let (kind, worked) = match turn % 8 {
            1 if own => (1, freeze()),
            3 if own => (2, confine(turn)),
            5 if own => (3, offline()),
            _ => (0, stop_and_continue(parent)),
        };
        done[kind] = done[kind].saturating_add(u8::from(worked));
        if pause(line, 20 + (turn * 7 % 90).cast_signed()) {
            // SAFETY: 1. The bytes are live. 2. The last call takes a number and does not return.
            unsafe {
                libc::send(line, done.as_ptr().cast(), done.len(), libc::MSG_NOSIGNAL);
                libc::_exit(0);
            }
        }
    }
}

/// Waits for `ms`; returns whether the parent asked for the end or closed the line in that time.
fn pause(line: libc::c_int, ms: libc::c_int) -> bool {
    let mut poll = libc::pollfd { fd: line, events: libc::POLLIN, revents: 0 };
    // SAFETY: 1. One live structure.
    unsafe { libc::poll(&raw mut poll, 1, ms) > 0 }
}

fn stop_and_continue(parent: libc::pid_t) -> bool {
    // SAFETY: 1. The calls take numbers; the parent exists, because it waits for this process.
    unsafe {
        libc::kill(parent, libc::SIGSTOP);
        libc::usleep(2_000);
        libc::kill(parent, libc::SIGCONT) == 0
    }
}

fn freeze() -> bool {
    let froze = write(c"/sys/fs/cgroup/submeter-torture/cgroup.freeze", b"1");
    // SAFETY: 1. The call takes a number.
    unsafe { libc::usleep(5_000) };
    write(c"/sys/fs/cgroup/submeter-torture/cgroup.freeze", b"0") && froze
}

fn confine(turn: u32) -> bool {
    let cpus: &[u8] = [&b"0"[..], b"1", b"0-1"][(turn / 8 % 3) as usize];
    write(c"/sys/fs/cgroup/submeter-torture/cpuset.cpus", cpus)
}

fn offline() -> bool {
    let path = c"/sys/devices/system/cpu/cpu1/online";
    let went = write(path, b"0");
    // SAFETY: 1. The call takes a number.
    unsafe { libc::usleep(20_000) };
    write(path, b"1") && went
}

/// The same as `fs::write`, without allocating.
fn write(path: &CStr, bytes: &[u8]) -> bool {
    // SAFETY: 1. The path ends with a NUL: it is a `CStr`. 2. The bytes are live for the call.
    unsafe {
        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        let written = file >= 0 && libc::write(file, bytes.as_ptr().cast(), bytes.len()) > 0;
        libc::close(file);
        written
    }
}
