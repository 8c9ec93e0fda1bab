//! A load of the bench's own, so that "a busy machine" means the same every day.
//!
//! One thread for each CPU computes and streams through memory at the lowest priority. It runs
//! where the measured threads do not: on the other CPUs while one is measured, which on many
//! machines share a core, a cache and the path to memory with it, and whenever a server or its
//! clients sleep. At an ordinary priority it would halve every figure, and most samples would be
//! left out because a thread was preempted.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use submeter_sys::cpu::{affinity, set_affinity};

/// The buffer that a thread streams through: larger than a CPU's own caches.
const BUFFER_BYTES: usize = 4 << 20;
/// The work between two checks whether to stop: some 10 µs.
const STEP_WORDS: usize = 8 << 10;
/// The lowest priority in terms of nice(2).
const LOWEST: i32 = 19;
/// Multiplier of a linear congruential generator (Knuth's MMIX): each step depends on the previous
/// one of the same word, and no compiler can omit it.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

/// The threads that keep the CPUs busy, until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    /// Starts a thread on each CPU that this process may use.
    ///
    /// # Errors
    /// When these CPUs are unknown, or a thread cannot run on one of them at that priority.
    pub(crate) fn start() -> io::Result<Busy> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut busy = Busy { stop: Arc::clone(&stop), threads: Vec::new() };
        let (tell, told) = channel();
        for cpu in affinity()? {
            let (stop, tell) = (Arc::clone(&stop), tell.clone());
            let name = format!("busy-{cpu}");
            let run = move || {
                let placed = set_affinity(&[cpu]);
                // For this thread alone: on Linux each thread has its own priority.
                let lowered = rustix::process::setpriority_process(None, LOWEST);
                if tell.send(placed.and(lowered.map_err(io::Error::from))).is_ok() {
                    work(&stop);
                }
            };
            busy.threads.push(thread::Builder::new().name(name).spawn(run)?);
        }
        // A load of another kind than the record states would be worse than none.
        told.iter().take(busy.threads.len()).collect::<io::Result<()>>()?;
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Relaxed: nothing is published with it.
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in one has been reported; there is nothing to undo.
            let _ = thread.join();
        }
    }
}

fn work(stop: &AtomicBool) {
    let mut buffer = vec![1_u64; BUFFER_BYTES / size_of::<u64>()];
    loop {
        for step in buffer.chunks_mut(STEP_WORDS) {
            // Relaxed: as above.
            if stop.load(Ordering::Relaxed) {
                return;
            }
            for word in step.iter_mut() {
                *word = word.wrapping_mul(MULTIPLIER).wrapping_add(1);
            }
            black_box(&step);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Returns the CPU time that this process has used, in seconds.
    fn cpu_s() -> f64 {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
        let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|f| f.parse::<u64>().expect("a number")).sum();
        // Ticks are hundredths of a second wherever user space sees them.
        ticks as f64 / 100.0
    }

    /// Every CPU is kept busy at the lowest priority until it is dropped.
    #[test]
    fn every_cpu_is_kept_busy_until_the_drop() {
        let busy = Busy::start().expect("threads");
        assert_eq!(busy.threads.len(), affinity().expect("CPUs").len());
        let nice = |task: std::path::PathBuf| -> Option<(String, i32)> {
            let stat = std::fs::read_to_string(task.join("stat")).ok()?;
            let (name, rest) = stat.rsplit_once(") ")?;
            let name = name.split_once('(')?.1.to_owned();
            Some((name, rest.split(' ').nth(16)?.parse().ok()?))
        };
        let tasks = || {
            let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
            tasks.filter_map(|task| nice(task.ok()?.path()))
        };
        let ours = || tasks().filter(|(name, _)| name.starts_with("busy-")).map(|(_, nice)| nice);
        let (before, begun) = (cpu_s(), Instant::now());
        // On a machine that is busy with other work it takes a while until they have run that long.
        while cpu_s() - before < 0.1 && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(cpu_s() - before >= 0.1, "they use CPU time");
        assert_eq!(ours().collect::<Vec<_>>(), vec![19; busy.threads.len()]);
        drop(busy);
        // A thread is joined when the kernel clears its number, a moment before it leaves /proc.
        let dropped = Instant::now();
        while ours().count() > 0 && dropped.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ours().count(), 0, "they have ended");
    }
}
