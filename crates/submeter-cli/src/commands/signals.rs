//! SIGINT and SIGTERM: the first ends the run with its summary, the second ends the process.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Exit code of a process that SIGINT ended, as shells count.
const INTERRUPTED: i32 = 130;

/// Listens from now on; the channel turns true at the first signal.
///
/// # Errors
/// When the kernel refuses handlers.
pub(crate) fn listen() -> std::io::Result<watch::Receiver<bool>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        either(&mut interrupt, &mut terminate).await;
        sender.send_replace(true);
        either(&mut interrupt, &mut terminate).await;
        // Somebody who asks twice does not want to wait for a summary.
        std::process::exit(INTERRUPTED);
    });
    Ok(receiver)
}

/// Waits until the channel turns true.
pub(crate) async fn arrived(mut signals: watch::Receiver<bool>) {
    // An error means that the listener has ended, which it does only with the runtime.
    let _ = signals.wait_for(|&arrived| arrived).await;
}

async fn either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}
