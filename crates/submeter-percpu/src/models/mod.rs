//! Models of what marks and bounds require, each with its mistake.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p submeter-percpu --lib loom_`

// Not the checker's: it does not explore this state.
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sync::atomic::take_sites;

mod bound;
mod cpu;
mod in_flight;
mod kept;
mod sequences;

/// Runs the interleavings of a model with at most three preemptions. That is enough to find each of
/// the mistakes (two of them are not found with two), and limits a model to seconds.
///
/// # Panics
/// When there is only one interleaving (in either order, see [`either_first`]): threads that do not
/// meet prove nothing. When the model calls no [`witness`], or one of its calls never witnessed
/// anything.
pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_within(3, model);
}

/// Does the same as [`explore`], with another number of preemptions.
pub(crate) fn explore_within(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    check(builder, model);
}

/// Does the same as [`explore`], with as many preemptions as show the model's mistakes. In a run
/// that is allowed to take long it uses one more, which takes ten to thirty times as long.
pub(crate) fn explore_briefly(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let is_long = std::env::var_os("SUBMETER_LOOM_LONG").is_some();
    explore_within(preemptions + usize::from(is_long), model);
}

/// Does the same as [`explore`], with as many preemptions as `LOOM_MAX_PREEMPTIONS` allows.
pub(crate) fn explore_all(model: impl Fn() + Sync + Send + 'static) {
    check(loom::model::Builder::new(), model);
}

fn check(builder: loom::model::Builder, model: impl Fn() + Sync + Send + 'static) {
    assert!(executions(builder, model) > 1, "the threads of this model do not meet");
    WITNESSED.with_borrow(|witnessed| {
        assert!(!witnessed.is_empty(), "this model does not say what it is named for");
        for (what, met) in witnessed {
            assert!(met, "no execution of this model has {what}");
        }
    });
}

/// Records whether an execution has reached the situation that its model is named for: any
/// execution may miss it, but not all. A model whose threads never reach it passes whatever is
/// broken.
///
/// Adds neither orderings nor states to the model. Where a mistake may panic, it must be called
/// first.
pub(crate) fn witness(what: &'static str, met: bool) {
    WITNESSED.with_borrow_mut(|witnessed| *witnessed.entry(what).or_default() |= met);
}

/// The progress of an execution so far, recorded outside the model: for [`witness`].
#[derive(Clone, Default)]
pub(crate) struct Note(Arc<AtomicUsize>);

impl Note {
    pub(crate) fn take(&self) {
        // Relaxed, here and below: one thread runs them all.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a model whose threads must not touch each other's state.
///
/// # Panics
/// When they do.
pub(crate) fn explore_apart(model: impl Fn() + Sync + Send + 'static) {
    let executions = executions(loom::model::Builder::new(), model);
    assert_eq!(executions, 1, "the threads of this model meet");
}

/// Makes the model run in two orders: the calling thread continues first, or the others do.
///
/// Loom knows only the last access of each atomic. If a thread loads an atomic and then writes it,
/// as a `fetch_update` does, its load hides an earlier load by another thread: loom does not try
/// that earlier load after the write. It does if the write comes first.
pub(crate) fn either_first() {
    IS_ORDERED.set(true);
    if OTHERS_FIRST.get() {
        loom::thread::yield_now();
    }
}

std::thread_local! {
    /// Whether the model calls [`either_first`].
    static IS_ORDERED: Cell<bool> = const { Cell::new(false) };
    static OTHERS_FIRST: Cell<bool> = const { Cell::new(false) };
    /// The situations that the model is named for, and whether an execution reached each of them.
    static WITNESSED: RefCell<BTreeMap<&'static str, bool>> = const { RefCell::new(BTreeMap::new()) };
}

/// Returns the number of executions, in the order that had more.
fn executions(
    mut builder: loom::model::Builder,
    model: impl Fn() + Sync + Send + 'static,
) -> usize {
    // As many accesses as the longest execution needs.
    builder.max_branches = 5_000;
    let model = Arc::new(model);
    let mut most = 0;
    take_sites();
    IS_ORDERED.set(false);
    WITNESSED.take();
    for others_first in [false, true] {
        OTHERS_FIRST.set(others_first);
        let executions = Arc::new(AtomicUsize::new(0));
        let (model, counted) = (Arc::clone(&model), Arc::clone(&executions));
        builder.check(move || {
            // Relaxed: one thread runs them all.
            counted.fetch_add(1, Ordering::Relaxed);
            model();
        });
        // In loom 0.7 a thread that yields makes one more execution. Relaxed: as above.
        most = most.max(executions.load(Ordering::Relaxed) - usize::from(others_first));
        if !IS_ORDERED.get() {
            break;
        }
    }
    note_sites();
    most
}

/// If `SUBMETER_MODELLED` names a directory, adds the lines with an atomic that the model has
/// executed to the test's file there: `cargo xtask modelled` reads them.
fn note_sites() {
    let sites = take_sites();
    let Some(to) = std::env::var_os("SUBMETER_MODELLED") else {
        return;
    };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("main").rsplit("::").next().unwrap_or_default();
    let lines: String = sites.iter().map(|(file, line)| format!("{file}:{line}\n")).collect();
    let path = std::path::Path::new(&to).join(name);
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(lines.as_bytes())).expect("SUBMETER_MODELLED exists");
}
