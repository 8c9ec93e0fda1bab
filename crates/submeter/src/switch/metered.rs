//! The meters that a schema asks a switch for.

use super::meters;
use crate::metric::schema::{Counter, Metering, RateLimit, Schema};
use crate::metric::unit::Nanoseconds;
use crate::tree::group::Group;

/// The part of a schema that a switch needs. It is a copy, because a group's schema is four
/// pointers away.
pub(super) struct Metered {
    pub(super) schema_id: u32,
    pub(super) cpu_time: Option<Counter<Nanoseconds>>,
    /// For the values that [`beside`](super::thread::beside) returns.
    pub(super) beside: [Option<Counter<Nanoseconds>>; 2],
    /// Costs a switch nothing: it is looked at once per batch of CPU time.
    pub(super) budget: Option<RateLimit<Nanoseconds>>,
    pub(super) events: bool,
    pub(super) counts: Option<Metering>,
    /// Whether anything but CPU time and its budget is metered.
    pub(super) more: bool,
}

impl Metered {
    /// Belongs to no schema: schemas are numbered from 0, and no program creates that many.
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

    /// Adds CPU time, and spends it. It runs once per batch and loads what it needs itself, so a
    /// budget costs the switch no instruction.
    #[cold]
    #[inline(never)]
    pub(super) fn add_spending(&self, group: &Group, used_ns: u64) {
        if let Some(counter) = self.cpu_time {
            group.add_spending(counter, self.budget, used_ns);
        }
    }
}
