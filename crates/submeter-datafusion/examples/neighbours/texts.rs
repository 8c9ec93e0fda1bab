//! The texts of refusals.

use datafusion::execution::memory_pool::{MemoryConsumer, human_readable_size};

use crate::variants::{Kind, Tenant};

/// Makes a sort of the analyst take what it can get, and then prints what two joins are told: a
/// small one of the dashboard, and a large one of another of the analyst's queries.
pub(crate) fn print(bytes: usize) {
    for kind in Kind::ALL {
        let pools = kind.make(bytes);
        let query = |tenant| pools.query(tenant).expect("a tenant that lives");
        let first = query(Tenant::Analyst);
        let sort = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true);
        let sort = sort.register(&first.memory_pool);
        while sort.try_grow(bytes / 64).is_ok() {}
        println!("{}", kind.name());
        for (tenant, ask) in [(Tenant::Dashboard, bytes / 4), (Tenant::Analyst, bytes / 2)] {
            let query = query(tenant);
            let join = MemoryConsumer::new("HashJoinInput").register(&query.memory_pool);
            let size = human_readable_size(ask);
            match join.try_grow(ask) {
                Ok(()) => println!("  {tenant:?}, {size}: granted"),
                Err(error) => {
                    let text = error.strip_backtrace();
                    let text = text.trim_start_matches("Resources exhausted: ");
                    println!("  {tenant:?}, {size}: {}", text.replace('\n', "\n    "));
                }
            }
        }
    }
}
