//! The threads that serve connections, and the choice of the thread for the next one.
//!
//! Each thread has a runtime of its own: its connections, the readiness that it waits for, and the
//! buffers that it reuses belong to it alone, and one system call waits for all its connections. In
//! a runtime with shared threads, one thread waits on behalf of all, so that all connections wait
//! while another program has that thread's CPU; threads wake each other by further system calls,
//! and memory allocated by one thread is freed by another.
//!
//! Rejected: a listening socket for each thread, among which the kernel spreads clients by a hash.
//! With a few connections one thread often gets nearly all of them, and sockets with a path have no
//! such groups.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use submeter_sys::cpu::{affinity, set_affinity};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

/// The threads that serve connections: at least one worker.
#[derive(Debug)]
pub(super) struct Workers(Vec<Worker>);

/// A runtime that serves connections.
#[derive(Debug)]
pub(super) struct Worker {
    runtime: Handle,
    /// Its reference count is one more than the number of connections.
    busy: Busy,
    thread: Option<Thread>,
}

/// Counts as a connection of a worker for as long as it lives.
pub(super) type Busy = Arc<()>;

/// A thread that drives a worker's runtime until it is dropped.
#[derive(Debug)]
struct Thread {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// Serves on the calling task's runtime.
    pub(super) fn here() -> Workers {
        Workers(vec![Worker { runtime: Handle::current(), busy: Busy::default(), thread: None }])
    }

    /// Starts threads. If there is one for each CPU that the process may use, each is pinned to its
    /// own. Otherwise the scheduler often leaves two on one CPU, where each waits for milliseconds
    /// while the other works.
    pub(super) fn start(threads: NonZero<usize>) -> io::Result<Workers> {
        let cpus: Arc<[usize]> = affinity().unwrap_or_default().into();
        let one_each = (cpus.len() == threads.get()).then_some(&cpus);
        let workers = (0..threads.get()).map(|number| Worker::start(number, one_each));
        workers.collect::<io::Result<_>>().map(Workers)
    }

    /// Returns the number of workers with a thread of their own.
    pub(super) fn threads(&self) -> usize {
        self.0.iter().filter(|worker| worker.thread.is_some()).count()
    }

    /// Returns the worker with the fewest connections.
    pub(super) fn least_busy(&self) -> &Worker {
        let least = self.0.iter().min_by_key(|worker| Arc::strong_count(&worker.busy));
        least.expect("there is at least one")
    }
}

impl Worker {
    fn start(number: usize, one_each: Option<&Arc<[usize]>>) -> io::Result<Worker> {
        let mut builder = Builder::new_current_thread();
        if let Some(cpus) = one_each {
            // Otherwise the worker's blocking threads, which make lists, would inherit its CPU.
            let cpus = Arc::clone(cpus);
            builder.on_thread_start(move || _ = set_affinity(&cpus));
        }
        let runtime = builder.enable_all().build()?;
        let handle = runtime.handle().clone();
        let thread = Thread::start(number, one_each.map(|cpus| cpus[number]), runtime)?;
        Ok(Worker { runtime: handle, busy: Busy::default(), thread: Some(thread) })
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn busy(&self) -> Busy {
        Arc::clone(&self.busy)
    }
}

impl Thread {
    fn start(number: usize, cpu: Option<usize>, runtime: Runtime) -> io::Result<Thread> {
        let (end, ended) = oneshot::channel::<()>();
        let drive = Thread::drive(cpu, runtime, ended);
        let thread = thread::Builder::new().name(format!("cache-{number}")).spawn(drive)?;
        Ok(Thread { end: Some(end), thread: Some(thread) })
    }

    /// Returns what the thread does. If the system has no thread for it, it is dropped in a task,
    /// where a runtime that is dropped would panic.
    fn drive(cpu: Option<usize>, runtime: Runtime, ended: oneshot::Receiver<()>) -> impl FnOnce() {
        let runtime = Unawaited(Some(runtime));
        move || {
            // If the system refuses, it chooses the CPU itself.
            let _ = cpu.map(|cpu| set_affinity(&[cpu]));
            // This ends with an error, because nothing is ever sent.
            let _ = runtime.0.as_ref().map(|runtime| runtime.block_on(ended));
            drop(runtime);
        }
    }
}

/// A runtime whose end waits for nothing: the blocking threads make lists, whose readers have left.
struct Unawaited(Option<Runtime>);

impl Drop for Unawaited {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.end.take());
        // Takes no longer than one poll of a connection. Its panics are those of its tasks, which
        // the runtime has caught.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::spawn_blocking;

    use super::*;

    fn start(threads: usize) -> Workers {
        Workers::start(NonZero::new(threads).expect("some")).expect("the system has threads")
    }

    #[test]
    fn the_worker_with_the_fewest_takes_one_more() {
        let workers = start(3);
        let mut open: Vec<Busy> = (0..6).map(|_| workers.least_busy().busy()).collect();
        let counts = || workers.0.iter().map(|worker| Arc::strong_count(&worker.busy) - 1);
        assert!(counts().eq([2, 2, 2]));
        let closed = open.remove(4);
        let of = std::ptr::from_ref(&*closed);
        drop(closed);
        open.push(workers.least_busy().busy());
        assert!(counts().eq([2, 2, 2]), "the one that was closed made room");
        assert!(open.iter().any(|busy| std::ptr::eq(&**busy, of)));
    }

    #[test]
    fn a_worker_per_cpu_stays_on_its_own() {
        let Ok(cpus) = affinity() else { return };
        let ask = || affinity().expect("as before");
        // The CPUs of the workers, and of the threads on which their tasks block.
        let seen = |threads| -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
            let workers = start(threads);
            let runtime = Builder::new_current_thread().build().expect("a runtime");
            let of = |worker: &Worker| {
                let own = worker.runtime().spawn(async move { ask() });
                let blocking = worker.runtime().spawn(async move { spawn_blocking(ask).await });
                let own = runtime.block_on(own).expect("no panic");
                (own, runtime.block_on(blocking).expect("no panic").expect("no panic"))
            };
            workers.0.iter().map(of).unzip()
        };
        let (own, blocking) = seen(cpus.len());
        assert!(own.iter().flatten().eq(&cpus), "one each");
        assert!(blocking.iter().all(|seen| *seen == cpus), "lists get in no worker's way");
        let (own, _) = seen(cpus.len() + 1);
        assert!(own.iter().all(|seen| *seen == cpus), "wherever there is room");
    }

    /// Where the system has no thread left, the server's start is an error, and no panic.
    #[test]
    fn an_unstarted_worker_is_dropped_in_a_task() {
        let runtime = || Builder::new_current_thread().build().expect("a runtime");
        let (_end, ended) = oneshot::channel();
        let unstarted = Thread::drive(None, runtime(), ended);
        runtime().block_on(async move { drop(unstarted) });
    }

    #[test]
    fn a_thread_that_is_dropped_drops_its_tasks() {
        let workers = start(1);
        let held = Arc::new(());
        let kept = Arc::clone(&held);
        let task = async move {
            std::future::pending::<()>().await;
            drop(kept);
        };
        workers.least_busy().runtime().spawn(task);
        drop(workers);
        assert_eq!(Arc::strong_count(&held), 1, "its thread was waited for");
    }
}
