//! CPU time that the switch, and the end of a group, spend from a budget.

use std::iter::{once, successors};

use submeter_percpu::TokenBucket;

use super::{Group, GroupInner};
use crate::metric::schema::{Counter, RateLimit};
use crate::metric::unit::{Nanoseconds, UnitKind};

impl Group {
    /// Adds to the counter of CPU time, unless that may complete a batch of the CPU's own word:
    /// then it returns false, and the caller must use [`add_spending`](Self::add_spending).
    #[inline(always)]
    pub(crate) fn add_within(&self, counter: Counter<Nanoseconds>, used_ns: u64) -> bool {
        let (stats, word) = (self.group_stats(counter.key), usize::from(counter.key.slot));
        stats.add_within(word, used_ns.cast_signed(), UnitKind::Nanoseconds.batch_mask())
    }

    /// Adds to the counter of CPU time and, if there is a budget, spends from it what has
    /// accumulated. It does so once per batch, since otherwise each switch would pay for an
    /// exchange at each level.
    pub(crate) fn add_spending(
        &self,
        counter: Counter<Nanoseconds>,
        budget: Option<RateLimit<Nanoseconds>>,
        used_ns: u64,
    ) {
        let (stats, word) = (self.group_stats(counter.key), usize::from(counter.key.slot));
        let mask = UnitKind::Nanoseconds.batch_mask();
        stats.add_otherwise(word, used_ns.cast_signed(), mask, || {
            if let Some(budget) = budget {
                self.inner.spend_used(stats.own(word), usize::from(budget.key.slot));
            }
        });
    }
}

impl GroupInner {
    /// Spends what the group has used so far and has not yet spent. Visits all CPUs.
    #[cold]
    fn spend_used(&self, used_ns: i64, slot: usize) {
        let n = self.extras.spent(used_ns);
        let above = successors(self.parent.as_ref(), |group| group.parent());
        let above = above.map(|group| group.inner.extras.rate(slot));
        TokenBucket::spend(once(self.extras.rate(slot)).chain(above), n);
    }
}

/// Spends the rest: otherwise a tenant that makes a group for each request would use CPU time
/// without paying for it.
impl Drop for GroupInner {
    fn drop(&mut self) {
        let schema = self.tree.first_schema();
        if let (Some(budget), Some(counter)) = (schema.cpu_budget(), schema.cpu_time())
            && let Some(stats) = self.words_of(counter.key.section)
        {
            let used_ns = stats.own(usize::from(counter.key.slot));
            self.spend_used(used_ns, usize::from(budget.key.slot));
        }
    }
}
