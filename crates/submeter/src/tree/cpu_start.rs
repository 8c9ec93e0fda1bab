//! When a tree began to account for CPU time.

use submeter_sys::{clock, fork};

use crate::metric::schema::Schema;

/// The start of a tree's accounting of CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuStart {
    pub(crate) process_ns: u64,
    /// [`fork::generation`] of the process that this belongs to.
    pub(crate) generation: u32,
}

impl CpuStart {
    /// Notes the current time, if `schema` meters CPU time.
    pub(crate) fn of(schema: &Schema) -> Option<CpuStart> {
        schema.cpu_time()?;
        // Done here and not in the first switch: there the clock's self-test would delay a request,
        // and the program may already have restricted its system calls.
        clock::choice();
        fork::watch();
        Some(CpuStart { process_ns: clock::process_cpu_ns(), generation: fork::generation() })
    }
}
