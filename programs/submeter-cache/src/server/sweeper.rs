//! The background: drops expired items that are never requested, and ends connections whose time is
//! over.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::Hook;
use crate::cache::Cache;
use crate::connections::Crowd;

/// How often it looks: what has expired is dropped about this much later.
const PERIOD: Duration = Duration::from_millis(250);

/// Sweeps until the server stops. A task of its own, so that many expired items at once delay no
/// new connection.
pub(super) async fn sweep(
    cache: Cache,
    on_crowd: Option<Hook<Crowd>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0.. {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            _ = ticks.tick() => {}
        }
        cache.tenants().tick();
        let store = cache.store();
        let now = store.clock.now();
        store.flush_if_due(now);
        cache.connections().end_overdue(now.ms);
        if let Some(Hook(hook)) = &on_crowd
            && let Some(crowd) = cache.connections().look_for_crowd()
        {
            hook(&crowd);
        }
        while store.sweep(round, now) {
            tokio::task::yield_now().await;
        }
    }
}
