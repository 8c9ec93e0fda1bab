//! `--checkpoint`: totals that outlive the process, in the format of [`submeter::checkpoint`].

use std::error::Error as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use submeter::checkpoint::{CheckpointError, CheckpointFile, Restored};
use submeter::{Error, Tree};
use submeter_cache::Cache;
use submeter_http::wire::{CellDoc, Shape};
use submeter_http::{Column, Dashboard, Panel};
use submeter_terminal::{BOLD, DIM, Failure};

/// Which file, and how often it is written.
pub(super) struct Plan {
    pub(super) path: PathBuf,
    pub(super) every: Duration,
}

/// A file whose totals are already in the cache, and that has not been written to yet.
pub(super) struct Opened {
    file: CheckpointFile,
    restored: Option<Restored>,
    every: Duration,
}

/// Takes the file for this process, and adds its totals to the cache's tree: once, and before
/// anything is counted or shown. The restored groups become tenants as far as there are places.
pub(super) fn open(plan: &Plan, cache: &Cache) -> Result<Opened, Failure> {
    let mut file = CheckpointFile::open(&plan.path).map_err(|error| refused(&error))?;
    let restored = cache.tree().restore(&mut file).map_err(|error| refused(&error))?;
    cache.adopt();
    Ok(Opened { file, restored, every: plan.every })
}

/// Wraps a checkpoint error. The library's text contains the remedy, except for errors of the
/// system.
fn refused(error: &CheckpointError) -> Failure {
    let cause = error.source();
    let is_full = cause.and_then(|cause| cause.downcast_ref::<Error>()).is_some_and(Error::is_full);
    let remedy = match cause {
        Some(cause) if cause.is::<io::Error>() => "; use a file in a writable folder",
        _ if is_full => "; it is from a server with more tenants: raise --tenants-max",
        _ => "",
    };
    Failure::new(format_args!("{error}{remedy} (--checkpoint)"))
}

/// Saves once, so that a folder that cannot be written to is an error at the start, and then starts
/// to save periodically. A process that is killed loses at most one interval. A save costs a
/// snapshot and a disk write that is waited for.
pub(super) async fn start(opened: Option<Opened>, cache: &Cache) -> Result<Option<Saver>, Failure> {
    let Some(Opened { mut file, restored, every }) = opened else { return Ok(None) };
    let path = file.path().to_owned();
    let tree = cache.tree().clone();
    let first = tokio::task::spawn_blocking(move || {
        tree.checkpoint(&mut file).map_err(|error| refused(&error))?;
        Ok(file)
    });
    let file = first.await.map_err(|e| Failure::new(format_args!("cannot save: {e}")))??;
    let state = Arc::new(Mutex::new(State { saved: 1, ..State::default() }));
    let (end, ended) = mpsc::channel();
    let (cache, noted) = (cache.clone(), Arc::clone(&state));
    let saves = move || save_until(&ended, every, file, &cache, &noted);
    // The saver has its own thread: a hanging disk must not block those of requests or of the page.
    let thread = thread::Builder::new().name("checkpoint".to_owned()).spawn(saves);
    let thread = thread.map_err(|e| super::threads::no_threads(&e))?;
    Ok(Some(Saver { path, every, restored, state, end, thread }))
}

/// Saves for the last time, when nothing is counted any longer. Returns a line for the summary, and
/// whether the totals were saved as required.
pub(super) async fn finish(saver: Option<Saver>, cache: &Cache) -> (String, bool) {
    let Some(saver) = saver else { return (String::new(), true) };
    let path = saver.path.clone();
    match saver.end(cache, Tree::checkpoint_last).await {
        Ok(()) => (format!("{DIM}saved{DIM:#}   totals, in {}\n", path.display()), true),
        Err(why) => {
            log::warn!("the last totals are not saved: {why}");
            let not = format!("{BOLD}saved   NOT{BOLD:#}: {why}; the file has earlier totals\n");
            (not, false)
        }
    }
}

/// Saves when the server ends because something failed. Parts of it may still count, so these
/// totals are not the last; the next process says so.
pub(super) async fn give_up(saver: Option<Saver>, cache: &Cache) {
    let Some(saver) = saver else { return };
    let save = |tree: &Tree, mut file| tree.checkpoint(&mut file);
    if let Err(why) = saver.end(cache, save).await {
        log::warn!("the last totals are not saved: {why}");
    }
}

/// Saves until the other end of the channel is gone, and returns the file.
fn save_until(
    ended: &mpsc::Receiver<()>,
    every: Duration,
    mut file: CheckpointFile,
    cache: &Cache,
    state: &Mutex<State>,
) -> CheckpointFile {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
        let saved = cache.tree().checkpoint(&mut file);
        state.lock().note(saved.map_err(|error| error.to_string()));
    }
    file
}

/// The outcome of the saves.
#[derive(Default)]
struct State {
    saved: u64,
    failed: u64,
    /// The error of the last save, if it failed.
    error: Option<String>,
}

impl State {
    /// Counts a save, and warns if it failed with an error other than that of the save before.
    fn note(&mut self, saved: Result<(), String>) {
        match &saved {
            Ok(()) => self.saved += 1,
            Err(_) => self.failed += 1,
        }
        let error = saved.err();
        if error != self.error {
            match &error {
                Some(error) => log::warn!("cannot save totals, will retry: {error}"),
                None => log::info!("totals are saved again"),
            }
            self.error = error;
        }
    }
}

/// The thread that saves periodically.
pub(super) struct Saver {
    path: PathBuf,
    every: Duration,
    restored: Option<Restored>,
    state: Arc<Mutex<State>>,
    end: mpsc::Sender<()>,
    thread: JoinHandle<CheckpointFile>,
}

impl Saver {
    /// Ends the thread and saves once more.
    async fn end(
        self,
        cache: &Cache,
        save: impl FnOnce(&Tree, CheckpointFile) -> Result<(), CheckpointError> + Send + 'static,
    ) -> Result<(), String> {
        let Saver { end, thread, .. } = self;
        let tree = cache.tree().clone();
        let saved = tokio::task::spawn_blocking(move || {
            drop(end);
            let file = thread.join().map_err(|_| "its thread panicked".to_owned())?;
            save(&tree, file).map_err(|error| error.to_string())
        });
        saved.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Says what was restored, for the greeting.
    pub(super) fn line(&self) -> String {
        let restored = self.restored.map_or_else(|| "new".to_owned(), |of| of.to_string());
        format!("{}, saved every {} s: {restored}", self.path.display(), self.every.as_secs())
    }

    /// Shows the outcome of the saves.
    pub(super) fn show(&self, shown: Dashboard) -> Dashboard {
        let panel = Panel::new(
            "checkpoint",
            "Totals saved",
            vec![
                Column::label("file", "File"),
                Column::state("state", "State", "Whether saving works", &["saved", "fails"]),
                Column::counter("saved", "Saved", "How often totals were saved"),
                Column::counter("failed", "Failed", "How often saving failed"),
                Column::text("why", "Why"),
            ],
        );
        let (path, state) = (self.path.display().to_string(), Arc::clone(&self.state));
        shown.panel(panel.rows(move || {
            let State { saved, failed, error } = &*state.lock();
            let is = if error.is_none() { "saved" } else { "fails" };
            let count = |n: u64| CellDoc::figure(n, Shape::Count);
            let why = error.as_deref().unwrap_or("");
            vec![vec![path.as_str().into(), is.into(), count(*saved), count(*failed), why.into()]]
        }))
    }
}

#[cfg(test)]
mod tests {
    use submeter_cache::Config;

    use super::*;

    /// A server that gives up saves what it counted, and notes that this may not be everything.
    #[tokio::test]
    async fn giving_up_saves_an_incomplete_file() {
        let path = std::env::temp_dir().join(format!("submeter-{}-up", std::process::id()));
        let cache = || Cache::new(Config::default()).expect("the default configuration");
        let ended = cache();
        let file = CheckpointFile::open(&path).expect("a folder");
        let opened = Some(Opened { file, restored: None, every: Duration::from_secs(3600) });
        let saver = start(opened, &ended).await.expect("it is saved");
        ended.tree().root().add(ended.metrics().cmd_get, 3);
        give_up(saver, &ended).await;
        let next = cache();
        let mut file = CheckpointFile::open(&path).expect("it is nobody's");
        let restored = next.tree().restore(&mut file).expect("whole").expect("saved");
        assert_eq!(next.tree().root().sum(next.metrics().cmd_get), 3);
        assert!(!restored.is_complete());
        std::fs::remove_file(&path).expect("there");
    }
}
