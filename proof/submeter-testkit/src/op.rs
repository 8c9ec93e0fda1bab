//! The operations on a tree, and how they are drawn.

use fastrand::Rng;
use proptest::array::uniform8;
use proptest::collection::vec;
use proptest::prelude::*;
use submeter::LimitMode;

use crate::schema::{COUNTERS, QUOTAS};
use crate::update::Update;

/// One operation on a tree. `at` and `charge` select among what exists when it is applied, so that
/// a script stays meaningful while it shrinks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named as the parameters in `submeter`")]
pub enum Op {
    /// Changes a group's totals.
    Update { at: u32, update: Update },
    /// Creates a child.
    Create { at: u32, name: &'static str },
    /// Finds or creates a path of names from the top.
    GetOrCreate { names: Vec<&'static str> },
    /// Looks up the path of a group, extended by names: the group there may be alive, killed or
    /// never created.
    Find { at: u32, names: Vec<&'static str> },
    /// Walks down from the top, at each turn to one of the live children, and looks up the group
    /// there, whether or not a handle is held.
    Descend { turns: Vec<u32> },
    /// Kills a group.
    Kill { at: u32 },
    /// Kills a group and its descendants.
    KillSubtree { at: u32 },
    /// Drops a group's handle.
    DropHandle { at: u32 },
    /// Checks whether the group that was killed first is released.
    CheckReleased,
    /// Charges a group, and keeps the charge.
    Charge { at: u32, quota: usize, n: u64 },
    /// Charges a group whatever its limits, and keeps the charge.
    ChargeForced { at: u32, quota: usize, n: u64 },
    /// Charges both quotas, or neither, and keeps the charges.
    ChargeAll { at: u32, n: [u64; 2] },
    /// Makes a limit soft, or enforced again.
    SetLimitMode { at: u32, quota: usize, mode: LimitMode },
    /// Claims usage to be protected, by `min` and by `low`, or removes the claims.
    SetClaims { at: u32, quota: usize, claims: [Option<u64>; 2] },
    /// Asks what is protected of a group's usage below an ancestor.
    Protection { at: u32, quota: usize, levels: u32 },
    /// Resizes a charge.
    Resize { charge: u32, amount: u64 },
    /// Splits a charge in two, and merges the parts again if `merge` is true.
    Split { charge: u32, part: u64, merge: bool },
    /// Drops a charge.
    DropCharge { charge: u32 },
    /// Sets or removes a limit.
    SetLimit { at: u32, quota: usize, limit: Option<u64> },
    /// Flushes the tree.
    Flush,
    /// Flushes one section of metrics.
    FlushSection { section: u32 },
    /// Flushes a group and its descendants.
    FlushBelow { at: u32 },
    /// Reads without a flush: value and bound.
    Read { at: u32 },
    /// Reads, with a flush if the value may be off by more than `error` or, for `fresh`, is older
    /// than the call.
    ReadWithin { at: u32, error: u64, fresh: bool },
    /// Reads exactly.
    Sum { at: u32 },
    /// Reads the visits without a flush.
    ReadVisits { at: u32 },
    /// Reads the visits exactly.
    SumVisits { at: u32 },
    /// Takes a snapshot of the tree.
    Snapshot,
}

/// The source of operations, each with its own mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Short scripts, which shrink: everything is compared after each operation, and many groups
    /// are killed.
    Script,
    /// An endless stream, on a tree of up to thousands of groups.
    Stream,
    /// Threads that share every group: nearly all are updates.
    Threads,
}

/// A flag in `at`: the other bits count from the newest handle instead of the oldest.
const FROM_NEWEST: u32 = 1 << 31;

/// Larger charges fit only if nothing is held and no limit is set.
pub(crate) const HUGE: u64 = u64::MAX - 2;

/// Few names, so that they recur; short scripts use even fewer.
const NAMES: [&str; 12] = ["a", "b", "c", "other one", "d", "e", "f", "g", "h", "i", "j", "k"];

/// Each breaks a different rule.
const BAD_NAMES: [&str; 5] = ["", ".", "..", "a/b", "a\u{7}"];

/// One kind of operation: its weight in each [`Source`], and how to draw one.
type Row = ([u32; 3], fn(&mut Draw<'_>) -> Op);

/// Every operation. A draw shrinks towards the first.
///
/// Weights are relative to the sum of their column. Threads look up far more handles than the other
/// sources, kill one group in a thousand steps and a subtree in 160,000, and leave flushes to a
/// flusher.
const OPS: &[Row] = &[
    ([9, 1_900, 272_000], |d| d.update(|d| Update::Add { counter: d.counter(), n: d.amount() })),
    ([5, 800, 136_000], |d| d.update(|d| Update::Adjust { delta: d.delta() })),
    ([4, 600, 136_000], |d| d.update(|d| Update::Record { value: d.below(100) })),
    ([0, 0, 52_480], |d| Op::Descend { turns: d.turns() }),
    ([3, 600, 32_000], |d| d.update(|d| Update::Visit { length: d.below(1 << 40) })),
    ([8, 800, 6_400], |d| Op::Charge { at: d.at(), quota: d.quota(), n: d.charge() }),
    ([3, 500, 3_840], |d| Op::DropCharge { charge: d.index() }),
    ([1, 300, 0], |d| d.update(|d| Update::RecordMany { value: d.below(100), n: d.below(5) })),
    ([6, 1_050, 0], |d| Op::Create { at: d.at(), name: d.name() }),
    ([1, 50, 0], |d| Op::Create { at: d.at(), name: d.pick(&BAD_NAMES) }),
    ([2, 200, 0], |d| Op::GetOrCreate { names: d.names(4) }),
    ([2, 250, 0], |d| Op::Find { at: d.at(), names: d.names(2) }),
    ([1, 250, 0], |d| Op::Descend { turns: d.turns() }),
    ([4, 600, 640], |d| Op::Kill { at: d.at() }),
    ([1, 10, 4], |d| Op::KillSubtree { at: d.at() }),
    ([3, 500, 0], |d| Op::DropHandle { at: d.at() }),
    ([2, 200, 0], |_| Op::CheckReleased),
    ([2, 150, 0], |d| Op::Resize { charge: d.index(), amount: d.below(60) }),
    ([1, 100, 0], |d| {
        let (charge, part) = (d.index(), d.below(60));
        Op::Split { charge, part, merge: d.below(2) == 0 }
    }),
    ([1, 60, 0], |d| Op::ChargeForced { at: d.at(), quota: d.quota(), n: d.below(60) }),
    ([1, 100, 0], |d| Op::ChargeAll { at: d.at(), n: [d.charge(), d.charge()] }),
    ([2, 60, 0], |d| Op::SetLimitMode { at: d.at(), quota: d.quota(), mode: d.mode() }),
    ([3, 150, 0], |d| {
        let (at, quota) = (d.at(), d.quota());
        Op::SetClaims { at, quota, claims: [d.claim(), d.claim()] }
    }),
    ([3, 300, 0], |d| Op::Protection { at: d.at(), quota: d.quota(), levels: d.index() }),
    ([3, 150, 0], |d| Op::SetLimit { at: d.at(), quota: d.quota(), limit: d.limit() }),
    ([2, 100, 8], |_| Op::Flush),
    ([1, 150, 0], |d| Op::FlushSection { section: d.index() }),
    ([2, 200, 24], |d| Op::FlushBelow { at: d.at() }),
    ([3, 900, 0], |d| Op::Read { at: d.at() }),
    ([2, 300, 0], |d| Op::ReadWithin { at: d.at(), error: d.error(), fresh: d.below(8) == 7 }),
    ([2, 300, 320], |d| Op::Sum { at: d.at() }),
    ([1, 200, 0], |d| Op::ReadVisits { at: d.at() }),
    ([1, 100, 0], |d| Op::SumVisits { at: d.at() }),
    ([1, 6, 0], |_| Op::Snapshot),
];

impl Op {
    /// Draws an operation from a generator.
    pub fn random(source: Source, rng: &mut Rng) -> Op {
        Draw { source, choose: &mut |end| rng.u64(..end) }.op()
    }
}

/// Generates scripts of up to `len_max` operations, which shrink in length and in every choice.
///
/// A separate generator for each operation would shrink as well, but would have to be kept
/// consistent with the table by hand.
pub fn script(len_max: usize) -> impl Strategy<Value = Vec<Op>> {
    let op = uniform8(any::<u32>()).prop_map(|choices| {
        let mut choices = choices.into_iter();
        // The upper half of a product, so that a smaller choice yields a smaller number.
        let mut choose = |end: u64| {
            let choice = choices.next().unwrap_or(0);
            ((u128::from(choice) * u128::from(end)) >> u32::BITS) as u64
        };
        Draw { source: Source::Script, choose: &mut choose }.op()
    });
    vec(op, 1..=len_max)
}

/// Returns the index among `len` items that `at` selects.
pub(crate) fn picked(at: u32, len: usize) -> usize {
    let from_newest = at & FROM_NEWEST != 0;
    let at = (at & !FROM_NEWEST) as usize % len;
    if from_newest { len - 1 - at } else { at }
}

/// A generator of operations from chosen numbers.
struct Draw<'c> {
    source: Source,
    /// Chooses a number below its argument.
    choose: &'c mut dyn FnMut(u64) -> u64,
}

impl Draw<'_> {
    fn op(&mut self) -> Op {
        let column = self.source as usize;
        let sum: u64 = OPS.iter().map(|(weights, _)| u64::from(weights[column])).sum();
        let mut left = self.below(sum);
        for (weights, draw) in OPS {
            match left.checked_sub(u64::from(weights[column])) {
                Some(rest) => left = rest,
                None => return draw(self),
            }
        }
        unreachable!("a draw is below the sum of the weights")
    }

    fn update(&mut self, draw: fn(&mut Self) -> Update) -> Op {
        Op::Update { at: self.at(), update: draw(self) }
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.choose)(end)
    }

    /// Draws an index. In scripts it is small, so that a shrunk script is readable, and below a
    /// number that most lengths divide.
    fn index(&mut self) -> u32 {
        self.below(if self.source == Source::Script { 60 } else { 1 << 20 }) as u32
    }

    /// Draws any handle; in a stream, often one of the newest, which are still unused.
    fn at(&mut self) -> u32 {
        if self.source == Source::Stream && self.below(4) == 0 {
            FROM_NEWEST | self.below(16) as u32
        } else {
            self.index()
        }
    }

    fn pick(&mut self, items: &[&'static str]) -> &'static str {
        items[self.below(items.len() as u64) as usize]
    }

    fn name(&mut self) -> &'static str {
        self.pick(if self.source == Source::Script { &NAMES[..4] } else { &NAMES })
    }

    fn names(&mut self, len_max: u64) -> Vec<&'static str> {
        (0..self.below(len_max + 1)).map(|_| self.name()).collect()
    }

    fn turns(&mut self) -> Vec<u32> {
        let len = match self.source {
            Source::Script | Source::Stream => self.below(7),
            // Threads share a tree of four levels, and mostly use its leaves.
            Source::Threads => match self.below(64) {
                0 => self.below(2),
                1..8 => 2,
                _ => 3,
            },
        };
        (0..len).map(|_| self.index()).collect()
    }

    fn counter(&mut self) -> usize {
        self.below(COUNTERS as u64) as usize
    }

    fn quota(&mut self) -> usize {
        self.below(QUOTAS as u64) as usize
    }

    /// Draws zero, small amounts, and amounts beyond 32 bits. The sum of a million of the largest
    /// fits in 63 bits; threads, which may add for hours, use small amounts.
    fn amount(&mut self) -> u64 {
        match self.below(6) {
            _ if self.source == Source::Threads => self.below(200),
            0 => 0,
            1..5 => self.below(50),
            _ => (1 << 31) + self.below(1 << 38),
        }
    }

    fn delta(&mut self) -> i64 {
        let delta = self.amount().cast_signed();
        if self.below(2) == 0 { delta } else { -delta }
    }

    /// Draws amounts mostly near the limits, and some so large that a sum would overflow.
    fn charge(&mut self) -> u64 {
        if self.source != Source::Threads && self.below(12) == 11 { HUGE } else { self.below(60) }
    }

    fn mode(&mut self) -> LimitMode {
        if self.below(3) == 0 { LimitMode::Soft } else { LimitMode::Enforced }
    }

    /// Draws a limit: low in scripts, so that it is reached soon. In a stream limits are removed as
    /// often as they are set; otherwise nothing would fit anywhere after a while.
    fn limit(&mut self) -> Option<u64> {
        match self.source {
            Source::Script => (self.below(5) > 0).then(|| self.below(200)),
            Source::Stream | Source::Threads => (self.below(2) == 1).then(|| self.below(400)),
        }
    }

    fn claim(&mut self) -> Option<u64> {
        (self.below(4) > 0).then(|| 1 + self.below(100))
    }

    fn error(&mut self) -> u64 {
        match self.below(6) {
            0 => 0,
            1 => 1,
            2 | 3 => self.below(5_000),
            4 => 1 << 34,
            _ => u64::MAX,
        }
    }
}
