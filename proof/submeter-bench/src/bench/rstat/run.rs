//! The result of one run of a workload, for one of its threads or for all of them.

use super::clock::Clock;
use super::designs::Design;
use super::reading;
use super::times::{Times, Unit};
use crate::bench::record::Reading;

/// The time of flushes, and how long they kept updates waiting.
pub(super) struct Flushes {
    holds: Times,
    flushes: Times,
    nodes: u64,
    hold_ns: u64,
    flush_ns: u64,
}

impl Flushes {
    pub(super) fn new() -> Flushes {
        let (holds, flushes) = (Times::new(), Times::new());
        Flushes { holds, flushes, nodes: 0, hold_ns: 0, flush_ns: 0 }
    }

    /// Flushes and measures the time.
    pub(super) fn flush<D: Design>(
        &mut self,
        design: &D,
        clock: &Clock,
        group: u32,
        scratch: &mut Vec<u64>,
    ) {
        scratch.clear();
        let from = clock.ticks();
        let nodes = design.flush(group, scratch);
        let took = clock.since_ns(from);
        self.flushes.add(took);
        self.flush_ns += took;
        self.nodes += nodes;
        for &ns in scratch.iter() {
            self.holds.add(ns);
            self.hold_ns += ns;
        }
    }

    /// Adds the flushes of another thread.
    fn merge(&mut self, other: &Flushes) {
        self.holds.merge(&other.holds);
        self.flushes.merge(&other.flushes);
        self.nodes += other.nodes;
        self.hold_ns += other.hold_ns;
        self.flush_ns += other.flush_ns;
    }

    /// Appends the readings.
    fn push_readings(&self, to: &mut Vec<Reading>) {
        self.holds.push_readings("hold", Unit::Microseconds, to);
        self.flushes.push_readings("flush", Unit::Microseconds, to);
        if self.nodes > 0 {
            let nodes = self.nodes as f64;
            let flushes = self.flushes.len().max(1) as f64;
            to.push(reading("nodes_per_flush", "nodes", nodes / flushes));
            to.push(reading("flush_per_node", "ns", self.flush_ns as f64 / nodes));
            if self.holds.len() > 0 {
                to.push(reading("hold_per_node", "ns", self.hold_ns as f64 / nodes));
            }
        }
    }
}

/// The result of a run.
pub(super) struct Run {
    pub(super) flushes: Flushes,
    /// How long each update took, if it was timed.
    pub(super) waits: Times,
    pub(super) updates: u64,
    /// The time that all threads together spent on updates.
    busy_ns: u64,
    per_s: f64,
    preemptions: u64,
}

impl Run {
    /// Makes the result of a thread that only flushed.
    pub(super) fn of_flushes(flushes: Flushes) -> Run {
        Run { flushes, waits: Times::new(), updates: 0, busy_ns: 0, per_s: 0.0, preemptions: 0 }
    }

    /// Makes the result of a thread that made `updates` in `busy_ns`, and may have flushed.
    pub(super) fn of_updates(
        flushes: Flushes,
        waits: Times,
        updates: u64,
        busy_ns: u64,
        preemptions: u64,
    ) -> Run {
        let per_s = updates as f64 / (busy_ns.max(1) as f64 / 1e9);
        Run { flushes, waits, updates, busy_ns, per_s, preemptions }
    }

    /// Adds the result of another thread.
    pub(super) fn merge(mut self, other: &Run) -> Run {
        self.flushes.merge(&other.flushes);
        self.waits.merge(&other.waits);
        self.updates += other.updates;
        self.busy_ns += other.busy_ns;
        self.per_s += other.per_s;
        self.preemptions += other.preemptions;
        self
    }

    /// Returns the figures of a sample. Flushes and rates come from a run without timestamps,
    /// because a timestamp takes longer than an update. Without such a run the load is fixed, and
    /// its rate would mean nothing.
    pub(super) fn figures(fast: Option<&Run>, stamped: &Run) -> Vec<Reading> {
        let mut readings = Vec::new();
        fast.unwrap_or(stamped).flushes.push_readings(&mut readings);
        stamped.waits.push_readings("wait", Unit::Nanoseconds, &mut readings);
        stamped.waits.push_tail("wait", &mut readings);
        let preemptions = stamped.preemptions as f64;
        readings.push(reading("preemptions", "count", preemptions).summed());
        if let Some(fast) = fast {
            let per_update = fast.busy_ns as f64 / fast.updates.max(1) as f64;
            readings.push(reading("update", "ns", per_update));
            readings.push(reading("rate", "updates/s", fast.per_s.round()));
        }
        readings
    }
}
