//! From the value of a field to a group, for any value and any number of tenants.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use submeter::Group;

/// The group for tenants that get none of their own. A tenant may have any name that a group can
/// have, so this name must be legal too; a tenant with this name is refused.
const OTHER: &str = ":other";

/// The parent of the tenants' groups, and how many may be created.
#[derive(Debug)]
pub(crate) struct Tenants {
    parent: Group,
    max: usize,
    /// Held from checking the number of groups until one is added.
    creating: Mutex<()>,
    refused: AtomicU64,
    folded: AtomicU64,
}

impl Tenants {
    pub(crate) fn new(parent: &Group, max: usize) -> Tenants {
        let (refused, folded) = (AtomicU64::new(0), AtomicU64::new(0));
        Tenants { parent: parent.clone(), max, creating: Mutex::new(()), refused, folded }
    }

    /// Returns the tenant's group or `:other`; `None` if not even that can be created, as when the
    /// parent was killed.
    pub(crate) fn find(&self, name: &str) -> Option<Group> {
        if name == OTHER {
            return self.other(&self.refused);
        }
        if let Some(group) = self.parent.child(name) {
            return Some(group);
        }
        let creating = self.creating.lock();
        // `:other` is no tenant, and takes no tenant's place.
        let others = usize::from(self.parent.child(OTHER).is_some());
        // Saturating: the program may kill `:other` in between.
        let full = self.parent.child_count().saturating_sub(others) >= self.max;
        let counter = match (!full).then(|| self.parent.get_or_create_child(name)) {
            Some(Ok(group)) => return Some(group),
            Some(Err(error)) if error.is_invalid_name() => &self.refused,
            _ => &self.folded,
        };
        drop(creating);
        self.other(counter)
    }

    /// Counts the reason, and returns `:other`.
    fn other(&self, why: &AtomicU64) -> Option<Group> {
        // Relaxed: a statistic.
        why.fetch_add(1, Ordering::Relaxed);
        self.parent.get_or_create_child(OTHER).ok()
    }

    pub(crate) fn parent(&self) -> &Group {
        &self.parent
    }

    pub(crate) fn refused(&self) -> u64 {
        // Relaxed: a statistic.
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn folded(&self) -> u64 {
        // Relaxed: a statistic.
        self.folded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use submeter::{Schema, Tree};

    use super::*;

    /// Here rather than through spans, whose cost would keep threads from meeting.
    #[test]
    fn no_race_makes_too_many_groups_stress() {
        const THREADS: usize = 2;
        let rounds = if cfg!(miri) { 3 } else { 5000 };
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
        let parent = |round| tree.create(&format!("/p{round}")).expect("room");
        let all: Vec<_> = (0..rounds).map(|round| Tenants::new(&parent(round), 1)).collect();
        let arrived = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (all, arrived) = (&all, &arrived);
                scope.spawn(move || {
                    for (round, tenants) in all.iter().enumerate() {
                        // Relaxed, and below: only when it begins matters, and nothing is handed
                        // over.
                        arrived.fetch_add(1, Ordering::Relaxed);
                        while arrived.load(Ordering::Relaxed) < (round + 1) * THREADS {
                            // A spin lets both begin at once; a barrier would wake them one by one.
                            thread::yield_now();
                        }
                        assert!(tenants.find(&format!("t{thread}")).is_some());
                    }
                });
            }
        });
        let named = all.iter().filter(|one| one.parent().child("t0").is_some()).count();
        assert!(cfg!(miri) || (1..all.len()).contains(&named), "one of them always came first");
        for tenants in &all {
            assert_eq!(tenants.parent().child_count(), 2, "one tenant, and `:other`");
            assert_eq!(tenants.folded(), 1);
        }
    }
}
