//! SIGINT and SIGTERM: the first ends the run with its summary, the second ends the process.
//!
//! The handlers write to a socket pair, which a task reads later. Tokio's own signals need a
//! runtime, and a signal that arrives while the runtime is being built would end the process
//! without a summary; with both mechanisms side by side, one signal could count as two.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;
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
