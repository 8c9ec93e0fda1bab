//! The background task: drops expired items that are never requested, and ends connections whose
//! time is over.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::cache::Cache;

/// How often it runs: an expired item is dropped about this much later.
const PERIOD: Duration = Duration::from_millis(250);

/// Sweeps until the server stops. It has its own task, so that many items expiring at once delay no
/// new connection.
pub(super) async fn sweep(cache: Cache, mut stopped: watch::Receiver<bool>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut round, mut more) = (0, false);
    loop {
        // In this order: dropping many items that expire at once may take many seconds, and neither
        // the end nor a connection's time limit waits for that.
        tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => return,
            _ = ticks.tick() => look(&cache),
            () = tokio::task::yield_now(), if more => {}
        }
        let store = cache.store();
        more = store.sweep(round, store.clock.now());
        round += usize::from(!more);
    }
}

/// Performs the periodic work.
fn look(cache: &Cache) {
    cache.tenants().tick();
    let store = cache.store();
    let now = store.clock.now();
    store.flush_if_due(now);
    cache.connections().end_overdue(now.ms);
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use submeter::refs::pin as guard;

    use super::*;
    use crate::Config;
    use crate::item::Draft;
    use crate::tenant::{Account, Resolver};

    /// Stores items that have expired.
    fn expired(cache: &Cache, items: u32) {
        let (guard, now) = (guard(), cache.store().clock.now());
        let resolver = Resolver::new(cache.tenants(), &guard);
        let tenant = resolver.tenant(Account::ROOT);
        for n in 0..items {
            let (key, value) = (&n.to_be_bytes()[..], [&b"v"[..], b""]);
            let draft = Draft { key, value, client_flags: 0, expires_ms: 1, marks: 0 };
            let charge = cache.store().charge(tenant, draft.cost(), now).expect("room");
            cache.store().slot(key, now, &guard).put(draft, tenant, charge, None);
        }
    }

    /// Deadlines and the end do not wait for items that expired at once.
    #[test]
    fn nothing_waits_for_what_expired_at_once() {
        let config = Config { login_timeout: Duration::from_millis(1), ..Config::default() };
        let cache = Cache::new(config).expect("sound");
        expired(&cache, 5_000);
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let mut sweep = pin!(sweep(cache.clone(), stopped));
            let mut poll = async || poll_fn(|cx| Poll::Ready(sweep.as_mut().poll(cx))).await;
            assert!(poll().await.is_pending());
            let now_ms = cache.store().clock.now().ms;
            let _stranger = cache.connections().take_place(now_ms, true).expect("a place");
            tokio::time::sleep(2 * PERIOD).await;
            assert!(poll().await.is_pending());
            assert_eq!(cache.connections().counts().ended_strangers, 1);
            assert!(cache.store().len() > 0, "and the rest has expired");
            stop.send(true).expect("it listens");
            assert!(poll().await.is_ready());
            assert!(cache.store().len() > 0, "nobody waits for it");
        });
    }
}
