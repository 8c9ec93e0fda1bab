//! What a schema has a switch meter.

use super::meters;
use crate::metric::schema::{Counter, RateLimit, Schema};
use crate::metric::unit::Nanoseconds;

/// What a switch wants to know of a schema: copied, since the way to it from a group is four
/// pointers long.
pub(super) struct Metered {
    pub(super) schema_id: u32,
    pub(super) cpu_time: Option<Counter<Nanoseconds>>,
    pub(super) off_cpu: Option<Counter<Nanoseconds>>,
    pub(super) budget: Option<RateLimit<Nanoseconds>>,
    pub(super) events: bool,
    /// More than CPU time.
    pub(super) more: bool,
}

impl Metered {
    /// Belongs to no schema: schemas are numbered from 0, and no program makes so many.
    pub(super) const NOTHING: Metered = Metered {
        schema_id: u32::MAX,
        cpu_time: None,
        off_cpu: None,
        budget: None,
        events: false,
        more: false,
    };

    #[cold]
    #[inline(never)]
    pub(super) fn of(schema: &Schema) -> Metered {
        let (off_cpu, events) = (schema.off_cpu(), meters::are_declared(schema));
        let (cpu_time, budget) = (schema.cpu_time(), schema.cpu_budget());
        let more = events || off_cpu.is_some() || budget.is_some();
        Metered { schema_id: schema.id(), cpu_time, off_cpu, budget, events, more }
    }
}
