//! The handle of the thread that exports.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use submeter::Tree;
use submeter_sys::process_local::ProcessLocal;

use crate::builder::Builder;
use crate::client::client;
use crate::error::{ExportError, SettingError};
use crate::stats::Stats;
use crate::worker::{Order, Worker};

/// A thread that sends a tree's metrics at each interval: see the [crate](crate).
///
/// Dropping it sends what is new once more, which takes at most as long as the timeout, or twice
/// that if a request still has to be repeated: [`shutdown_within`](Exporter::shutdown_within) has a
/// bound of its own. If another process replaces this one, call
/// [`shutdown`](Exporter::shutdown), which returns whether that has arrived.
#[derive(Debug)]
pub struct Exporter {
    /// `None` if the environment switches exports off, and after the end.
    thread: Option<ProcessLocal<(SyncSender<Order>, JoinHandle<()>)>>,
    stats: ProcessLocal<Arc<Mutex<Stats>>>,
}

impl Exporter {
    /// Starts configuring an exporter of `tree`.
    pub fn builder(tree: &Tree) -> Builder {
        Builder::new(tree)
    }

    fn run(settings: Builder) -> Result<Exporter, SettingError> {
        let client = client(&settings)?;
        let stats = Arc::new(Mutex::new(Stats::default()));
        if settings.disabled {
            return Ok(Exporter { thread: None, stats: ProcessLocal::new(stats) });
        }
        let worker = Worker::new(settings, client, Arc::clone(&stats));
        let (send, orders) = sync_channel(1);
        let named = thread::Builder::new().name("submeter-otlp".into());
        let thread = named.spawn(move || worker.run(&orders)).map_err(SettingError::thread)?;
        let thread = Some(ProcessLocal::new((send, thread)));
        Ok(Exporter { thread, stats: ProcessLocal::new(stats) })
    }

    /// Exports now instead of at the end of the interval, and waits for the answer.
    ///
    /// # Errors
    /// When the receiver has not accepted it. Nothing is lost: it is sent again. In a forked child,
    /// which has no exporter thread.
    pub fn export(&self) -> Result<(), ExportError> {
        let Some(thread) = &self.thread else { return Ok(()) };
        let (orders, _) = thread.get().ok_or_else(elsewhere)?;
        ask(orders, Order::Export)
    }

    /// Exports a last time, and ends the thread.
    ///
    /// # Errors
    /// When the receiver has not accepted it; what was new is then lost with the process.
    pub fn shutdown(mut self) -> Result<(), ExportError> {
        self.end()
    }

    /// Does the same as [`shutdown`](Exporter::shutdown), but waits for at most this time. The
    /// thread is then left behind, and its last request with it.
    ///
    /// # Errors
    /// When the receiver has not accepted it by then.
    pub fn shutdown_within(mut self, patience: Duration) -> Result<(), ExportError> {
        let Some(mut thread) = self.thread.take() else { return Ok(()) };
        let (orders, thread) = thread.take().ok_or_else(elsewhere)?;
        let (send, answer) = sync_channel(1);
        // Nobody else has ordered anything: there is room for it.
        orders.send(Order::Stop(send)).map_err(|_| gone())?;
        match answer.recv_timeout(patience) {
            Ok(result) => {
                let ended = thread.join();
                result.and(ended.map_err(|_| gone()))
            }
            Err(RecvTimeoutError::Timeout) => {
                let text = format!("the receiver has not accepted it within {patience:?}");
                Err(ExportError::kept(text))
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    /// Returns what was sent, and what was not. A forked child sends nothing.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.get().map_or_else(Stats::default, |stats| stats.lock().clone())
    }

    fn end(&mut self) -> Result<(), ExportError> {
        let Some(mut thread) = self.thread.take() else { return Ok(()) };
        let (orders, thread) = thread.take().ok_or_else(elsewhere)?;
        let result = ask(&orders, Order::Stop);
        let ended = thread.join();
        result.and(ended.map_err(|_| gone()))
    }
}

impl Builder {
    /// Starts the thread that exports. The first export has everything that the tree has already
    /// counted.
    ///
    /// # Errors
    /// When the endpoint or a header is not valid in HTTP, a time is 0, or no thread can be
    /// created.
    pub fn start(self) -> Result<Exporter, SettingError> {
        for (name, time) in [("interval", self.interval), ("timeout", self.timeout)] {
            if time.is_zero() {
                let text = format!("the {name} is 0: use at least a millisecond");
                return Err(SettingError::new(text));
            }
        }
        Exporter::run(self)
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // Programs that need the result call `shutdown`.
        let _ = self.end();
    }
}

type Answer = SyncSender<Result<(), ExportError>>;

fn ask(orders: &SyncSender<Order>, order: impl Fn(Answer) -> Order) -> Result<(), ExportError> {
    let (send, answer) = sync_channel(1);
    orders.send(order(send)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

fn elsewhere() -> ExportError {
    let text = "the thread `submeter-otlp` belongs to the parent process: start another exporter";
    ExportError::refused(text.into())
}

/// Reached only by a defect of this crate, or by an aggregator that panicked.
fn gone() -> ExportError {
    ExportError::refused("the thread `submeter-otlp` panicked: see its message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exporter that is off has nothing to end, in whichever process.
    #[test]
    fn an_exporter_that_is_off_ends_without_an_error() {
        let stats = ProcessLocal::new(Arc::default());
        let off = Exporter { thread: None, stats };
        off.export().expect("nothing to send");
        off.shutdown().expect("nothing to end");
    }
}
