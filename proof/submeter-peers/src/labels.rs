//! The facade `metrics`, with the kind of recorder that its exporters use: a registry of atomics by
//! name and labels.

use std::array;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit, counter,
    with_local_recorder,
};
use metrics_util::registry::{AtomicStorage, Registry};

use crate::{Case, LEVELS, Peer};

/// The counter's name.
const REQUESTS: &str = "requests_total";

/// Returns the facade with a held handle, through its macro with a label, and with one handle per
/// level.
pub(crate) fn peers() -> [Peer; 3] {
    let held = Recorded::new();
    let handle = held.handle("tenant-0000");
    let lookup = Recorded::new();
    let by_label = lookup.clone();
    let levels: [Recorded; LEVELS] = array::from_fn(|_| Recorded::new());
    let handles = levels.each_ref().map(|level| level.handle("tenant-0000"));
    [
        Peer::new(
            "metrics",
            Case::Held,
            move |requests| requests.iter().for_each(|_| handle.increment(1)),
            move |_| vec![held.total()],
        ),
        Peer::new(
            "metrics",
            Case::Lookup,
            move |requests| {
                // Set once per batch, as a program sets its recorder once: the macro looks for a
                // local recorder before the global one.
                with_local_recorder(&by_label, || {
                    for tenant in requests {
                        // A label that is not a literal must be owned.
                        counter!(REQUESTS, "tenant" => tenant.clone()).increment(1);
                    }
                });
            },
            move |_| vec![lookup.total()],
        ),
        Peer::new(
            "metrics",
            Case::Levels,
            move |requests| {
                for _ in requests {
                    handles.iter().for_each(|handle| handle.increment(1));
                }
            },
            move |_| levels.iter().map(Recorded::total).collect(),
        ),
    ]
}

/// A recorder that supports only counters.
#[derive(Clone)]
struct Recorded(Arc<Registry<Key, AtomicStorage>>);

impl Recorded {
    fn new() -> Recorded {
        Recorded(Arc::new(Registry::atomic()))
    }

    fn handle(&self, tenant: &str) -> Counter {
        with_local_recorder(self, || counter!(REQUESTS, "tenant" => tenant.to_owned()))
    }

    fn total(&self) -> u64 {
        let mut total = 0;
        // Relaxed: a statistic, exact once the counting threads were joined.
        self.0.visit_counters(|_, counter| total += counter.load(Ordering::Relaxed));
        total
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.0.get_or_create_counter(key, |counter| Counter::from_arc(Arc::clone(counter)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.get_or_create_gauge(key, |gauge| Gauge::from_arc(Arc::clone(gauge)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.get_or_create_histogram(key, |histogram| Histogram::from_arc(Arc::clone(histogram)))
    }
}
