//! The usage above which callers pause.

use std::iter::successors;
use std::time::Duration;

use super::Usage;
use crate::metric::schema::Quota;
use crate::metric::unit::Unit;
use crate::tree::group::Group;

/// The shape of Linux (`memory.high`): the square of the overage, which is 1 at twice `high`, in
/// units of 64 s for each batch of charges, and at most 2 s.
const PER_SQUARE: Duration = Duration::from_secs(64);
const MOST: Duration = Duration::from_secs(2);
/// A shorter pause is not worth a switch of threads; Linux has the same bound.
const LEAST: Duration = Duration::from_millis(10);

impl Group {
    /// Sets or removes the usage of a quota above which this group's callers are asked to pause,
    /// and returns the usage at that moment.
    ///
    /// It refuses nothing: callers ask [`pause`](Group::pause) where a pause harms no other thread,
    /// for example between requests. Set it below a limit, so that a group slows down before it is
    /// refused.
    ///
    /// # Examples
    /// See [`pause`](Group::pause).
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn set_high<U: Unit>(&self, quota: Quota<U>, high: Option<u64>) -> Usage {
        let limits = self.limits(self.quota_slot(quota.key));
        limits.set_high(high.unwrap_or(u64::MAX));
        limits.usage()
    }

    /// Returns the nearest group, from this one up, whose usage is above the amount that
    /// [`set_high`](Group::set_high) set, and by how much: for callers that then give something
    /// back, like caches, instead of pausing.
    ///
    /// Costs a load for each level while usage is below.
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Bytes, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// # let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_high(memory, Some(1000));
    /// let web = tree.create("/web")?;
    /// let held = web.try_charge(memory, 1100)?;
    /// assert_eq!(web.above_high(memory), Some((tree.root(), 100)));
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn above_high<U: Unit>(&self, quota: Quota<U>) -> Option<(&Group, u64)> {
        let slot = self.quota_slot(quota.key);
        successors(Some(self), |group| group.parent()).find_map(|group| {
            let limits = group.inner.quotas.get(slot)?;
            let high = limits.high();
            if limits.node.usage_at_most() <= high {
                return None;
            }
            let above = limits.node.usage().current.saturating_sub(high);
            (above > 0).then_some((group, above))
        })
    }

    /// Returns how long a caller of this group should pause, because the usage of the group or an
    /// ancestor is above what [`set_high`](Group::set_high) set; `None` if none is.
    ///
    /// The pause grows with the square of the overage, from 10 ms at 1.25 % to 2 s at 18 % and
    /// above. The group that is farthest above its own `high` determines it. Each group that is
    /// above counts it, in [`UsageCounts::paused`](crate::UsageCounts::paused) and in the counter
    /// `NAME_paused` of an export.
    ///
    /// Costs a load for each level while usage is below; above, as much as
    /// [`usage`](Group::usage). Not for update paths.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// let web = tree.create("/web")?;
    /// web.set_limit(memory, Some(2000));
    /// web.set_high(memory, Some(1000));
    ///
    /// let mut held = web.try_charge(memory, 1000)?;
    /// assert_eq!(web.pause(memory), None);
    /// held.resize(1125)?; // granted, though an eighth above
    /// assert_eq!(web.pause(memory), Some(Duration::from_secs(1)));
    /// assert_eq!(web.usage(memory).counts.paused, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    ///
    /// # Differences from Linux
    /// The kernel makes the thread that charged sleep on its way back to user space, for a time
    /// that grows with what it charged. Here the caller decides where to sleep, and asks as often
    /// as it can.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn pause<U: Unit>(&self, quota: Quota<U>) -> Option<Duration> {
        let slot = self.quota_slot(quota.key);
        let pauses = successors(Some(self), |group| group.parent()).filter_map(|group| {
            let limits = group.inner.quotas.get(slot)?;
            let high = limits.high();
            if limits.node.usage_at_most() <= high {
                return None;
            }
            let pause = pause(limits.node.usage().current, high)?;
            limits.count_pause();
            group.add_paused(quota.key);
            Some(pause)
        });
        pauses.max()
    }
}

/// Returns how long to pause at this usage.
fn pause(current: u64, high: u64) -> Option<Duration> {
    // A `high` of 0 counts as 1.
    let overage = current.saturating_sub(high) as f64 / high.max(1) as f64;
    let pause = PER_SQUARE.mul_f64((overage * overage).min(1.0)).min(MOST);
    (pause >= LEAST).then_some(pause)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause grows with the square of the overage between 10 ms and 2 s.
    #[test]
    fn a_pause_grows_with_the_square_of_the_overage() {
        let ms = |current, high| pause(current, high).map(|pause| pause.as_millis());
        assert_eq!([0, 999, 1000, 1012].map(|current| ms(current, 1000)), [None; 4]);
        assert_eq!(ms(1_012_500, 1_000_000), Some(10), "1.25 %");
        assert_eq!(ms(1_025_000, 1_000_000), Some(40), "twice the overage, four times the pause");
        assert_eq!(ms(1_100_000, 1_000_000), Some(640));
        assert_eq!(ms(1_180_000, 1_000_000), Some(2_000));
        assert_eq!([ms(u64::MAX, 1), ms(u64::MAX, 0), ms(1, 0)], [Some(2_000); 3]);
        assert_eq!(ms(u64::MAX, u64::MAX), None, "without one");
    }
}
