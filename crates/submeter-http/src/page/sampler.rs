//! Copies the tree once a second, for all clients together.
//!
//! While no client watches, it costs one snapshot per sample, for the history. A person who opens
//! the page after an incident wants the two minutes before, so it does not wait for a first viewer.
//! It then encodes nothing. On a tree so large that a sample takes more than 10 ms, it samples less
//! often, so that it never takes more than 1 % of one processor unwatched.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter::Snapshot;
use submeter::export::{Export, Format};
use submeter::switch::clock::process_cpu_ns;
use submeter_documents::{Document, Documents, Held, Versions};
use tokio::sync::{Notify, Semaphore, broadcast};

use super::api;
use super::dashboard::Dashboard;
use super::encode;
use super::frame;
use super::gzip::Coding;
use super::history::History;
use super::panel;
use super::sample::{Indexed, Row, Sample, have_same_metrics};
use super::totals;
use super::verdict::{Case, Verdicts};
use super::wire::DetailDoc;

/// Interval between samples while a client watches.
const INTERVAL: Duration = Duration::from_secs(1);

/// Interval between samples of a huge tree that no client watches: the past that the page shows
/// must not be empty.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Maximum share of one processor that sampling takes while no client watches: one part in this
/// many.
const SHARE: u32 = 100;

/// How long a client of `/api/tree` counts as watching: `submeter top` asks each second.
const WATCHED_AFTER: Duration = Duration::from_secs(5);

/// Number of events that a slow client may be behind before it is sent the whole tree instead.
const BACKLOG: usize = 4;

/// How many versions of `/metrics`, and of `/api/tree` in either coding, clients may be reading,
/// and how long the oldest may block a new one: until then clients share the newest. With 10,000
/// tenants a version of `/metrics` takes 60 MB.
const VERSIONS_MAX: usize = 2;
const VERSION_PATIENCE: Duration = Duration::from_secs(30);

/// How many events clients may be in the middle of: those that start a stream, and those that
/// follow. A client that needs longer for one than it takes for that many newer ones loses its
/// stream, and its page joins again.
const FULLS_MAX: usize = 4;
const TICKS_MAX: usize = 8;

/// Maximum number of encodings and snapshots in progress for clients: more would starve the
/// program, whose processors these are.
const WORK_MAX: usize = 2;

/// A handle to the sampler. Cloning copies a pointer.
#[derive(Clone)]
pub(super) struct Sampler {
    shared: Arc<Shared>,
}

struct Shared {
    shown: Dashboard,
    state: Mutex<State>,
    /// Taken at shutdown, which ends every stream of events.
    events: Mutex<Option<broadcast::Sender<Tick>>>,
    work: Arc<Semaphore>,
    trees: Documents,
    trees_gzip: Documents,
    totals: Documents,
    export: Export,
    /// One entry for each format.
    expositions: [Documents; 2],
    /// Notifies that a client began to watch, or that no handle is left.
    watched: Arc<Notify>,
}

struct State {
    ids: Ids,
    history: History,
    verdicts: Verdicts,
    sample: Option<Arc<Sample>>,
    /// The newest sample as the event that starts a stream, made when first requested.
    full: Option<(u64, Weak<Document>)>,
    fulls: Versions,
    ticks: Versions,
    asked: Option<Instant>,
}

/// The event that a sample makes for clients that have the one before.
#[derive(Clone)]
pub(super) struct Tick {
    /// The number of the sample.
    pub(super) number: u64,
    /// `None` if what a client has is of no use: the tree has more metrics.
    pub(super) event: Option<Arc<Document>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.watched.notify_one();
    }
}

impl Sampler {
    /// Samples until the last handle is gone.
    pub(super) fn start(shown: Dashboard) -> Sampler {
        let sampler = Sampler::new(shown);
        let watched = Arc::clone(&sampler.shared.watched);
        tokio::spawn(run(Arc::downgrade(&sampler.shared), watched));
        sampler
    }

    pub(super) fn new(shown: Dashboard) -> Sampler {
        let (events, _) = broadcast::channel(BACKLOG);
        let state = State {
            ids: Ids::default(),
            history: History::new(shown.views_of(shown.tree.schema())),
            verdicts: Verdicts::default(),
            sample: None,
            full: None,
            fulls: Versions::new(FULLS_MAX, Duration::ZERO),
            ticks: Versions::new(TICKS_MAX, Duration::ZERO),
            asked: None,
        };
        let mut export = Export::new(&shown.prefix).target_info(&[("service.name", &shown.name)]);
        // An empty version is left out: a join on it would match every program.
        if !shown.server.version.is_empty() {
            export = export.build_info(&[("version", &shown.server.version)]);
        }
        let export = match &shown.chosen {
            Some(choose) => choose(export),
            None => export,
        };
        let (held, most) = (Held::default(), shown.answers_max);
        let versions = || {
            let versions = Versions::new(VERSIONS_MAX, VERSION_PATIENCE);
            versions.counted(&held).within(most).into()
        };
        let sampler = Sampler {
            shared: Arc::new(Shared {
                export,
                shown,
                state: Mutex::new(state),
                events: Mutex::new(Some(events)),
                work: Arc::new(Semaphore::new(WORK_MAX)),
                trees: versions(),
                trees_gzip: versions(),
                totals: versions(),
                expositions: [versions(), versions()],
                watched: Arc::default(),
            }),
        };
        // Ensures that there is a sample whenever a client asks.
        sampler.tick();
        sampler
    }

    /// Ends every stream of events, and lets no new one begin.
    pub(super) fn close(&self) {
        self.shared.events.lock().take();
    }

    /// Returns whether the server is shutting down.
    pub(super) fn is_closed(&self) -> bool {
        self.shared.events.lock().is_none()
    }

    /// Joins the events; `None` if the server is shutting down.
    pub(super) fn subscribe(&self) -> Option<broadcast::Receiver<Tick>> {
        let receiver = self.shared.events.lock().as_ref()?.subscribe();
        self.shared.watched.notify_one();
        Some(receiver)
    }

    /// Runs `f` where blocking is allowed, a few calls at a time.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        f: impl FnOnce(&Sampler) -> T + Send + 'static,
    ) -> T {
        let sampler = self.clone();
        // The semaphore is never closed; if it were, work would merely be unbounded.
        let turn = Arc::clone(&self.shared.work).acquire_owned().await;
        let work = move || {
            // Held by the work, not by its client, who may hang up and ask again.
            let _turn = turn;
            f(&sampler)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    /// Returns the event that starts a stream, and the number of the sample that it shows.
    pub(super) fn full(&self) -> (u64, Arc<Document>) {
        let mut state = self.shared.state.lock();
        let sample = state.newest();
        if let Some((number, full)) = &state.full
            && *number == sample.number
            && let Some(full) = full.upgrade()
        {
            return (*number, full);
        }
        let full = frame::first(&encode::full(
            &sample,
            &state.history,
            &state.verdicts,
            &self.shared.shown,
        ));
        let full = state.fulls.add(full);
        state.full = Some((sample.number, Arc::downgrade(&full)));
        (sample.number, full)
    }

    /// Returns the tree as JSON, with the values of this moment and the rates of the last sample.
    pub(super) async fn tree(&self, coding: Coding) -> Result<Arc<Document>, String> {
        self.asked();
        let sampler = self.clone();
        let make = move || {
            let (sample, verdicts) = {
                let state = sampler.shared.state.lock();
                let sample = state.newest();
                let verdicts = state.verdicts.said(sample.at_ms());
                (sample, verdicts)
            };
            let fresh = sampler.snapshot();
            let shown = &sampler.shared.shown;
            let json = api::tree(&fresh, &sample, verdicts, shown, coding);
            json.map_err(|e| format!("cannot write the tree as JSON: {e}"))
        };
        match coding {
            Coding::Plain => self.shared.trees.get(make).await,
            Coding::Gzip => self.shared.trees_gzip.get(make).await,
        }
    }

    /// Returns what to bill, as JSON.
    pub(super) async fn totals(&self) -> Result<Arc<Document>, String> {
        let sampler = self.clone();
        let make = move || {
            let totals = totals::totals(sampler.tree_of_groups(), &sampler.shared.shown);
            totals.map_err(|e| format!("cannot write the totals as JSON: {e}"))
        };
        self.shared.totals.get(make).await
    }

    /// Returns the current tree, for exporters.
    pub(super) async fn exposition(&self, format: Format) -> Result<Arc<Document>, String> {
        let sampler = self.clone();
        let make = move || {
            let mut text = String::new();
            let (export, tree) = (&sampler.shared.export, sampler.tree_of_groups());
            let failed = |e| format!("cannot write the exposition: {e}");
            export.write_as(format, tree, &mut text).map_err(failed)?;
            let Dashboard { panels, prefix, .. } = &sampler.shared.shown;
            panel::expose(panels, prefix, format, &mut text);
            sampler.shared.state.lock().verdicts.expose(prefix, format, &mut text);
            Ok(text.into_bytes())
        };
        self.shared.expositions[usize::from(format == Format::Text)].get(make).await
    }

    /// Returns one group as of the last sample.
    pub(super) fn detail(&self, path: &str) -> Option<DetailDoc> {
        self.asked();
        let state = self.shared.state.lock();
        let sample = state.newest();
        let at = *sample.now.index.get(path)?;
        let history = state.history.of(sample.rows[at].id);
        drop(state);
        Some(api::detail(&sample, at, history))
    }

    fn snapshot(&self) -> Snapshot {
        self.tree_of_groups().snapshot()
    }

    /// Returns the tree that is shown.
    pub(super) fn tree_of_groups(&self) -> &submeter::Tree {
        &self.shared.shown.tree
    }

    fn asked(&self) {
        self.shared.state.lock().asked = Some(Instant::now());
        self.shared.watched.notify_one();
    }

    fn is_watched(&self) -> bool {
        // The locks are taken one after the other, never both: `tick` takes them in the other
        // order.
        let has_streams =
            self.shared.events.lock().as_ref().is_some_and(|events| events.receiver_count() > 0);
        has_streams || self.shared.state.lock().asked.is_some_and(|at| at.elapsed() < WATCHED_AFTER)
    }

    /// Takes one sample, and sends what changed to the clients that watch.
    pub(super) fn tick(&self) {
        let Shared { shown, state, events, .. } = &*self.shared;
        let snapshot = shown.tree.snapshot();
        let mut state = state.lock();
        let before = state.sample.clone();
        let sample = Arc::new(state.take(snapshot, before.as_deref(), shown));
        let State { ids, history, verdicts, ticks, .. } = &mut *state;
        if !sample.has_same_metrics() {
            history.show(sample.views.clone());
            verdicts.forget();
        }
        let gone = ids.retire(&sample.now.index);
        for id in &gone {
            history.forget(*id);
            verdicts.end(*id);
        }
        let at = sample.now.snapshot.at();
        history.push(at, &sample.rows, sample.process);
        let (views, rows) = (&sample.views, &sample.rows[..]);
        let (window_s, remedy) = (sample.window.as_secs_f64(), shown.remedy.as_ref());
        let case = Case { views, rows, window_s, history, remedy };
        verdicts.judge(sample.at_ms(), case, sample.now.snapshot.groups());
        let events = events.lock().clone();
        if let Some(events) = events.filter(|events| events.receiver_count() > 0) {
            let tick = || encode::tick(&sample, before.as_deref(), &gone, verdicts, shown);
            let event = sample.has_same_metrics().then(|| ticks.add(tick()));
            // It fails only if no client is left to miss the event.
            let _ = events.send(Tick { number: sample.number, event });
        }
        state.sample = Some(sample);
    }
}

impl State {
    fn newest(&self) -> Arc<Sample> {
        Arc::clone(self.sample.as_ref().expect("a sampler starts with a sample"))
    }

    fn take(&mut self, snapshot: Snapshot, before: Option<&Sample>, shown: &Dashboard) -> Sample {
        let views = before.filter(|b| have_same_metrics(&b.now.snapshot, &snapshot));
        let views = views.map_or_else(|| shown.views_of(snapshot.schema()), |b| b.views.clone());
        let window = before.map_or(Duration::ZERO, |b| snapshot.at() - b.now.snapshot.at());
        let mut rows: Vec<Row> = Vec::with_capacity(snapshot.groups().len());
        for group in snapshot.groups() {
            let earlier = before.and_then(|b| b.now.same(group));
            rows.push(Row {
                id: self.ids.of(group.path()),
                parent: group.parent().map(|parent| rows[parent].id),
                figures: views.figures(group, earlier, window),
            });
        }
        let number = before.map_or(1, |b| b.number + 1);
        let now = Arc::new(Indexed::new(snapshot));
        let process_ns = process_cpu_ns();
        let used_ns = process_ns.saturating_sub(before.map_or(process_ns, |b| b.process_ns));
        let process =
            if window.is_zero() { 0.0 } else { used_ns as f64 / window.as_nanos() as f64 };
        let before = before.map(|b| Arc::clone(&b.now));
        Sample { number, now, window, views, rows, process_ns, process, before }
    }
}

/// Small numbers for groups, so that an event need not repeat paths.
#[derive(Default)]
struct Ids {
    by_path: HashMap<Box<str>, u32>,
    next: u32,
    /// Ids given back by killed groups.
    free: Vec<u32>,
}

impl Ids {
    fn of(&mut self, path: &str) -> u32 {
        if let Some(&id) = self.by_path.get(path) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.by_path.insert(path.into(), id);
        id
    }

    /// Gives back the ids of groups that are not `live`, and returns them.
    fn retire(&mut self, live: &HashMap<Box<str>, usize>) -> Vec<u32> {
        let mut gone = Vec::new();
        if self.by_path.len() > live.len() {
            self.by_path.retain(|path, id| {
                let keep = live.contains_key(path);
                if !keep {
                    gone.push(*id);
                }
                keep
            });
        }
        self.free.extend(&gone);
        gone
    }
}

/// Ticks until no handle is left.
async fn run(shared: Weak<Shared>, watched: Arc<Notify>) {
    let sampler = || shared.upgrade().map(|shared| Sampler { shared });
    // The runtime's clock: a test that pauses it would find each due time of the real one over.
    let mut last = tokio::time::Instant::now();
    let mut cost = Duration::ZERO;
    loop {
        let idle = (cost * SHARE).clamp(INTERVAL, INTERVAL_MAX);
        let Some(is_watched) = sampler().map(|sampler| sampler.is_watched()) else { return };
        let due = if is_watched { last + INTERVAL } else { last + idle };
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            // The next sample may be due sooner, or never.
            () = watched.notified() => continue,
        }
        let Some(ticker) = sampler() else { return };
        last = tokio::time::Instant::now();
        // The panic hook has reported a panic; the next tick may do better.
        let _ = tokio::task::spawn_blocking(move || ticker.tick()).await;
        cost = last.elapsed();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;
    use crate::page::tests::Program;

    /// All answers together have one bound and each has one version.
    #[tokio::test]
    async fn all_answers_together_have_one_bound() {
        let program = Program::new();
        let sampler = |most| Sampler::new(program.shown().answers_max(most));
        let (tree, totals) = {
            let any = sampler(usize::MAX);
            let tree = any.tree(Coding::Plain).await.expect("JSON").len();
            (tree, any.totals().await.expect("JSON").len())
        };
        // Two versions of the totals fit, but not beside a tree.
        let sampler = sampler(tree + totals + totals / 2);
        let read = sampler.tree(Coding::Plain).await.expect("JSON");
        let first = sampler.totals().await.expect("JSON");
        let second = sampler.totals().await.expect("JSON");
        assert!(Arc::ptr_eq(&first, &second), "who reads it is given time");
        drop(read);
        let second = sampler.totals().await.expect("JSON");
        assert!(!Arc::ptr_eq(&first, &second), "there is room again");
        first.part(0).expect("not withdrawn");
    }

    /// A test that pauses the runtime's clock has one sample a second of it, and spins for none.
    #[tokio::test(start_paused = true)]
    async fn samples_go_by_the_runtimes_clock() {
        let sampler = Sampler::start(Program::new().shown());
        let mut ticks = sampler.subscribe().expect("not closed");
        tokio::time::sleep(5 * INTERVAL + INTERVAL / 2).await;
        let mut seen = 0;
        loop {
            match ticks.try_recv() {
                Ok(_) => seen += 1,
                Err(TryRecvError::Lagged(missed)) => seen += missed,
                Err(_) => break,
            }
        }
        assert!((4..=6).contains(&seen), "{seen} samples in 5 seconds");
    }
}
