//! Limiters of other libraries, which admit requests one after another while there is room.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::num::NonZero;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use governor::{Quota, RateLimiter};
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{Service, service_fn};

/// A limiter with room for every request.
pub struct Gate {
    /// Its name in records.
    pub variant: &'static str,
    /// Returns a loop that admits that many requests, one after another, for a thread of its own.
    pub start: fn() -> Requests,
}

/// Admits that many requests.
pub type Requests = Box<dyn FnMut(u32)>;

/// Returns the limiters.
#[must_use]
pub fn gates() -> [Gate; 3] {
    [
        Gate { variant: "governor", start: governor },
        Gate { variant: "tower_concurrency_limit", start: || requests(limited()) },
        Gate { variant: "tower_load_shed", start: || requests(LoadShed::new(limited())) },
    ]
}

/// One limiter for the tenant, which the caller holds.
fn governor() -> Requests {
    let most = NonZero::<u32>::MAX;
    let limiter = RateLimiter::direct(Quota::per_second(most).allow_burst(most));
    Box::new(move |requests| {
        for _ in 0..requests {
            assert!(limiter.check().is_ok(), "it grants more in a second than are asked for");
        }
    })
}

type Answer = fn(()) -> Ready<Result<(), Infallible>>;

/// Makes a service that answers at once, of which eight requests may be in flight.
fn limited() -> ConcurrencyLimit<tower::util::ServiceFn<Answer>> {
    let answer: Answer = |()| ready(Ok(()));
    ConcurrencyLimit::new(service_fn(answer), 8)
}

/// Waits until it is ready, makes it answer, and drops the answer with the permit.
fn requests<S: Service<(), Response = (), Error: std::fmt::Debug> + 'static>(
    mut service: S,
) -> Requests {
    Box::new(move |requests| {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..requests {
            assert!(matches!(service.poll_ready(&mut context), Poll::Ready(Ok(()))), "room for 8");
            let answer = pin!(service.call(())).poll(&mut context);
            assert!(matches!(black_box(answer), Poll::Ready(Ok(()))), "it answers at once");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_lets_in_what_comes() {
        for Gate { start, .. } in gates() {
            start()(1000);
        }
    }
}
