//! The meters that a schema asks a switch for.

use super::meters;
use crate::metric::schema::{Counter, Metering, RateLimit, Schema};
use crate::metric::unit::Nanoseconds;

/// The part of a schema that a switch needs. A copy, since the way to the schema from a group is
/// four pointers long.
pub(super) struct Metered {
    pub(super) schema_id: u32,
    pub(super) cpu_time: Option<Counter<Nanoseconds>>,
    /// For what [`beside`](super::thread::beside) returns.
    pub(super) beside: [Option<Counter<Nanoseconds>>; 2],
    pub(super) budget: Option<RateLimit<Nanoseconds>>,
    pub(super) events: bool,
    pub(super) counts: Option<Metering>,
    /// More than CPU time.
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
        let more = events || budget.is_some() || counts.is_some() || beside_any;
        Metered { schema_id: schema.id(), cpu_time, beside, budget, events, counts, more }
    }
}
