//! jemalloc's own counts for each thread, charged to groups: the guide's chapter on heap shows this
//! file.

use submeter::switch::{THREAD_COUNTS, ThreadMeter};
use submeter::{Bytes, SchemaBuilder};
use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};

thread_local! {
    /// Where jemalloc counts for this thread; `None` if it is not linked.
    static COUNTS: [Option<ThreadLocal<u64>>; 2] =
        [allocatedp::read().ok(), deallocatedp::read().ok()];
}

struct Jemalloc;

impl ThreadMeter for Jemalloc {
    #[inline]
    fn counts(&self) -> [u64; THREAD_COUNTS] {
        let read = |count: &Option<ThreadLocal<u64>>| count.as_ref().map_or(0, |count| count.get());
        let counts = COUNTS.try_with(|counts| counts.each_ref().map(read));
        let [allocated, freed] = counts.unwrap_or_default();
        [allocated, freed, 0, 0]
    }
}

/// Declares the counters of what threads allocate and free while they work for a group.
pub fn declare_own_counts(schema: &mut SchemaBuilder) {
    let help = ["Heap memory allocated, by jemalloc", "Heap memory freed, by jemalloc"];
    for (at, name) in ["heap_allocated_bytes", "heap_freed_bytes"].into_iter().enumerate() {
        let _counter = schema.thread_count::<Bytes, _>(name, help[at], &Jemalloc, at);
    }
}
