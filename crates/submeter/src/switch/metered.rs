//! The meters that a schema asks a switch for.

use super::meters;
use crate::metric::schema::{Counter, Metering, RateLimit, Schema};
use crate::metric::unit::Nanoseconds;
use crate::tree::group::Group;

/// The part of a schema that a switch needs. A copy, since the way to the schema from a group is
/// four pointers long.
pub(super) struct Metered {
    pub(super) schema_id: u32,
    pub(super) cpu_time: Option<Counter<Nanoseconds>>,
    /// For what [`beside`](super::thread::beside) returns.
    pub(super) beside: [Option<Counter<Nanoseconds>>; 2],
    /// Of no cost to a switch: it is looked at once in a batch of CPU time.
    pub(super) budget: Option<RateLimit<Nanoseconds>>,
    pub(super) events: bool,
    pub(super) counts: Option<Metering>,
    /// More than CPU time and what it is spent of.
    pub(super) more: bool,
}

impl Metered {
    /// Belongs to no schema: schemas are numbered from 0, and no program makes so many.
    pub(super) const NOTHING: Metered = Metered {
        schema_id: u32::MAX,
        cpu_time: None,
        beside: [None; 2],
        budget: None,
        events: false,
        counts: None,
        more: false,
    };

    #[cold]
    #[inline(never)]
    pub(super) fn of(schema: &Schema) -> Metered {
        let beside = [schema.off_cpu(), schema.cpu_error()];
        let events = meters::are_declared(schema);
        let (cpu_time, budget) = (schema.cpu_time(), schema.cpu_budget());
        let counts = schema.metering();
        let beside_any = beside.iter().any(Option::is_some);
        let more = events || counts.is_some() || beside_any;
        Metered { schema_id: schema.id(), cpu_time, beside, budget, events, counts, more }
    }

    /// Adds CPU time, and spends it. Once in a batch: the switch has nothing of what this takes at
    /// hand, so that a budget costs it no instruction.
    #[cold]
    #[inline(never)]
    pub(super) fn add_spending(&self, group: &Group, used_ns: u64) {
        if let Some(counter) = self.cpu_time {
            group.add_spending(counter, self.budget, used_ns);
        }
    }
}
