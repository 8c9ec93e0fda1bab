//! The samples of a test program, whose global allocator is a `Sampled`.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use submeter::{Group, Schema, Tree};
use submeter_alloc::sampled::{Heap, Live};

pub(crate) struct Samples {
    pub(crate) tree: Tree,
    pub(crate) live: Live,
    pub(crate) heap: Heap,
}

/// Returns the samples. A process has one set, which one test at a time uses.
pub(crate) fn samples() -> (&'static Samples, MutexGuard<'static, ()>) {
    static SAMPLES: OnceLock<Samples> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let samples = SAMPLES.get_or_init(|| {
        let mut schema = Schema::builder();
        let live: Live = schema.declare();
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let heap = Heap::start(&tree, live).expect("the first");
        Samples { tree, live, heap }
    });
    (samples, alone)
}

impl Samples {
    /// Returns the estimated live bytes of a group.
    pub(crate) fn of(&self, group: &Group) -> i64 {
        self.heap.flush();
        group.sum(self.live.bytes)
    }

    /// Returns how many samples there are.
    pub(crate) fn count(&self, group: &Group) -> i64 {
        self.heap.flush();
        group.sum(self.live.samples)
    }

    /// Compares the estimate with the truth: it must be within five standard errors, which chance
    /// exceeds once in a million tests.
    #[track_caller]
    pub(crate) fn must_be_near(&self, group: &Group, truth: i64) {
        let (estimate, samples) = (self.of(group), self.count(group));
        let far = (estimate - truth).unsigned_abs();
        let errors = 5 * self.live.error_bytes(group) + 5 * 65_536;
        assert!(far < errors, "{group:?}: {estimate} by {samples} samples for {truth}");
    }

    /// Compares the books with the tree.
    #[track_caller]
    pub(crate) fn must_balance(&self) {
        let balance = self.heap.balance();
        assert_eq!(balance.booked_bytes, balance.attributed_bytes, "{balance:?}");
    }
}
