//! Libraries for Prometheus, whose counters are members of a family: `prometheus-client` and
//! `measured`.

use std::array;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use measured::CounterVec;
use measured::LabelGroup;
use paracord::ParaCord;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::{Case, LEVELS, Peer};

/// Returns both libraries, in the cases that they support.
pub(crate) fn peers() -> Vec<Peer> {
    let mut peers = Vec::from(prometheus_client());
    peers.extend(measured());
    peers
}

/// The labels of `prometheus-client`: any type that can be hashed and encoded.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    tenant: String,
}

fn prometheus_client() -> [Peer; 3] {
    let held = Counter::<u64>::default();
    let count = held.clone();
    let levels: [Counter; LEVELS] = array::from_fn(|_| Counter::default());
    let charge = levels.clone();
    let family = Family::<Labels, Counter>::default();
    let by_label = family.clone();
    [
        Peer::new(
            "prometheus_client",
            Case::Held,
            move |requests| requests.iter().for_each(|_| _ = count.inc()),
            move |_| vec![held.get()],
        ),
        Peer::new(
            "prometheus_client",
            Case::Lookup,
            move |requests| {
                for tenant in requests {
                    by_label.get_or_create(&Labels { tenant: tenant.clone() }).inc();
                }
            },
            move |tenants| {
                let labels = tenants.iter().map(|tenant| Labels { tenant: tenant.clone() });
                vec![labels.map(|labels| family.get(&labels).map_or(0, |c| c.get())).sum()]
            },
        ),
        Peer::new(
            "prometheus_client",
            Case::Levels,
            move |requests| {
                for _ in requests {
                    charge.iter().for_each(|counter| _ = counter.inc());
                }
            },
            move |_| levels.iter().map(|counter| counter.get()).collect(),
        ),
    ]
}

/// The labels of `measured`: text that it interns, because it is not known at compile time.
#[derive(Clone, Copy, Debug, PartialEq, LabelGroup)]
#[label(set = TenantSet)]
struct Tenant<'a> {
    #[label(dynamic_with = ParaCord, default)]
    tenant: &'a str,
}

fn measured() -> [Peer; 2] {
    let held = Arc::new(measured::Counter::new());
    let count = Arc::clone(&held);
    let labelled = Arc::new(CounterVec::with_label_set(TenantSet::new()));
    let by_label = Arc::clone(&labelled);
    [
        Peer::new(
            "measured",
            Case::Held,
            move |requests| requests.iter().for_each(|_| count.inc()),
            // Relaxed: a statistic, exact once the counting threads were joined.
            move |_| vec![held.get_metric().count.load(Ordering::Relaxed)],
        ),
        Peer::new(
            "measured",
            Case::Lookup,
            move |requests| requests.iter().for_each(|tenant| by_label.inc(Tenant { tenant })),
            move |tenants| {
                let of = |tenant: &String| {
                    let id = labelled.with_labels(Tenant { tenant });
                    // Relaxed: a statistic, exact once the counting threads were joined.
                    labelled.get_metric(id).count.load(Ordering::Relaxed)
                };
                vec![tenants.iter().map(of).sum()]
            },
        ),
    ]
}
