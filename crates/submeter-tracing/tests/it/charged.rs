//! Which group is current in a span.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;

use submeter_tracing::TenantLayer;
use tracing::dispatcher::with_default;
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use super::{current, dispatch, inside, tree};

fn path(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// A span is in its tenant's group; spans without a tenant are in the group around them.
#[test]
fn a_span_is_in_its_tenants_group() {
    let tree = tree();
    let layer = TenantLayer::new(tree.root());
    with_default(&dispatch(&layer), || {
        let plain = info_span!("startup", user = "acme");
        assert_eq!(inside(&plain), None);
        let acme = info_span!("request", tenant = "acme");
        acme.in_scope(|| {
            assert_eq!(inside(&info_span!("query")), path("/acme"));
            assert_eq!(inside(&info_span!("call", tenant = %"beta")), path("/beta"));
            assert_eq!(inside(&info_span!("call", tenant = 7)), path("/7"));
            assert_eq!(current(), path("/acme"));
        });
        assert_eq!((inside(&plain), current()), (None, None));
    });
}

/// A span has its parent's group even if the parent is not entered.
#[test]
fn a_span_has_its_parents_group() {
    let tree = tree();
    let dispatch = dispatch(&TenantLayer::new(tree.root()));
    let child = with_default(&dispatch, || {
        let request = info_span!("request", tenant = "acme");
        let step = info_span!(parent: &request, "step");
        info_span!(parent: &step, "query")
    });
    let seen = thread::spawn(move || with_default(&dispatch, || inside(&child))).join();
    assert_eq!(seen.expect("no panic"), path("/acme"));
}

#[test]
fn spans_may_be_left_in_any_order() {
    let tree = tree();
    with_default(&dispatch(&TenantLayer::new(tree.root())), || {
        let [a, b, c] = ["a", "b", "c"].map(|name| info_span!("request", tenant = name));
        let (a, b, c) = (a.entered(), b.entered(), c.entered());
        drop(b);
        assert_eq!(current(), path("/c"));
        drop(c);
        assert_eq!(current(), path("/a"));
        let again = Span::clone(&a).entered();
        drop(a);
        assert_eq!(current(), path("/a"));
        drop(again);
        assert_eq!(current(), None);
    });
}

#[test]
fn of_a_span_entered_twice_the_latest_is_left() {
    let tree = tree();
    with_default(&dispatch(&TenantLayer::new(tree.root())), || {
        let [a, b] = ["a", "b"].map(|name| info_span!("request", tenant = name));
        let (_outer, _b) = (a.enter(), b.enter());
        a.in_scope(|| assert_eq!(current(), path("/a")));
        assert_eq!(current(), path("/b"));
    });
}

/// Spans of two subscribers are kept apart, though their numbers are the same.
#[test]
fn equal_numbers_of_two_subscribers_differ() {
    let tree = tree();
    let spans = ["a", "b"].map(|name| {
        let dispatch = dispatch(&TenantLayer::new(tree.root()));
        with_default(&dispatch, || info_span!("request", tenant = name))
    });
    assert_eq!(spans[0].id().map(|id| id.into_u64()), spans[1].id().map(|id| id.into_u64()));
    let [a, b] = spans.map(|span| span.entered());
    drop(a);
    assert_eq!(current(), path("/b"));
    drop(b);
    assert_eq!(current(), None);
}

#[test]
fn a_polled_future_is_in_its_spans_group() {
    let tree = tree();
    with_default(&dispatch(&TenantLayer::new(tree.root())), || {
        let work = async {
            let before = current();
            let mut waited = false;
            poll_fn(|_| {
                if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            (before, current())
        };
        let mut work = pin!(work.instrument(info_span!("request", tenant = "acme")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(work.as_mut().poll(&mut context).is_pending());
        assert_eq!(current(), None, "between polls");
        let seen = work.as_mut().poll(&mut context);
        assert_eq!(seen, Poll::Ready((path("/acme"), path("/acme"))));
    });
}

#[test]
fn a_tenant_recorded_later_holds_next_time() {
    let tree = tree();
    with_default(&dispatch(&TenantLayer::new(tree.root()).field("customer")), || {
        let span = info_span!("request", customer = Empty, tenant = "none");
        assert_eq!(inside(&span), None);
        span.record("customer", "acme");
        assert_eq!(inside(&span), path("/acme"));
        span.record("customer", "beta");
        assert_eq!(inside(&span), path("/beta"));
    });
}

#[test]
fn a_span_of_many_threads_is_left_on_each_stress() {
    const THREADS: usize = 8;
    let rounds = if cfg!(miri) { 2 } else { 200 };
    let tree = tree();
    let dispatch = dispatch(&TenantLayer::new(tree.root()));
    let shared = with_default(&dispatch, || info_span!("batch", tenant = "shared"));
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (dispatch, shared, barrier) = (&dispatch, &shared, &barrier);
            scope.spawn(move || {
                with_default(dispatch, || {
                    let own = info_span!("own", tenant = thread);
                    let own_path = path(&format!("/{thread}"));
                    for _ in 0..rounds {
                        barrier.wait();
                        let entered = shared.enter();
                        assert_eq!(inside(&own), own_path);
                        barrier.wait();
                        assert_eq!(current(), path("/shared"));
                        drop(entered);
                        assert_eq!(current(), None);
                    }
                });
            });
        }
    });
    assert_eq!(submeter::switch::forgotten_guards(), 0);
}
