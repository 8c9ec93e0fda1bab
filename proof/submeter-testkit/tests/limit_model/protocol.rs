//! What the protocol keeps: levels, leaves and threads, small enough to be hashed whole.

/// The levels: the root, and the two leaves below it.
pub(crate) const ROOT: usize = 0;
pub(crate) const A: usize = 1;
pub(crate) const B: usize = 2;

/// No limit.
pub(crate) const NONE: u8 = 100;

/// What a refill takes on top of what is asked for, and the most that a word may hold.
pub(crate) const BATCH: u8 = 1;
pub(crate) const CAP: u8 = 1;

/// How often a leaf reopens at most, which bounds a run.
pub(crate) const REOPENED_MAX: u8 = 1;

pub(crate) const THREADS_MAX: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Charge(usize, u8),
    /// Of what the thread holds; skipped where it holds less.
    Release(usize, u8),
    SetLimit(usize, u8),
    /// The leaf never opens again.
    Kill(usize),
}

/// Levels' limits, each thread's CPU and operations, and how often a level may be loosened.
pub(crate) struct Scenario {
    pub(crate) limits: [u8; 3],
    pub(crate) threads: &'static [(usize, &'static [Op])],
    pub(crate) loosened: u8,
}

/// A step that is left out, or taken too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    NoBarrier,
    GateOutside,
    FoldIgnoresRefill,
    LoweredEarly,
    OpenedUnreserved,
    OpenedUnasked,
    RefusedAtOnce,
    AnyBarrier,
    LimitWithoutFold,
}

/// Whether stock may be below a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Tight {
    Loose,
    /// Leaves below it are being closed; none opens.
    Tightening,
    /// All leaves below it are closed, and their stock was given back.
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Level {
    pub(crate) limit: u8,
    /// The limit that every charge must keep to: a lower one counts once its setter has returned.
    pub(crate) effective: u8,
    /// What is charged here and below, stock included.
    pub(crate) held: u8,
    pub(crate) tight: Tight,
    /// How often it was loosened: with `tight` one atomic word.
    pub(crate) epoch: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Leaf {
    Open,
    /// The gate is closed, and the stock not given back yet.
    Closing,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stock {
    /// What the sequences test.
    pub(crate) gate: bool,
    /// Guarded by `lock`, as `opened`.
    pub(crate) state: Leaf,
    pub(crate) opened: u8,
    pub(crate) killed: bool,
    pub(crate) locked: bool,
    /// One a CPU: written by that CPU's sequences alone.
    pub(crate) words: [u8; 2],
}

/// Where a thread is. The letters group what one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    /// Between two operations.
    Next,
    /// The sequence: gate, word, commit. `Outside` is before it, for a mistake.
    Outside,
    Gate,
    Word,
    Commit,
    /// A charge that left the sequence; a refill: the leaf's level, the root's, the word.
    Cold,
    RefillLeaf,
    RefillRoot,
    RefillWord,
    RefillRootBack,
    RefillLeafBack,
    RefillUndo,
    /// A leaf that opens again.
    OpenLeaf,
    OpenRoot,
    OpenUndo,
    OpenGate,
    /// A charge of every level, exactly.
    ExactLeaf,
    ExactRoot,
    ExactUndo,
    /// A refusal: the level's state, what it holds, the state again.
    Refused,
    RefusedHeld,
    RefusedAgain,
    /// A fold: close, barrier, give back. `leaf` is the next to look at.
    FoldClose,
    FoldBarrier,
    FoldLock,
    FoldRoot,
    FoldLeaf,
    FoldEnd,
    /// A release that left the sequence.
    BackLeaf,
    BackRoot,
    /// The end of a change of limit.
    LimitSet,
}

/// A thread, with its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Thread {
    pub(crate) op: u8,
    pub(crate) at: At,
    /// What it loaded: a word, or a sum of words.
    pub(crate) loaded: u8,
    /// The level that refused, or is folded.
    pub(crate) level: u8,
    pub(crate) epoch: u8,
    /// The leaf that a fold looks at.
    pub(crate) leaf: u8,
    /// For each leaf, the opening that the fold found to be closing; `NONE` for no such leaf.
    pub(crate) closing: [u8; 2],
    /// For a mistake: what the words held when the leaf was closed.
    pub(crate) early: [u8; 2],
    /// Whether the refusal was right when the level was looked at.
    pub(crate) justified: bool,
    /// What it holds of each leaf.
    pub(crate) holds: [u8; 2],
}

impl Thread {
    /// A thread between two operations.
    pub(crate) fn before(op: u8, holds: [u8; 2]) -> Thread {
        Thread {
            op,
            at: At::Next,
            loaded: 0,
            level: 0,
            epoch: 0,
            leaf: 0,
            closing: [NONE; 2],
            early: [0; 2],
            justified: false,
            holds,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) levels: [Level; 3],
    pub(crate) stocks: [Stock; 2],
    pub(crate) threads: [Thread; THREADS_MAX],
    /// How often a level may still be loosened.
    pub(crate) loosened: u8,
}

impl State {
    pub(crate) fn new(scenario: &Scenario) -> State {
        let level =
            |limit| Level { limit, effective: limit, held: 0, tight: Tight::Loose, epoch: 0 };
        let stock = Stock {
            gate: true,
            state: Leaf::Open,
            opened: 0,
            killed: false,
            locked: false,
            words: [0; 2],
        };
        State {
            levels: scenario.limits.map(level),
            stocks: [stock; 2],
            threads: [Thread::before(0, [0; 2]); THREADS_MAX],
            loosened: scenario.loosened,
        }
    }

    pub(crate) fn stock(&mut self, leaf: usize) -> &mut Stock {
        &mut self.stocks[leaf - A]
    }

    /// What is granted and not released, of a leaf or of all.
    pub(crate) fn usage(&self, level: usize) -> u8 {
        let of = |leaf: usize| self.threads.iter().map(|thread| thread.holds[leaf - A]).sum::<u8>();
        if level == ROOT { of(A) + of(B) } else { of(level) }
    }

    /// The stock below a level that was not given back.
    pub(crate) fn stocked(&self, level: usize) -> u8 {
        [A, B]
            .into_iter()
            .filter(|&leaf| is_below(leaf, level) && self.stocks[leaf - A].state != Leaf::Closed)
            .map(|leaf| self.stocks[leaf - A].words.iter().sum::<u8>())
            .sum()
    }
}

/// Returns whether a leaf is the level, or below it.
pub(crate) fn is_below(leaf: usize, level: usize) -> bool {
    level == ROOT || leaf == level
}
