//! What every engine does: give the answers of a ledger in memory to the same requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use submeter_bank::{
    Bank, Budget, Holder, Ledger, Limit, Member, MemoryBank, Operate, Past, Request, Use, Want,
};

/// Long enough for all requests, so that no lease ends between them.
pub(crate) const TTL: Duration = Duration::from_secs(4);
const PATHS: [&str; 4] = ["/", "/a", "/a/b", "/c"];
const REQUESTS: u64 = 150;

pub(crate) struct Idle;

impl Member for Idle {
    fn set(&mut self, _: &Budget, _: u64) -> Use {
        Use::default()
    }
}

pub(crate) fn memory(path: &str) -> Budget {
    Budget::new(path, "memory").expect("a name")
}

pub(crate) fn request(member: &str, epoch: u64, sequence: u64, wants: Vec<Want>) -> Request {
    let mut request = Holder::new(member, epoch).request(Duration::ZERO, &mut Idle);
    (request.sequence, request.wants) = (sequence, wants);
    request
}

pub(crate) fn want(path: &str, has: u64, wants: u64) -> Want {
    Want { budget: memory(path), has, wants }
}

pub(crate) fn limit(path: &str, most: u64) -> Limit {
    Limit { budget: memory(path), most, floors: 0, per_member: None }
}

/// Asks until the bank no longer learns what was lent before.
pub(crate) fn until_it_lends(bank: &impl Bank) {
    let start = Instant::now();
    for sequence in 1.. {
        let asked = request("first", 1, sequence, Vec::new());
        if bank.exchange(&asked).is_ok_and(|answer| !answer.learns) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it never stops learning");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Compares an engine with a ledger. Each call of `new` makes a bank of another fleet, whose leases
/// last for [`TTL`]; a busy machine may take longer than that, and then tries another fleet.
pub(crate) fn check<B: Operate>(new: impl Fn(&str) -> B) {
    for fleet in ["a", "b", "c", "d", "e"] {
        let bank = new(fleet);
        if compare(&bank) {
            return;
        }
        println!("{REQUESTS} requests took longer than {TTL:?}");
    }
    panic!("the machine is too busy to compare anything");
}

fn set(bank: &impl Operate, ledger: &mut Ledger, rng: &mut Rng, at: usize) {
    let (most, floors) = (rng.u64(20..200), rng.u64(0..20));
    let budget = memory(PATHS[at]);
    let per_member = rng.bool().then(|| rng.u64(0..80));
    ledger.set_limit(&budget, most, floors).expect("floors below the limit");
    ledger.set_limit_per_member(&budget, per_member);
    bank.set(&Limit { budget, most, floors, per_member }).expect("a limit");
}

/// Returns whether it finished in time.
fn compare(bank: &impl Operate) -> bool {
    let mut rng = Rng::with_seed(16);
    let mut ledger = Ledger::new(TTL, Past::None);
    set(bank, &mut ledger, &mut rng, 0);
    until_it_lends(bank);
    let start = Instant::now();
    let in_time = || start.elapsed() < TTL * 4 / 5;
    let mut last: BTreeMap<_, Request> = BTreeMap::new();
    let (mut lent, mut refused) = (0, 0);
    for step in 1..=REQUESTS {
        // One path never has a limit.
        if rng.u8(0..15) == 0 {
            let at = rng.usize(..3);
            set(bank, &mut ledger, &mut rng, at);
        }
        let mut wants = Vec::new();
        for path in PATHS {
            if rng.bool() {
                wants.push(want(path, rng.u64(0..90), rng.u64(0..90)));
            }
        }
        let who = (["a", "ab", "b/c"][rng.usize(..3)], rng.u64(0..3));
        let asked = match (rng.u8(0..12), last.get(&who)) {
            (0, Some(before)) => before.clone(),
            (1, Some(before)) => request(who.0, who.1, before.sequence - 1, wants),
            (2, _) => {
                let twice = vec![want("/", 1, 1), want("/", 2, 2)];
                request(who.0, who.1, step * 10, twice)
            }
            _ => request(who.0, who.1, step * 10, wants),
        };
        let (theirs, ours) = (bank.exchange(&asked), ledger.exchange(Duration::ZERO, &asked));
        let counted =
            |lent: submeter_bank::Lent| (lent.member, lent.epoch, lent.amount, lent.wants);
        let budget = memory(PATHS[rng.usize(..4)]);
        let held = (step % 5 == 0).then(|| bank.holders(&budget).expect("a list"));
        if !in_time() {
            return false;
        }
        match (theirs, ours) {
            (Ok(theirs), Ok(ours)) => {
                assert_eq!(theirs, ours, "{asked:?}");
                lent += u32::from(ours.leases.iter().any(|lease| lease.amount > 0));
                last.insert(who, asked.clone());
            }
            (Err(theirs), Err(ours)) => {
                assert!(theirs.to_string().ends_with(&ours.to_string()), "{theirs}, not {ours}");
                refused += 1;
            }
            (theirs, ours) => panic!("{asked:?}: {theirs:?}, not {ours:?}"),
        }
        if let Some(held) = held {
            let held: Vec<_> = held.into_iter().map(counted).collect();
            assert_eq!(held, ledger.lent(&budget).map(counted).collect::<Vec<_>>(), "{budget}");
        }
    }
    assert!(lent > 50 && refused > 5, "{lent} lent, {refused} refused: nothing was compared");
    println!("{lent} of {REQUESTS} lent something, in {:?}", start.elapsed());
    true
}

#[test]
fn a_bank_in_memory_answers_as_a_ledger_does() {
    check(|_| MemoryBank::from(Ledger::new(TTL, Past::None)));
}
