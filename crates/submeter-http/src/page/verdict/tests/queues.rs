//! Scenes of queues: which tenant made one, and which only waited in it.

use super::{Second, Server, busy};

/// Two large tenants, and a crowd of small ones.
struct Crowd(Server);

impl Crowd {
    fn new() -> Crowd {
        const NAMES: [&str; 24] = [
            "/large", "/other", "/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i", "/j", "/k",
            "/l", "/m", "/n", "/o", "/p", "/q", "/r", "/s", "/t", "/u", "/v",
        ];
        Crowd(Server::new(NAMES))
    }

    /// Lets seconds pass in which each has this many requests, and all wait alike.
    fn seconds(&mut self, n: u64, [large, other, small]: [f64; 3], wait_ms: f64) -> String {
        let mut all = [small; 24];
        (all[0], all[1]) = (large, other);
        self.0.seconds(n, &all.map(|requests| Second { wait_ms, ..busy(requests) })).concat()
    }
}

/// A tenant that is as large as always is not why there is a queue while another bursts.
#[test]
fn as_large_as_always_is_no_reason_for_a_queue() {
    let mut crowd = Crowd::new();
    crowd.seconds(20, [68e3, 15e3, 3e3], 0.01);
    crowd.seconds(4, [40e3, 140e3, 2700.0], 300.0);
    for wait_ms in [400.0, 485.0] {
        let said = crowd.seconds(1, [74e3, 140e3, 2e3], wait_ms);
        assert!(said.contains("/other bursts") && !said.contains("/large"), "{said}");
    }
    // A tenant that was to blame before stays so.
    let mut crowd = Crowd::new();
    let said = crowd.seconds(20, [140e3, 2700.0, 2700.0], 300.0);
    assert!(said.contains("/large takes most"), "{said}");
    let said = crowd.seconds(6, [140e3, 100e3, 2700.0], 300.0);
    assert!(said.contains("/large takes most") && said.contains("/other bursts"), "{said}");
}

#[test]
fn who_is_served_late_is_not_why_it_waited() {
    let mut crowd = Crowd::new();
    let said = crowd.seconds(20, [40e3, 140e3, 2700.0], 100.0);
    assert!(said.contains("/other takes most"), "{said}");
    // The other ends. Its victims' waiting requests are served, and are a good part of what is
    // done.
    for (large, other, wait_ms) in [(75e3, 74e3, 60.0), (78e3, 25e3, 10.0), (60e3, 15e3, 0.01)] {
        let said = crowd.seconds(1, [large, other, 4e3], wait_ms);
        assert!(said.contains("/other t") && !said.contains("/large"), "{said}");
    }
    let said = crowd.seconds(9, [60e3, 15e3, 4e3], 0.01);
    assert!(!said.contains("/large"), "{said}");
    let said = crowd.seconds(3, [160e3, 15e3, 2e3], 300.0);
    assert!(said.contains("/large bursts"), "where there is a queue again: {said}");
}

/// While a queue shrinks that is known to be another's, no new tenant is to blame.
#[test]
fn a_shrinking_queue_blames_nobody_new() {
    let said = |waits_ms: [f64; 5]| {
        let mut crowd = Crowd::new();
        let said = crowd.seconds(20, [140e3, 2700.0, 2700.0], 600.0);
        assert!(said.contains("/large takes most"), "{said}");
        waits_ms.map(|wait_ms| crowd.seconds(1, [140e3, 100e3, 2700.0], wait_ms)).concat()
    };
    let shrinks = said([560.0, 470.0, 390.0, 290.0, 160.0]);
    assert!(shrinks.contains("/large takes most") && !shrinks.contains("/other"), "{shrinks}");
    let stays = said([600.0; 5]);
    assert!(stays.contains("/other bursts"), "{stays}");
}

/// A tenant that returns to the rest of a queue accuses none that has waited in it.
#[test]
fn who_returns_to_a_queue_accuses_no_waiter() {
    let said = |rest_ms: f64| {
        let mut crowd = Crowd::new();
        let mut second = |large: f64, last: f64, wait_ms: f64| {
            let mut all = [Second { wait_ms, ..busy(3000.0) }; 24];
            all[0] = Second { wait_ms, ..busy(large) };
            all[23] = Second { wait_ms, ..busy(last) };
            crowd.0.seconds(1, &all).concat()
        };
        (0..20).for_each(|_| drop(second(20e3, 0.0, 80.0)));
        [rest_ms, rest_ms * 0.8].map(|wait_ms| second(100e3, 3000.0, wait_ms)).concat()
    };
    assert!(!said(2.0).contains("/large"), "{}", said(2.0));
    assert!(said(79.0).contains("/large bursts"), "a queue that stays: {}", said(79.0));
}

/// While a tenant sends all its requests at once, another's burst is not why others wait for
/// moments.
#[test]
fn a_burst_is_not_why_others_wait_for_moments() {
    let said = |at_once: Second| {
        let mut crowd = Crowd::new();
        crowd.seconds(20, [60e3, 10e3, 3e3], 0.01);
        let mut all = [Second { wait_ms: 1.2, ..busy(3e3) }; 24];
        (all[0], all[1], all[2]) = (busy(60e3), busy(70e3), at_once);
        crowd.0.seconds(3, &all).concat()
    };
    let waits = |requests: f64, wait_ms: f64| Second { wait_ms, ..busy(requests) };
    let moments = said(waits(5e3, 30.0));
    assert!(!moments.contains("/other") && moments.contains("/a waits 30.0 ms"), "{moments}");
    let lasting = said(waits(5e3, 11.0));
    assert!(lasting.contains("/other bursts"), "of a tenth of the time: {lasting}");
    let alone = said(waits(200.0, 30.0));
    assert!(alone.contains("/other bursts"), "it has too little work for such a queue: {alone}");
}
