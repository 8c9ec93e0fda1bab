//! A tree of one node: a counter with a limit.
//!
//! Not the root of a tree of [`node`](super::node)s, which was measured: it takes 416 bytes in four
//! allocations where a counter has 192 of its own. To follow its pointer costs 17 % of an add and a
//! give-back far from the limit, and its queue and counts of refusals 65 % of a pair at the limit
//! and 5 % of a refusal. A fork that leaves its list locked would make it refuse what fits, too.

use std::iter::once;

use super::Inside;
use super::common::Common;
use super::leaf::Leaf;
use super::level::{Level, Refusal};
use super::path::Path;
use super::stock::Stock;
use super::tree;
use crate::fork_lock::ForkLock;

/// A leaf whose own level is the root's. Laid out as written: first the fields that charges only
/// read, then those that moves of stock write.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Flat<S> {
    pub(super) leaf: Leaf<S>,
    /// Held by who visits the leaf, or opens it. Unlike the list of a larger tree it need not be
    /// given up where a fork left it locked: the next visit continues whatever the last one did.
    pub(super) visit: ForkLock,
    common: Common,
    pub(super) level: Level,
}

impl<S: Stock> Flat<S> {
    /// For `rows` words that hold `cap` each at most, with `held` from the start.
    pub(crate) fn new(stock: S, cap: u64, rows: u64, held: u64, limit: u64) -> Flat<S> {
        let level = Level::starting_at(held);
        level.store_limit(limit);
        let leaf = Leaf::new(stock, cap, rows);
        Flat { leaf, visit: ForkLock::new(), common: Common::new(), level }
    }

    /// The most that can lie in stock.
    pub(crate) fn slack(&self) -> u64 {
        self.leaf.slack()
    }

    pub(crate) fn limit(&self) -> u64 {
        self.level.limit()
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        tree::set_limit(self, &self.level, limit);
    }

    /// Charges `n` if it fits. Does not count refusals: all refused CPUs would write one line, for
    /// a number that has no reader here.
    ///
    /// # Errors
    /// The amount that was held when it did not fit.
    #[inline]
    pub(crate) fn try_charge(&self, n: u64) -> Result<(), Refusal> {
        if tree::charge_stock(self, n) { Ok(()) } else { self.charge_levels(n) }
    }

    #[cold]
    #[inline(never)]
    fn charge_levels(&self, n: u64) -> Result<(), Refusal> {
        tree::charge_levels(self, n, false).map_err(|(_, refusal)| refusal)
    }

    #[inline]
    pub(crate) fn release(&self, n: u64) {
        tree::release(self, n);
    }

    /// The amount held, and by how much it may exceed the amount charged: 0 where there is no
    /// stock. The amount charged is never below 0.
    pub(crate) fn held(&self) -> (u64, u64) {
        match self.level.exactly() {
            Some(held) => (held, 0),
            None => {
                let held = self.level.held();
                (held, self.slack().min(held))
            }
        }
    }

    /// The amount charged: exact once charges are over, and never without a charge that has
    /// returned.
    pub(crate) fn charged(&self) -> u64 {
        self.level.exactly().or_else(|| self.without_stock()).unwrap_or_else(|| self.level.held())
    }

    /// The amount held, less the stock. Moves of stock stop for that; charges go on. `None` on top
    /// of a move of the calling thread's own, if stock is moved here at this moment.
    fn without_stock<'a>(&'a self) -> Option<u64> {
        let inside = Inside::new();
        // Without waiting on top of a move, which may be one of this counter.
        let stop = |lock: &'a ForkLock| match inside {
            Some(_) => Some(lock.lock()),
            None => lock.try_lock(),
        };
        let _visit = stop(&self.visit)?;
        let _moves = stop(&self.leaf.lock)?;
        // In this order: a charge in between counts.
        let held = self.level.held();
        Some(held.wrapping_sub(self.leaf.stocked()))
    }
}

impl<S: Stock> Path for Flat<S> {
    type Stock = S;

    #[inline(always)]
    fn leaf(&self) -> &Leaf<S> {
        &self.leaf
    }

    #[inline(always)]
    fn level(&self) -> &Level {
        &self.level
    }

    fn up(&self) -> impl Iterator<Item = &Self> + Clone {
        once(self)
    }

    fn below(&self, _: &Level, visit: &mut dyn FnMut(&mut dyn Iterator<Item = &Self>)) -> bool {
        let Some(_inside) = Inside::new() else { return false };
        let _visit = self.visit.lock();
        visit(&mut once(self));
        true
    }

    fn join(&self, open: &mut dyn FnMut() -> bool) {
        if let Some(_free) = self.visit.try_lock() {
            open();
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    /// No charge waits for a counter.
    fn waits_have_ended(&self) -> bool {
        true
    }

    fn serve(&self) {}

    fn reconsider(&self) {}
}
