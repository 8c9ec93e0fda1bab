//! How much of a limit can be used, when members use unequal parts of it.

use std::time::Duration;

use submeter_bank::{Budget, Holder, Ledger, Outage, Past};

use crate::demand::Demand;

const TTL: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(10);
const LIMIT: u64 = 100_000;

struct Fleet {
    ledger: Ledger,
    members: Vec<(Holder, Demand)>,
    budget: Budget,
    now: Duration,
}

impl Fleet {
    fn new(members: u64) -> Self {
        let budget = Budget::new("/acme", "requests").expect("a name");
        let mut ledger = Ledger::new(TTL, Past::None);
        ledger.set_limit(&budget, LIMIT, 0).expect("no floors");
        let members = (0..members).map(|epoch| {
            let mut holder = Holder::new("member", epoch);
            holder.add(budget.clone(), 100, Outage::Strict);
            (holder, Demand::default())
        });
        Self { ledger, members: members.collect(), budget, now: Duration::ZERO }
    }

    /// Makes member `hot` want nine tenths of the limit; the others share a tenth.
    fn shift_to(&mut self, hot: usize) {
        let others = self.members.len() as u64 - 1;
        for (at, (_, demand)) in self.members.iter_mut().enumerate() {
            demand.wished = if at == hot { LIMIT / 10 * 9 } else { LIMIT / 10 / others };
        }
    }

    fn pass(&mut self, time: Duration) -> u64 {
        let mut exchanges = 0;
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            let budget = &self.budget;
            for (holder, demand) in &mut self.members {
                demand.refused = demand.wished.saturating_sub(demand.limit);
                if demand.refused > 0 {
                    holder.refused(budget);
                }
                if holder.tick(self.now, demand) {
                    exchanges += 1;
                    let request = holder.request(self.now, demand);
                    let answer = self.ledger.exchange(self.now, &request).expect("in order");
                    assert!(holder.accept(self.now, &answer, demand));
                }
            }
            let lent: u64 = self.ledger.lent(&self.budget).map(|lent| lent.amount).sum();
            assert!(lent <= LIMIT, "{lent} is lent of {LIMIT}");
        }
        exchanges
    }

    fn in_use(&self) -> u64 {
        self.members.iter().map(|(_, demand)| demand.wished.min(demand.limit)).sum()
    }
}

/// A fleet uses 95 % two periods after load has moved.
#[test]
fn a_fleet_uses_95_percent_after_two_periods() {
    for members in [2, 10] {
        let mut fleet = Fleet::new(members);
        for hot in [0, 1, 0] {
            fleet.shift_to(hot);
            fleet.pass(TTL / 3 * 2);
            let in_use = fleet.in_use();
            assert!(in_use >= LIMIT / 100 * 95, "{members} members use {in_use} of {LIMIT}");
        }
    }
}

#[test]
fn members_that_want_more_ask_no_more_often() {
    let mut fleet = Fleet::new(10);
    for (_, demand) in &mut fleet.members {
        demand.wished = LIMIT;
    }
    fleet.pass(TTL);
    // Three exchanges in each time to live, and a few sooner, to get what others return.
    let exchanges = fleet.pass(TTL * 10);
    assert!(exchanges <= 10 * 10 * 5, "{exchanges} exchanges of 10 members in 10 times to live");
    assert!(fleet.members.iter().all(|(_, demand)| demand.limit == LIMIT / 10));
}

#[test]
fn an_idle_members_lease_is_free_in_two_periods() {
    let mut fleet = Fleet::new(2);
    fleet.shift_to(0);
    fleet.pass(TTL);
    fleet.members[0].1.wished = 0;
    fleet.pass(TTL);
    let lent: Vec<_> = fleet.ledger.lent(&fleet.budget).map(|lent| lent.amount).collect();
    assert_eq!(lent[0], 0, "{lent:?}");
    assert!(lent[1] >= LIMIT / 10);
}
