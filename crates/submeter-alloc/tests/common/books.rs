//! The books of a test program, whose global allocator is an `Exact`.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use submeter::{Group, Schema, Tree};
use submeter_alloc::Live;
use submeter_alloc::exact::Heap;

pub(crate) struct Books {
    pub(crate) tree: Tree,
    pub(crate) live: Live,
    pub(crate) heap: Heap,
}

/// Returns the books. A process has one, which one test at a time uses.
pub(crate) fn books() -> (&'static Books, MutexGuard<'static, ()>) {
    static BOOKS: OnceLock<Books> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let books = BOOKS.get_or_init(|| {
        let mut schema = Schema::builder();
        let live: Live = schema.declare();
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let heap = Heap::start(&tree, live).expect("the first");
        Books { tree, live, heap }
    });
    (books, alone)
}

impl Books {
    /// Returns the live bytes of a group.
    pub(crate) fn of(&self, group: &Group) -> i64 {
        self.heap.flush();
        group.sum(self.live.bytes)
    }

    /// Compares the books with the tree.
    #[track_caller]
    pub(crate) fn must_balance(&self) {
        let balance = self.heap.balance();
        assert_eq!(balance.booked_bytes, balance.attributed_bytes, "{balance:?}");
    }
}
