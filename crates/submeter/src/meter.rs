//! One metric of one group, found once: the cheapest update.

use std::fmt;
use std::marker::PhantomData;

use submeter_percpu::Word;

use crate::group::Group;
use crate::reading::Scalar;
use crate::rstat::Leaf;
use crate::schema::{Counter, Gauge, Key};
use crate::unit::Unit;

/// Updates one metric of one group, found once: what [`Group::add`] and [`Group::adjust`] look up on each call
/// is at hand.
///
/// Costs some nanoseconds to make and nothing to copy or drop; borrows the group's handle. For loops, which
/// keep it in registers. For a single update use the group.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
///
/// let web = tree.get_or_create("/acme/web")?;
/// let answered = web.meter(requests);
/// for _ in 0..1000 {
///     answered.add(1);
/// }
/// assert_eq!(tree.root().sum(requests), 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Meter<'a, M> {
    word: Word<'a>,
    /// For what is rare.
    leaf: &'a Leaf,
    /// In the group's block.
    index: usize,
    group: &'a Group,
    metric: PhantomData<fn() -> M>,
}

// Derived, they would ask the same of the metric.
impl<M> Clone for Meter<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Meter<'_, M> {}

impl<'a, M: Scalar> Meter<'a, M> {
    #[inline]
    pub(crate) fn new(group: &'a Group, key: Key) -> Meter<'a, M> {
        let (leaf, index) = (group.leaf(key), usize::from(key.slot));
        Meter { word: leaf.word(index), leaf, index, group, metric: PhantomData }
    }

    /// Returns the group.
    #[must_use]
    pub fn group(self) -> &'a Group {
        self.group
    }

    #[inline(always)]
    fn update(self, n: i64) {
        let Meter { word, leaf, index, .. } = self;
        word.add_marked(n, M::BATCH_MASK, move |carried| leaf.carried(index, carried));
    }
}

impl<U: Unit> Meter<'_, Counter<U>> {
    /// Adds to the counter.
    #[inline(always)]
    pub fn add(self, n: u64) {
        self.update(n.cast_signed());
    }
}

impl<U: Unit> Meter<'_, Gauge<U>> {
    /// Moves the gauge up or down.
    #[inline(always)]
    pub fn adjust(self, delta: i64) {
        self.update(delta);
    }
}

impl<M> fmt::Debug for Meter<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter({}[{}])", self.group.path(), self.index)
    }
}
