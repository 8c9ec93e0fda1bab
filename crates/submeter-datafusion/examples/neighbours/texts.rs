//! What a refusal says.

use datafusion::execution::memory_pool::MemoryConsumer;

use crate::variants::{Kind, Tenant};

/// Has a sort of the analyst take what it can get, and prints what a join of the dashboard is told
/// that asks for half of the whole.
pub(crate) fn print(bytes: usize) {
    let step = bytes / 64;
    for kind in Kind::ALL {
        let pools = kind.make(bytes);
        let query = |tenant| pools.query(tenant).expect("a tenant that lives");
        let (analyst, dashboard) = (query(Tenant::Analyst), query(Tenant::Dashboard));
        let sort = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true);
        let sort = sort.register(&analyst.memory_pool);
        while sort.try_grow(step).is_ok() {}
        let join = MemoryConsumer::new("HashJoinInput").register(&dashboard.memory_pool);
        match join.try_grow(bytes / 2) {
            Ok(()) => println!(
                "{}: granted, so that {} are reserved of {bytes}",
                kind.name(),
                pools.reserved()
            ),
            Err(error) => println!("{}: {}\n", kind.name(), error.strip_backtrace()),
        }
    }
}
