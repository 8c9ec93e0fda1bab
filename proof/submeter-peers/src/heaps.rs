//! Allocators, and what other libraries put around them.

mod own_counts;

use std::array;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use tracking_allocator::{
    AllocationGroupId, AllocationGroupToken, AllocationRegistry, AllocationTracker,
};

pub use cap::Cap;
#[cfg(feature = "datadog")]
pub use libdd_profiling_heap_allocator::SampledAllocator;
pub use mimalloc::MiMalloc;
pub use own_counts::declare_own_counts;
pub use tikv_jemallocator::Jemalloc;
pub use tracking_allocator::Allocator;

const GROUPS: usize = 64;

/// The bytes of each group of tracking-allocator, counted as in its documentation: added where a
/// block is allocated, and subtracted where it is freed.
static HELD: [AtomicU64; GROUPS] = [const { AtomicU64::new(0) }; GROUPS];

struct Held;

fn held(group: &AllocationGroupId) -> &'static AtomicU64 {
    &HELD[group.as_usize().get() % GROUPS]
}

impl AllocationTracker for Held {
    fn allocated(&self, _: usize, size: usize, _: usize, group: AllocationGroupId) {
        // Relaxed, here and below: statistics.
        held(&group).fetch_add(size as u64, Ordering::Relaxed);
    }

    fn deallocated(
        &self,
        _: usize,
        size: usize,
        _: usize,
        source: AllocationGroupId,
        _: AllocationGroupId,
    ) {
        // Relaxed: as above.
        held(&source).fetch_sub(size as u64, Ordering::Relaxed);
    }
}

/// Two groups of tracking-allocator, which count what they hold.
pub struct Tracked([AllocationGroupToken; 2]);

impl Tracked {
    /// Registers two groups.
    ///
    /// # Panics
    /// When there is no room for another one.
    #[must_use]
    pub fn new() -> Tracked {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| {
            let set = AllocationRegistry::set_global_tracker(Held);
            set.expect("nobody else has set one");
            AllocationRegistry::enable_tracking();
        });
        Tracked(array::from_fn(|_| AllocationGroupToken::register().expect("room")))
    }

    /// Works in one of them: 0 or 1.
    #[inline]
    pub fn run(&mut self, tenant: usize, work: impl FnOnce()) {
        let _entered = self.0[tenant].enter();
        work();
    }

    /// Returns the bytes that a group holds.
    #[must_use]
    pub fn held(&self, tenant: usize) -> u64 {
        // Relaxed: as above.
        held(&self.0[tenant].id()).load(Ordering::Relaxed)
    }
}

impl Default for Tracked {
    fn default() -> Tracked {
        Tracked::new()
    }
}
