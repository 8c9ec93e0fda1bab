//! Charges that wait for room.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use submeter_percpu::{LimitTurn, Refused};

use super::reclaim::{MakeRoom, first_full};
use super::{Charge, LimitError, count_soft};
use crate::metric::schema::{Key, Quota};
use crate::metric::unit::Unit;
use crate::tree::group::Group;
use crate::until::until;

/// A future that is ready once a charge was granted. Created by [`Group::charge`].
///
/// It works on every runtime. Dropped before it is ready, it charges nothing, and those that wait
/// behind it have their turn. It keeps the group's storage, like a charge.
#[must_use = "it charges nothing unless it is polled"]
pub struct Charging {
    group: Group,
    key: Key,
    n: u64,
    turn: LimitTurn,
    wait: Wait,
}

impl Group {
    /// Charges `n` to this group and every ancestor as soon as all have room.
    ///
    /// Charges that wait for one limit are granted in the order in which they asked. A thread that
    /// gives something back grants it to those that fit, and wakes only these. A large request
    /// holds up smaller ones behind it, for the same limit. [`try_charge`](Group::try_charge) does
    /// not wait for them, and may take room that was released before.
    ///
    /// While no charge waits it costs as much as `try_charge`. While a charge waits for a limit,
    /// charges and releases below that limit take their slow path near the limit, and try the
    /// waiting ones until one does not fit. Not for programs that release charges in signal
    /// handlers: wakers must not run there.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(100));
    ///
    /// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// runtime.block_on(async {
    ///     let held = tree.root().try_charge(memory, 60)?;
    ///     let waits = tokio::spawn(tree.root().charge(memory, 50));
    ///     tokio::task::yield_now().await; // it asks, and there is no room
    ///     drop(held);
    ///     assert_eq!(waits.await??.amount(), 50);
    ///     # Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// When it begins to wait it asks [callbacks](Group::on_reclaim) to make room for it, and for
    /// those that wait before it, on the thread that polls it.
    ///
    /// A fork copies what waits: a future that is polled in the child asks again there, unless it
    /// was granted before.
    ///
    /// # Errors
    /// When `n` alone exceeds a limit on the way to the root, at once or once one is lowered so
    /// far, whatever waits before it. Soft limits do not count. When this group is
    /// [killed](Group::kill) while it waits, or was killed before it would have had to. In a forked
    /// child in which another thread of the parent stayed behind as it began to wait or moved
    /// stock, if the charge does not fit.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn charge<U: Unit>(&self, quota: Quota<U>, n: u64) -> Charging {
        self.quota_slot(quota.key);
        let turn = LimitTurn::default();
        Charging { group: self.clone(), key: quota.key, n, turn, wait: Wait::default() }
    }

    /// Charges `n` to this group and every ancestor as soon as all have room, and blocks the thread
    /// until then, for at most `timeout`. Not in async code, where other tasks need the thread: use
    /// [`charge`](Group::charge) [until](Charging::until) a time there.
    /// [Callbacks](Group::on_reclaim) that it asks for room are not interrupted at the timeout.
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
    /// let held = tree.root().try_charge(memory, 60)?;
    /// let late = tree.root().charge_blocking(memory, 50, Duration::from_millis(1));
    /// assert_eq!(late.expect_err("60 of 100 are held").current(), 60);
    /// drop(held);
    /// assert!(tree.root().charge_blocking(memory, 50, Duration::from_secs(1)).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When there was no room in that time, or [another](LimitError::is_behind) waited before; at
    /// once when `n` alone exceeds a limit; when this group is [killed](Group::kill) while it
    /// waits, or was killed before it would have had to.
    ///
    /// # Panics
    /// When the quota is of another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn charge_blocking<U: Unit>(
        &self,
        quota: Quota<U>,
        n: u64,
        timeout: Duration,
    ) -> Result<Charge, LimitError> {
        let (slot, mut wait) = (self.quota_slot(quota.key), Wait::default());
        let mut room = MakeRoom::new(self, slot);
        let charged = self.quota(slot).charge_blocking_with(n, timeout, |turn| {
            wait.begin(self, slot, n);
            room.attempt(turn)
        });
        wait.end(self, quota.key, n, charged)
    }
}

impl Charging {
    /// Waits at most until `timer` is ready, and then returns why the wait was in vain. A runtime's
    /// timeout around this future would drop the reason along with it.
    ///
    /// The timer is any future, such as the runtime's sleep or the kill of another group; this
    /// crate has none of its own. It is polled only while the charge waits.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Bytes, Schema, Tree};
    /// use tokio::time::sleep;
    ///
    /// let mut schema = Schema::builder();
    /// let memory = schema.quota::<Bytes>("memory", "Memory held");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().set_limit(memory, Some(100));
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    /// # runtime.block_on(async {
    /// let held = tree.root().charge(memory, 60).until(sleep(Duration::from_secs(1))).await?;
    /// let late = tree.root().charge(memory, 50).until(sleep(Duration::from_millis(1))).await;
    /// let told = "50 more of memory would exceed the limit: 60 of 100 held";
    /// assert_eq!(late.expect_err("60 are held").to_string(), told);
    /// # drop(held);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The same as [`charge_blocking`](Group::charge_blocking).
    #[doc(alias = "timeout")]
    #[doc(alias = "within")]
    pub async fn until(self, timer: impl Future) -> Result<Charge, LimitError> {
        until(self, timer, Self::give_up).await
    }

    fn give_up(&mut self) -> Result<Charge, LimitError> {
        let Charging { group, key, n, turn, wait } = self;
        let charged = group.quota(usize::from(key.slot)).give_up(turn, *n);
        wait.end(group, *key, *n, charged)
    }
}

/// What a waiting charge must do exactly once.
#[derive(Default)]
struct Wait {
    begun: bool,
    /// How many levels up the limit was that had no room.
    full: Option<usize>,
}

impl Wait {
    /// Returns whether this is the first time.
    fn begin(&mut self, group: &Group, slot: usize, n: u64) -> bool {
        let begins = !std::mem::replace(&mut self.begun, true);
        if begins {
            self.full = first_full(group, slot, n);
            // The kill may have come before this quota had anything to end. Wakes the caller too,
            // which asks again.
            if group.is_killed_meanwhile() {
                let node = group.quota(slot);
                node.end_waits();
                node.wake_ended();
            }
        }
        begins
    }

    fn end(
        &self,
        group: &Group,
        key: Key,
        n: u64,
        charged: Result<(), Refused>,
    ) -> Result<Charge, LimitError> {
        charged.map_err(|refused| LimitError::new(group, key, n, &refused))?;
        count_soft(group, key, group.quota(usize::from(key.slot)));
        if let Some(levels) = self.full {
            group.count_postponed(key, levels);
        }
        Ok(Charge { group: group.clone(), key, amount: n })
    }
}

impl Future for Charging {
    type Output = Result<Charge, LimitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Charging { group, key, n, turn, wait } = self.get_mut();
        let slot = usize::from(key.slot);
        let node = group.quota(slot);
        let mut polled = node.poll_charge(turn, *n, context);
        if polled.is_pending() && wait.begin(group, slot, *n) {
            let mut room = MakeRoom::new(group, slot);
            while polled.is_pending() && room.attempt(turn) {
                polled = node.poll_charge(turn, *n, context);
            }
        }
        polled.map(|charged| wait.end(group, *key, *n, charged))
    }
}

impl Drop for Charging {
    fn drop(&mut self) {
        if let Some(limits) = self.group.inner.quotas.get(usize::from(self.key.slot)) {
            limits.node.end_turn(&mut self.turn, self.n);
        }
    }
}

impl fmt::Debug for Charging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charging({} on {})", self.n, self.group.path())
    }
}
