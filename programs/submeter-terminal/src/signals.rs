//! SIGINT and SIGTERM: the first ends the run with its summary, the second ends the process. And
//! SIGTSTP, for a program that has to leave its terminal before it stops.
//!
//! The handlers write to a socket pair, which a task reads later. Tokio's own signals need a
//! runtime, and a signal that arrives while the runtime is being built would end the process
//! without a summary; with both mechanisms side by side, one signal could count as two.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, pipe};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

/// The exit code that shells report for a process ended by SIGINT.
const INTERRUPTED: i32 = 130;

/// Signals that arrived since the handlers were installed, one byte each.
#[derive(Debug)]
pub struct Early {
    arriving: UnixStream,
}

impl Early {
    /// Installs the handlers.
    ///
    /// # Errors
    /// When the kernel refuses the handlers.
    pub fn new() -> io::Result<Early> {
        let (arriving, interrupt) = UnixStream::pair()?;
        pipe::register(SIGTERM, interrupt.try_clone()?)?;
        pipe::register(SIGINT, interrupt)?;
        arriving.set_nonblocking(true)?;
        Ok(Early { arriving })
    }

    /// Starts to act on signals; the channel turns true at the first.
    ///
    /// # Errors
    /// When the runtime cannot wait for them.
    pub fn listen(self) -> io::Result<watch::Receiver<bool>> {
        let mut arriving = tokio::net::UnixStream::from_std(self.arriving)?;
        let (sender, receiver) = watch::channel(false);
        tokio::spawn(async move {
            // This fails only without handlers, and nothing removes them.
            if arriving.read_u8().await.is_ok() {
                sender.send_replace(true);
            }
            if arriving.read_u8().await.is_ok() {
                // A second signal means that the user does not want to wait for a summary.
                std::process::exit(INTERRUPTED);
            }
        });
        Ok(receiver)
    }
}

/// Installs the handlers and acts on signals; the channel turns true at the first.
///
/// # Errors
/// When the kernel refuses the handlers.
pub fn listen() -> io::Result<watch::Receiver<bool>> {
    Early::new()?.listen()
}

/// Waits until the channel turns true.
pub async fn arrived(mut signals: watch::Receiver<bool>) {
    // An error means that the listener has ended, which happens only with the runtime.
    let _ = signals.wait_for(|&arrived| arrived).await;
}

/// Catches SIGINT, SIGTERM and SIGHUP for a program that has taken over its terminal and checks the
/// flag in its loop. The first signal sets the flag, so that the terminal is restored; the second
/// ends the process, whatever the loop waits for.
///
/// # Errors
/// When the kernel refuses the handlers.
pub fn flag() -> io::Result<Arc<AtomicBool>> {
    let arrived = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Registered before the flag's handler; otherwise the first signal would end the process.
        flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&arrived))?;
        flag::register(signal, Arc::clone(&arrived))?;
    }
    Ok(arrived)
}

/// Job control for a program that has taken over its terminal: it leaves the terminal before it
/// stops, and takes it again when it goes on.
#[derive(Debug)]
pub struct Job {
    is_asked: Arc<AtomicBool>,
    has_gone_on: Arc<AtomicBool>,
}

impl Job {
    /// Catches SIGTSTP and SIGCONT. From here on, [`stop`](Job::stop) must be called often.
    ///
    /// # Errors
    /// When the kernel refuses the handlers.
    pub fn new() -> io::Result<Job> {
        let job = Job { is_asked: Arc::default(), has_gone_on: Arc::default() };
        flag::register(SIGTSTP, Arc::clone(&job.is_asked))?;
        flag::register(SIGCONT, Arc::clone(&job.has_gone_on))?;
        Ok(job)
    }

    /// Asks the job to stop, as the terminal does for Ctrl-Z where that is not read as a key: all
    /// of its processes, or the shell would wait for those that still run.
    ///
    /// # Errors
    /// When the kernel refuses the signal.
    pub fn ask_to_stop() -> io::Result<()> {
        Ok(kill_current_process_group(Signal::TSTP)?)
    }

    /// Stops the process if it was asked to, after `leave`. Returns whether it has gone on since
    /// the last call, here or after SIGSTOP: the shell may have changed the terminal's modes.
    ///
    /// # Errors
    /// When the kernel refuses to stop it.
    pub fn stop(&self, leave: impl FnOnce()) -> io::Result<bool> {
        // Relaxed: the flags publish nothing else, and are checked again soon.
        if self.is_asked.swap(false, Ordering::Relaxed) && can_go_on() {
            leave();
            emulate_default_handler(SIGTSTP)?;
            return Ok(true);
        }
        // Relaxed: as above.
        Ok(self.has_gone_on.swap(false, Ordering::Relaxed))
    }
}

/// Returns whether a shell with job control could continue this process. It gives each job a
/// process group; in the group of the session's leader, as in a container, a stopped process would
/// stay so. Where that is unknown, as without /proc, it is not stopped.
fn can_go_on() -> bool {
    group_and_session().is_some_and(|(group, session)| group != session)
}

/// Returns the numbers of the process group and of the session. Each is 0 where its leader is
/// outside of this PID namespace, as under `unshare --pid --fork`. Read from what the kernel lists,
/// because rustix takes that 0 for a process number: a panic, or undefined behavior.
#[cfg(target_os = "linux")]
fn group_and_session() -> Option<(u32, u32)> {
    read_stat(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Reads `NUMBER (NAME) STATE PARENT GROUP SESSION …`; the name may contain anything.
#[cfg(target_os = "linux")]
fn read_stat(stat: &str) -> Option<(u32, u32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(2);
    let mut number = || fields.next()?.parse().ok();
    Some((number()?, number()?))
}

/// Returns the numbers of the process group and of the session.
#[cfg(not(target_os = "linux"))]
fn group_and_session() -> Option<(rustix::process::Pid, rustix::process::Pid)> {
    Some((rustix::process::getpgrp(), rustix::process::getsid(None).ok()?))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::read_stat;

    #[test]
    fn a_name_may_look_like_fields() {
        assert_eq!(read_stat("7 (a) S 9 8) S 1 7 3 34816 7"), Some((7, 3)));
        assert_eq!(read_stat("2 (top) R 1 2 0 0 -1 4194304"), Some((2, 0)), "led from outside");
        assert_eq!(read_stat("2 (top) R 1"), None);
    }
}
