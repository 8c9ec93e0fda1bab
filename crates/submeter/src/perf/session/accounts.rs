//! Event groups that count CPU time alone.
//!
//! The clock needs no counter: such event groups never wait for one, and all event groups of one
//! group count the same. A thread therefore charges the time between two switches to one account,
//! that of the innermost group that has such requests, however many requests there are and however
//! deep the group. Readers add up the accounts along the tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use submeter_events::{GroupIndex, GroupKey, NONE};

use crate::tree::group::Group;

/// The account for work outside of all requested groups.
const REST: u32 = NONE;

/// The accounts of a session: one for each group with such requests, and [`REST`].
#[derive(Debug)]
pub(super) struct Accounts {
    by_group: GroupIndex,
    /// By account: the account of the nearest ancestor that has one. Always a smaller number,
    /// except for `REST`.
    parents: Vec<u32>,
}

impl Accounts {
    /// Opens an account for each of `groups`, which may repeat.
    pub(super) fn new(mut groups: Vec<&Group>) -> Accounts {
        // Ancestors first.
        groups.sort_by_key(|group| group.depth());
        let mut accounts = Accounts { by_group: GroupIndex::new(), parents: vec![REST] };
        for group in groups {
            let key = GroupKey(group.id());
            if accounts.by_group.find(key).is_none() {
                let account = accounts.parents.len() as u32;
                accounts.parents.push(accounts.of(group.parent()));
                accounts.by_group.insert(key, account);
            }
        }
        accounts
    }

    /// Returns the account to which time in `group` is charged. It climbs to the nearest group that
    /// has one; a group of another tree finds none.
    #[inline]
    pub(super) fn of(&self, group: Option<&Group>) -> u32 {
        let mut next = group;
        while let Some(group) = next {
            if let Some(account) = self.by_group.find(GroupKey(group.id())) {
                return account;
            }
            next = group.parent();
        }
        REST
    }

    /// Returns the times of one thread, by account, including those of descendants.
    pub(super) fn totals(&self, times: &AccountTimes) -> Vec<u64> {
        let mut totals: Vec<u64> = (0..self.parents.len() as u32).map(|at| times.get(at)).collect();
        for account in (1..totals.len()).rev() {
            totals[self.parents[account] as usize] += totals[account];
        }
        totals
    }
}

/// The times that one thread has charged, by account, excluding those of descendants.
#[derive(Debug)]
pub(super) struct AccountTimes {
    lines: Box<[AccountLine]>,
}

/// Aligned, so that threads share no line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct AccountLine([AtomicU64; LINE]);

const LINE: usize = 8;

impl AccountTimes {
    pub(super) fn new(accounts: &Accounts) -> AccountTimes {
        let lines = accounts.parents.len().div_ceil(LINE);
        AccountTimes { lines: (0..lines).map(|_| AccountLine::default()).collect() }
    }

    #[inline]
    fn word(&self, account: u32) -> &AtomicU64 {
        let account = account as usize;
        &self.lines[account / LINE].0[account % LINE]
    }

    fn get(&self, account: u32) -> u64 {
        // Relaxed: each word is a sum of its own, which readers add to others.
        self.word(account).load(Ordering::Relaxed)
    }

    /// Adds to an account. Only the charging thread may call it.
    #[inline]
    fn charge(&self, account: u32, ns: u64) {
        let word = self.word(account);
        // Relaxed, both: written by this thread only, and read as in `get`. After the thread's end,
        // the flag in `ThreadCounts` tells that nothing follows.
        word.store(word.load(Ordering::Relaxed) + ns, Ordering::Relaxed);
    }
}

/// A follower of one thread that charges its time.
#[derive(Debug)]
pub(super) struct TimeKeeper {
    /// The account of the thread's group.
    account: u32,
    /// The time up to which everything is charged.
    since_ns: u64,
    times: Arc<AccountTimes>,
    accounts: Arc<Accounts>,
}

impl TimeKeeper {
    pub(super) fn new(
        accounts: Arc<Accounts>,
        times: Arc<AccountTimes>,
        now_ns: u64,
    ) -> TimeKeeper {
        TimeKeeper { account: REST, since_ns: now_ns, times, accounts }
    }

    /// Charges the time since the last call, and makes `group` the thread's current one.
    #[inline(always)]
    pub(super) fn switch_to(&mut self, group: Option<&Group>, now_ns: u64) {
        // A clock that went backwards adds nothing.
        self.times.charge(self.account, now_ns.saturating_sub(self.since_ns));
        self.since_ns = now_ns;
        self.account = self.accounts.of(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Schema, Tree};

    fn tree() -> Tree {
        Tree::new(Schema::builder().build().expect("valid")).expect("address space")
    }

    /// Totals include the time of descendants.
    #[test]
    fn time_goes_to_the_nearest_account() {
        let (tree, other) = (tree(), tree());
        let group = |path| tree.get_or_create(path).expect("created");
        let [x, a, far, b] = ["/a/b/x", "/a", "/a/b/x/y/z", "/b"].map(group);
        // `/a/b` and `/b` have none; the order is that of requests, not of depths.
        let accounts = Arc::new(Accounts::new(vec![&x, &a, &x, tree.root()]));
        let [of_root, of_a, of_x] = [tree.root(), &a, &x].map(|group| accounts.of(Some(group)));
        assert_eq!([of_root, of_a, of_x], [1, 2, 3]);
        let between = x.parent().cloned().expect("not the root");
        let foreign = other.get_or_create("/a").expect("created");
        let times = Arc::new(AccountTimes::new(&accounts));
        let mut keeper = TimeKeeper::new(Arc::clone(&accounts), Arc::clone(&times), 100);
        let mut now_ns = 100;
        let places = [Some(&x), Some(&far), Some(&between), Some(&b), Some(&foreign), None];
        for (nth, place) in places.into_iter().enumerate() {
            keeper.switch_to(place, now_ns);
            now_ns += 10_u64.pow(nth as u32);
        }
        keeper.switch_to(None, now_ns);
        // Outside or in another tree, in the root, in `/a`, in `/a/b/x`.
        assert_eq!([0, 1, 2, 3].map(|account| times.get(account)), [110_000, 1_000, 100, 11]);
        assert_eq!(accounts.totals(&times), [111_111, 1_111, 111, 11]);
        keeper.switch_to(Some(&a), now_ns - 50);
        assert_eq!(accounts.totals(&times)[0], 111_111, "a clock that goes back adds no time");
    }

    #[test]
    fn many_accounts_have_a_word_each() {
        let tree = tree();
        let group = |nth: u64| tree.get_or_create(&format!("/g{nth}")).expect("created");
        let groups: Vec<Group> = (0..3 * LINE as u64).map(group).collect();
        let accounts = Arc::new(Accounts::new(groups.iter().collect()));
        let times = Arc::new(AccountTimes::new(&accounts));
        let mut keeper = TimeKeeper::new(Arc::clone(&accounts), Arc::clone(&times), 0);
        let mut now_ns = 0;
        for (nth, group) in groups.iter().enumerate() {
            keeper.switch_to(Some(group), now_ns);
            now_ns += 1 + nth as u64;
        }
        keeper.switch_to(None, now_ns);
        let own: Vec<u64> = groups.iter().map(|g| times.get(accounts.of(Some(g)))).collect();
        assert!(own.iter().zip(1..).all(|(&ns, nth)| ns == nth), "{own:?}");
        assert_eq!(accounts.totals(&times)[0], now_ns);
    }
}
