//! Short-lived groups.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter::{Count, Counter, Group, Schema, Tree};

use crate::Running;

pub(crate) struct Tenants {
    tree: Tree,
    adds: Counter<Count>,
    /// The parent of the short-lived groups.
    churn: Group,
    churned: AtomicU64,
    added: AtomicU64,
}

impl Tenants {
    pub(crate) fn new() -> Tenants {
        let mut schema = Schema::builder();
        let adds = schema.counter("adds", "What was added");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        Tenants {
            churn: tree.create("/churn").expect("room"),
            adds,
            tree,
            churned: AtomicU64::new(0),
            added: AtomicU64::new(0),
        }
    }

    /// Repeatedly creates a group, counts in it and kills it.
    pub(crate) fn churn_until(&self, running: Running<'_>) {
        let mut rng = fastrand::Rng::with_seed(2);
        while running.go_on() {
            for _ in 0..100 {
                let n = rng.u64(1..1_000);
                let group = self.churn.create_child("moment").expect("the name is free again");
                group.add(self.adds, n);
                group.kill().expect("a live group");
                // Relaxed, both: statistics, read after the threads were joined.
                self.churned.fetch_add(1, Ordering::Relaxed);
                self.added.fetch_add(n, Ordering::Relaxed);
            }
            // Killed groups stay until a flush.
            self.tree.flush();
        }
    }

    /// Checks all totals; all threads must have been joined.
    pub(crate) fn assert_conserved(&self) {
        self.tree.flush();
        // Relaxed: every thread has been joined.
        let added = self.added.load(Ordering::Relaxed);
        assert_eq!(self.churn.read(self.adds).value, added, "of groups that are no more");
        assert_eq!(self.tree.root().read(self.adds).value, added);
    }
}

impl fmt::Display for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: a statistic.
        write!(f, "{} groups churned", self.churned.load(Ordering::Relaxed))
    }
}
