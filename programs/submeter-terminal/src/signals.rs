//! SIGINT and SIGTERM: the first ends the run with its summary, the second ends the process.
//!
//! The handlers write to a socket pair that a task reads later. Tokio's own signals need a runtime,
//! and one that arrives while that is being built would end the process without a word; two sources
//! side by side could take one signal for two.

use std::io;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

/// Exit code of a process that SIGINT ended, as shells count.
const INTERRUPTED: i32 = 130;

/// Signals that arrived since the handlers are in place: one byte each.
#[derive(Debug)]
pub struct Early {
    arriving: UnixStream,
}

impl Early {
    /// Puts the handlers in place.
    ///
    /// # Errors
    /// When the kernel refuses handlers.
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
            // Fails only when the handlers are gone, and nothing removes them.
            if arriving.read_u8().await.is_ok() {
                sender.send_replace(true);
            }
            if arriving.read_u8().await.is_ok() {
                // Somebody who asks twice does not want to wait for a summary.
                std::process::exit(INTERRUPTED);
            }
        });
        Ok(receiver)
    }
}

/// Listens from now on; the channel turns true at the first signal.
///
/// # Errors
/// When the kernel refuses handlers.
pub fn listen() -> io::Result<watch::Receiver<bool>> {
    Early::new()?.listen()
}

/// Waits until the channel turns true.
pub async fn arrived(mut signals: watch::Receiver<bool>) {
    // An error means that the listener has ended, which it does only with the runtime.
    let _ = signals.wait_for(|&arrived| arrived).await;
}
