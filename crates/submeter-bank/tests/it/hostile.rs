//! What members can do that break the protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use submeter_bank::{Budget, Holder, Ledger, Outage, Past, Request};

use crate::conformance::Idle;

const TTL: Duration = Duration::from_secs(10);
const LIMIT: u64 = 100;
const CAP: u64 = 40;

fn memory() -> Budget {
    Budget::new("/", "memory").expect("a name")
}

fn request(member: &str, epoch: u64, has: u64, wants: u64) -> Request {
    let mut holder = Holder::new(member, epoch);
    holder.add(memory(), 1, Outage::Strict);
    let mut request = holder.request(Duration::ZERO, &mut Idle);
    (request.wants[0].has, request.wants[0].wants) = (has, wants);
    request
}

fn ledger(past: Past) -> Ledger {
    let mut ledger = Ledger::new(TTL, past);
    ledger.set_limit(&memory(), LIMIT, 0).expect("no floors");
    ledger.set_limit_per_member(&memory(), Some(CAP));
    ledger
}

fn lent(ledger: &mut Ledger, request: &Request) -> u64 {
    ledger.exchange(Duration::ZERO, request).expect("a request").leases[0].amount
}

fn counted(ledger: &Ledger) -> BTreeMap<String, u64> {
    let mut counted = BTreeMap::new();
    for lent in ledger.lent(&memory()) {
        *counted.entry(lent.member).or_default() += lent.amount;
    }
    counted
}

/// A member that invents epochs has no more than the cap of its name.
#[test]
fn invented_epochs_stay_within_the_cap() {
    let mut ledger = ledger(Past::None);
    let got: Vec<_> =
        (0..3).map(|epoch| lent(&mut ledger, &request("greedy", epoch, 0, 30))).collect();
    assert_eq!(got, [30, 10, 0]);
    for beside in ["zealous", "after"] {
        assert_eq!(lent(&mut ledger, &request(beside, 0, 0, 30)), 30, "{beside} has its own cap");
    }
}

/// A member that claims to have much keeps no more from others than its cap.
#[test]
fn large_claims_stay_within_the_cap() {
    for past in [Past::None, Past::Unknown] {
        let mut ledger = ledger(past);
        for epoch in 0..3 {
            lent(&mut ledger, &request("liar", epoch, u64::MAX, u64::MAX));
        }
        assert_eq!(counted(&ledger)["liar"], CAP, "{past:?}");
    }
}

#[test]
fn a_wish_beyond_the_cap_leaves_nothing_idle() {
    let mut ledger = ledger(Past::None);
    assert_eq!(lent(&mut ledger, &request("greedy", 0, 0, u64::MAX)), CAP);
    ledger.set_limit_per_member(&memory(), None);
    assert_eq!(lent(&mut ledger, &request("modest", 0, 0, 70)), LIMIT - CAP);
}

/// A lowered cap takes nothing from the count that a member still uses.
#[test]
fn a_lowered_cap_keeps_what_is_in_use() {
    let mut ledger = ledger(Past::None);
    lent(&mut ledger, &request("web", 0, 0, CAP));
    ledger.set_limit_per_member(&memory(), Some(10));
    let mut renewed = request("web", 0, CAP, CAP);
    renewed.sequence = 2;
    assert_eq!(lent(&mut ledger, &renewed), 10);
    assert_eq!(counted(&ledger)["web"], CAP);
    (renewed.sequence, renewed.wants[0].has) = (3, 10);
    assert_eq!(lent(&mut ledger, &renewed), 10);
    assert_eq!(counted(&ledger)["web"], 10);
}

/// No sequence of requests takes more than the cap or the limit.
#[test]
fn no_requests_take_more_than_cap_or_limit() {
    let mut rng = Rng::with_seed(16);
    for past in [Past::None, Past::Unknown] {
        let (mut ledger, mut now) = (ledger(past), Duration::ZERO);
        for sequence in 0..if cfg!(miri) { 50 } else { 20_000 } {
            let member = ["a", "b", "c", "d"][rng.usize(0..4)];
            let mut request =
                request(member, rng.u64(0..3), rng.u64(0..LIMIT * 2), rng.u64(0..LIMIT * 2));
            request.sequence = sequence;
            now += Duration::from_millis(rng.u64(0..2_000));
            ledger.exchange(now, &request).expect("a newer request");
            let counted = counted(&ledger);
            assert!(counted.values().all(|&counted| counted <= CAP), "{counted:?}");
            assert!(counted.values().sum::<u64>() <= LIMIT, "{counted:?}");
        }
    }
}

/// A full ledger refuses strangers, and serves the members that it knows.
#[test]
fn a_full_ledger_serves_only_known_members() {
    let mut ledger = ledger(Past::None).with_leases_max(2);
    let mut known = request("web", 1, 0, 10);
    let mut empty = request("empty", 2, 0, 0);
    empty.wants.clear();
    lent(&mut ledger, &known);
    ledger.exchange(Duration::ZERO, &empty).expect("the second of two");
    let stranger = request("stranger", 3, 0, 10);
    let error = ledger.exchange(Duration::ZERO, &stranger).expect_err("full");
    assert_eq!(
        error.to_string(),
        "request of \"stranger\" for 1 leases, besides 2, exceeds the ledger's maximum of 2: \
         wait until others end, or raise the maximum"
    );
    empty.epoch = 4;
    ledger.exchange(Duration::ZERO, &empty).expect_err("one without leases counts, too");
    assert_eq!(counted(&ledger).len(), 1, "nothing is kept of them");
    let renewed_at = TTL / 2;
    known.sequence = 2;
    ledger.exchange(renewed_at, &known).expect("no more leases than before");
    // The one without leases has ended, and the other has not.
    ledger.exchange(TTL, &stranger).expect("room");
    assert_eq!(counted(&ledger).len(), 2);
    // Room is also made by what a member returns.
    known.sequence = 3;
    known.wants.clear();
    ledger.exchange(TTL, &known).expect("fewer leases than before");
    ledger.exchange(TTL, &request("third", 4, 0, 1)).expect_err("its name is still kept");
}

#[test]
fn a_member_without_a_fit_name_is_refused() {
    let mut ledger = ledger(Past::None);
    for member in ["", "a\u{1b}[2J", "a\n", &"a".repeat(1_025)] {
        let error = ledger.exchange(Duration::ZERO, &request(member, 1, 0, 1)).expect_err(member);
        assert!(error.to_string().starts_with("member \""), "{error}");
        assert!(error.to_string().len() < 200, "{error}");
    }
    assert!(counted(&ledger).is_empty());
    lent(&mut ledger, &request(&"a".repeat(1_024), 1, 0, 1));
}
