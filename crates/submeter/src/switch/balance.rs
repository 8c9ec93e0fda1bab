//! The part of the process's CPU time that was charged to groups.

use submeter_sys::{clock, fork};

use crate::metric::totals::Restored;
use crate::tree::tree::Tree;

/// The CPU time of the process since a tree was made. See [`Tree::cpu_balance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuBalance {
    /// The CPU time of all threads, as the kernel counts it.
    pub process_ns: u64,
    /// The part that was charged to the tree's groups.
    pub attributed_ns: u64,
}

impl CpuBalance {
    /// Returns the part that was charged to no group.
    #[must_use]
    pub fn unattributed_ns(&self) -> u64 {
        // The two are read one after the other, and a thread's clock may be slightly ahead of the
        // kernel's.
        self.process_ns.saturating_sub(self.attributed_ns)
    }
}

impl Tree {
    /// Compares the CPU time charged to the tree's groups with that of the process since the tree
    /// was created: the groups' time and the [unattributed](CpuBalance::unattributed_ns) time add
    /// up to the process's. Time restored from a checkpoint is in neither. Returns `None` if the
    /// schema declares no CPU time, and in a forked child, where the kernel counts from 0 again.
    ///
    /// Costs a flush of one section, and a system call that visits each thread: use it for pages
    /// and tests, not for each request. The calling thread is charged first, as by
    /// [`park`](super::park). Other threads in a group are charged when they leave it or park: what
    /// each has used since its last switch is not attributed yet.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// schema.cpu_time("cpu", "CPU time used");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.create("/web")?.run(|| "42".repeat(1000).len());
    /// let balance = tree.cpu_balance().expect("declared above");
    /// assert!(balance.attributed_ns > 0);
    /// println!("{} ns in no group", balance.unattributed_ns());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cpu_balance(&self) -> Option<CpuBalance> {
        let counter = self.schema().cpu_time()?;
        let start = self.cpu_start()?;
        if start.generation != fork::generation() {
            return None;
        }
        super::park();
        // Held for the flush, and recursive: see `Tree::snapshot_and_past`.
        let restored = self.restored().read_recursive();
        let word = self.schema().word(counter.key).expect("of this schema");
        let of_others =
            |restored: &Restored| restored.base.get(&self.root().id())?.get(word).copied();
        let of_others: i64 = restored.iter().filter_map(of_others).fold(0, i64::wrapping_add);
        let attributed_ns = self.root().sum(counter).wrapping_sub(of_others.cast_unsigned());
        drop(restored);
        // After the sum, so that time charged between the two is included here.
        let process_ns = clock::process_cpu_ns().saturating_sub(start.process_ns);
        Some(CpuBalance { process_ns, attributed_ns })
    }
}
