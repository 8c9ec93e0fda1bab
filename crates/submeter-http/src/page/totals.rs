//! `/api/totals`: what to bill.

use std::io;

use submeter::{GroupTotals, Metric, MetricKind, Tree};
use submeter_documents::Parts;

use super::api;
use super::dashboard::Dashboard;
use super::gzip::Coding;
use super::sample::unix_ms;
use super::wire::Each;
use super::wire::totals::{FORMAT, GroupTotalsDoc, ReadingDoc, TotalsDoc};

/// Answers with everything that the tree has counted.
pub(super) fn totals(tree: &Tree, shown: &Dashboard) -> io::Result<Parts> {
    let readings = tree.totals();
    // Read after them, it has everything that they have, as a schema only grows.
    let schema = tree.schema();
    let counters = || schema.metrics().iter().filter(|metric| metric.kind() == MetricKind::Counter);
    let names: Vec<&str> = counters().map(Metric::name).collect();
    let group = |group: &GroupTotals| GroupTotalsDoc {
        id: group.id,
        parent: group.parent,
        path: group.path.to_string(),
        totals: names.iter().map(|&name| name.to_owned()).zip(group.counters.clone()).collect(),
    };
    Coding::Plain.json(&TotalsDoc {
        format: FORMAT,
        member: shown.member.clone().unwrap_or_else(|| shown.server.listen.clone()),
        units: counters().map(|metric| (metric.name().to_owned(), api::unit(metric))).collect(),
        readings: Each(|| {
            readings.iter().enumerate().map(|(index, totals)| ReadingDoc {
                epoch: hex(totals.epoch),
                sequence: totals.sequence,
                // The first reading is this process's own.
                started_ms: (index == 0).then_some(shown.server.started_ms),
                at_ms: unix_ms(totals.at),
                follows: totals.follows.iter().copied().map(hex).collect(),
                complete: totals.is_complete,
                groups: Each(|| totals.groups.iter().map(group)),
            })
        }),
    })
}

fn hex(epoch: u64) -> String {
    format!("{epoch:016x}")
}
