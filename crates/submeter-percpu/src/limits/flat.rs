//! A tree of one node: a counter with a limit.
//!
//! It is not the root of a tree of [`node`](super::node)s, which was measured: such a root takes
//! 416 bytes in four allocations where a counter has 192 of its own. Following its pointer costs 17
//! % of an add and a give-back far from the limit, and its queue and counts of refusals cost 65 %
//! of a pair at the limit and 5 % of a refusal. Also, a fork that leaves its list locked would make
//! it refuse charges that fit.

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
    /// Held by a thread that visits the leaf, or opens it. Unlike the list of a larger tree it need
    /// not be given up where a fork left it locked: the next visit continues where the last one
    /// stopped.
    pub(super) visit: ForkLock,
    common: Common,
    pub(super) level: Level,
}

impl<S: Stock> Flat<S> {
    /// Creates a tree for `rows` words that hold at most `cap` each, with `held` from the start.
    pub(crate) fn new(stock: S, cap: u64, rows: u64, held: u64, limit: u64) -> Flat<S> {
        let level = Level::starting_at(held);
        level.store_limit(limit);
        let leaf = Leaf::new(stock, cap, rows);
        Flat { leaf, visit: ForkLock::new(), common: Common::new(), level }
    }

    /// Returns the maximum amount in stock.
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

    /// Returns the amount held, and by how much it may exceed the amount charged: 0 where there is
    /// no stock. The amount charged is never below 0.
    pub(crate) fn held(&self) -> (u64, u64) {
        match self.level.exactly() {
            Some(held) => (held, 0),
            None => {
                let held = self.level.held();
                (held, self.slack().min(held))
            }
        }
    }

    /// Returns the amount charged: exact once charges are over, and always including every charge
    /// that has returned.
    pub(crate) fn charged(&self) -> u64 {
        self.level.exactly().or_else(|| self.without_stock()).unwrap_or_else(|| self.level.held())
    }

    /// Returns the amount held, less the stock. Moves of stock stop for this; charges continue.
    /// `None` in a handler on top of a move by the calling thread, if stock is being moved here at
    /// this moment.
    fn without_stock<'a>(&'a self) -> Option<u64> {
        let inside = Inside::new();
        // Does not wait on top of a move, which may be one of this counter's.
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
    fn serve(&self) {}

    fn reconsider(&self) {}
}
