//! How long charges waited.

use submeter_percpu::Pressure;

use crate::metric::schema::Quota;
use crate::metric::unit::Unit;
use crate::tree::group::Group;

impl Group {
    /// Returns how long charges of this group and its descendants waited for room, up to this
    /// moment: by [`charge`](Group::charge) and [`charge_blocking`](Group::charge_blocking), for
    /// whichever limit on the way to the root.
    ///
    /// Costs a lock, which waiters for this quota share, or a load if no charge of the group ever
    /// waited. Nothing is timed while no charge waits. Refused charges do not wait: for these see
    /// [`Usage::refused`].
    ///
    /// Not for signal handlers. In a forked child in which another thread of the parent stayed
    /// behind as it began to wait, no charge can wait, and this is 0.
    ///
    /// # Differences from Linux
    /// A cgroup is fully stalled while some of its tasks wait and none runs. Tasks are unknown
    /// here: a group is fully stalled while some of its charges wait and it holds nothing. Averages
    /// are brought up to date when a charge waits or a caller asks, so there is no timer, and no
    /// trigger.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(100));
    ///
    /// let (web, mail) = (tree.create("/web")?, tree.create("/mail")?);
    /// let held = web.try_charge(memory, 60)?;
    /// mail.charge_blocking(memory, 50, Duration::from_millis(2)).expect_err("web holds 60");
    /// // Mail could not continue at all, while web has something to continue with.
    /// assert!(mail.pressure(memory).full.total >= Duration::from_millis(1));
    /// assert_eq!(tree.root().pressure(memory).full.total, Duration::ZERO);
    /// println!("{}", mail.pressure(memory)); // like a cgroup's memory.pressure
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    ///
    /// [`Usage::refused`]: crate::Usage::refused
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn pressure<U: Unit>(&self, quota: Quota<U>) -> Pressure {
        self.inner.quotas.pressure(self.quota_slot(quota.key))
    }

    /// Returns the pressure by slot, for quotas for which a charge waited.
    pub(crate) fn pressures(&self) -> Box<[(usize, Pressure)]> {
        let slots = 0..self.schema().quotas();
        let pressures = slots.map(|slot| (slot, self.inner.quotas.pressure(slot)));
        pressures.filter(|(_, pressure)| *pressure != Pressure::default()).collect()
    }
}
