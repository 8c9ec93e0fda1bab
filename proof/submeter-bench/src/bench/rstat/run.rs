//! What one run of a workload found, by one of its threads or by all of them.

use super::clock::Clock;
use super::designs::Design;
use super::reading;
use super::times::{Times, Unit};
use crate::bench::record::Reading;

/// What flushes took, and for how long they kept updates waiting.
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

    /// Flushes and takes the time.
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

    /// Adds those of another thread.
    fn merge(&mut self, other: &Flushes) {
        self.holds.merge(&other.holds);
        self.flushes.merge(&other.flushes);
        self.nodes += other.nodes;
        self.hold_ns += other.hold_ns;
        self.flush_ns += other.flush_ns;
    }

    /// Appends what there is to say.
    fn tell(&self, to: &mut Vec<Reading>) {
        self.holds.tell("hold", Unit::Microseconds, to);
        self.flushes.tell("flush", Unit::Microseconds, to);
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

/// What a run found.
pub(super) struct Run {
    pub(super) flushes: Flushes,
    /// How long each update took, where that was asked for.
    pub(super) waits: Times,
    pub(super) updates: u64,
    /// How long threads updated, together.
    busy_ns: u64,
    per_s: f64,
    preemptions: u64,
}

impl Run {
    /// Makes that of a thread which flushed and did nothing else.
    pub(super) fn of_flushes(flushes: Flushes) -> Run {
        Run { flushes, waits: Times::new(), updates: 0, busy_ns: 0, per_s: 0.0, preemptions: 0 }
    }

    /// Makes that of a thread which made so many updates in so much time, and flushed or did not.
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

    /// Adds that of a thread beside it.
    pub(super) fn merge(mut self, other: &Run) -> Run {
        self.flushes.merge(&other.flushes);
        self.waits.merge(&other.waits);
        self.updates += other.updates;
        self.busy_ns += other.busy_ns;
        self.per_s += other.per_s;
        self.preemptions += other.preemptions;
        self
    }

    /// Returns the figures of a sample: of flushes and rates those of a run without stamps, which
    /// take longer than updates do. Where there is none, the load is given, and its rate says
    /// nothing.
    pub(super) fn figures(fast: Option<&Run>, stamped: &Run) -> Vec<Reading> {
        let mut readings = Vec::new();
        fast.unwrap_or(stamped).flushes.tell(&mut readings);
        stamped.waits.tell("wait", Unit::Nanoseconds, &mut readings);
        stamped.waits.tell_tail("wait", &mut readings);
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
