//! Threads that start together, each on its CPU.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use submeter_sys::cpu::set_affinity;

/// Runs `work` at once on one thread for each of `cpus`, which may name a CPU more than once, and
/// returns the results in order. `prepare` runs on each thread before any of them works; if it
/// fails on one, none works.
///
/// # Errors
/// When a thread cannot be pinned, or the error of `prepare`.
pub(super) fn together<S, T: Send>(
    cpus: &[usize],
    prepare: impl Fn(usize) -> io::Result<S> + Sync,
    work: impl Fn(usize, S) -> T + Sync,
) -> io::Result<Vec<T>> {
    let (start, failed) = (Barrier::new(cpus.len()), AtomicBool::new(false));
    thread::scope(|scope| {
        let (start, failed, prepare, work) = (&start, &failed, &prepare, &work);
        let member = |(index, &cpu): (usize, &usize)| {
            scope.spawn(move || {
                let prepared = set_affinity(&[cpu]).and_then(|()| prepare(index));
                if prepared.is_err() {
                    // Relaxed: the barrier orders it before the check.
                    failed.store(true, Ordering::Relaxed);
                }
                start.wait();
                let prepared = prepared?;
                // Relaxed: after the barrier.
                if failed.load(Ordering::Relaxed) {
                    // Never reported: the caller sees the error of the thread that failed.
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Ok(work(index, prepared))
            })
        };
        let members: Vec<_> = cpus.iter().enumerate().map(member).collect();
        let results: Vec<io::Result<T>> =
            members.into_iter().map(|m| m.join().expect("a measuring thread panicked")).collect();
        let others = |error: &io::Error| error.kind() == io::ErrorKind::Interrupted;
        if results.iter().any(|result| result.as_ref().is_err_and(|error| !others(error))) {
            return results
                .into_iter()
                .filter(|result| !result.as_ref().is_err_and(others))
                .collect();
        }
        results.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use submeter_sys::cpu::affinity;

    use super::*;

    #[test]
    fn threads_are_pinned_with_results_in_order() {
        let cpu = affinity().expect("this process may run somewhere")[0];
        let found = together(&[cpu, cpu, cpu], |index| Ok(index * 10), |index, ten| (index, ten));
        assert_eq!(found.expect("pinned"), [(0, 0), (1, 10), (2, 20)]);
    }

    /// A thread that cannot start keeps the others from working.
    #[test]
    fn one_that_cannot_start_keeps_others_from_work() {
        let cpu = affinity().expect("this process may run somewhere")[0];
        let worked = AtomicBool::new(false);
        let prepare = |index| if index == 1 { Err(io::Error::other("no room")) } else { Ok(()) };
        let error = together(&[cpu, cpu], prepare, |_, ()| {
            // Relaxed: read after the threads were joined.
            worked.store(true, Ordering::Relaxed);
        });
        assert_eq!(error.expect_err("refused").to_string(), "no room");
        // Relaxed: as above.
        assert!(!worked.load(Ordering::Relaxed));
    }
}
