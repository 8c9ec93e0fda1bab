//! What `serve` reads before it serves: the files that flags name. They may be pipes that nothing
//! writes to.

use std::sync::Arc;
use std::time::Duration;

use submeter_cache::{Cache, Config};
use submeter_load::drive;
use submeter_terminal::{Failure, signals};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::checkpoint::{self, Opened};
use super::keys::Keys;
use super::plan::Plan;
use super::reading::Now;

/// How long the start may continue after a signal. A file that exists is read in that time, so a
/// signal during the start ends with a summary.
const PATIENCE: Duration = Duration::from_secs(1);

/// The cache with its totals, what clients have to present, and the requested load or what is wrong
/// with it.
pub(super) struct Read {
    pub(super) cache: Cache,
    pub(super) totals: Option<Opened>,
    pub(super) keys: Keys,
    pub(super) load: Result<Option<drive::Plan>, Failure>,
}

/// Reads all of it. Returns nothing if a signal ends the start before that is done.
pub(super) async fn read(
    plan: Arc<Plan>,
    stop: watch::Receiver<bool>,
) -> Result<Option<Read>, Failure> {
    let now = Now::default();
    // Read on a thread that may wait: this one has to notice signals.
    let seen = now.clone();
    let read = tokio::task::spawn_blocking(move || {
        let (plan, now) = (&*plan, &seen);
        let limits = now.reading("--limits", plan.limits.file.as_deref(), || plan.limits.read());
        let limits = limits.map_err(Failure::new)?;
        let cache = Config { tenant_limits: limits.settings(), ..plan.cache.clone() };
        let cache = Cache::new(cache).map_err(|error| Failure::new(limits.explain(&error)))?;
        let totals = plan.checkpoint.as_ref().map(|totals| {
            now.reading("--checkpoint", Some(&totals.path), || checkpoint::open(totals, &cache))
        });
        let totals = totals.transpose()?;
        let load = plan
            .load
            .as_ref()
            .map(|load| now.reading("--tenants-file", load.file.as_deref(), || load.read()));
        let load = load.transpose();
        let keys = Keys::read(&plan.keys, &cache, now)?;
        Ok(Read { cache, totals, keys, load })
    });
    unless_stopped(read, &now, stop, PATIENCE).await
}

/// Waits for the reading, but no longer than `patience` after a signal. If it is then waiting for a
/// file, that is an error. Otherwise the machine is slow, and the signal is obeyed.
async fn unless_stopped<T>(
    read: JoinHandle<Result<T, Failure>>,
    now: &Now,
    stop: watch::Receiver<bool>,
    patience: Duration,
) -> Result<Option<T>, Failure> {
    let late = async {
        signals::arrived(stop).await;
        tokio::time::sleep(patience).await;
    };
    tokio::select! {
        read = read => {
            read.map_err(|e| Failure::new(format_args!("cannot read files: {e}")))?.map(Some)
        }
        () = late => match now.file() {
            None => Ok(None),
            Some(file) => Err(Failure::new(format_args!(
                "stopped while reading {file}: write to it if it is a pipe, or use a regular file"
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc;

    use super::*;

    /// Stops a start that waits for a file or for the machine.
    async fn stopped(file: Option<&'static str>) -> Result<Option<()>, Failure> {
        let now = Now::default();
        let seen = now.clone();
        let (go, gone) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let read = tokio::task::spawn_blocking(move || {
            seen.reading("--limits", file.map(Path::new), || {
                tell.send(()).expect("heard");
                // Blocks until the test is over.
                let _ = gone.recv();
            });
            Ok(())
        });
        told.recv().expect("it has begun");
        let (signal, stop) = watch::channel(false);
        signal.send_replace(true);
        let ended = unless_stopped(read, &now, stop, Duration::ZERO).await;
        drop(go);
        ended
    }

    /// A stopped start blames a file only if it was waiting for it.
    #[tokio::test]
    async fn a_stopped_start_blames_only_what_it_waits_for() {
        assert_eq!(stopped(None).await.expect("no error"), None);
        let failure = stopped(Some("/run/pipe")).await.expect_err("it waits");
        assert!(failure.line().contains("stopped while reading /run/pipe (--limits)"));
    }
}
