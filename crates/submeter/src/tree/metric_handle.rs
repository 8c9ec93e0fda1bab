//! One metric of one group, looked up once: the cheapest update.

use std::fmt;
use std::marker::PhantomData;

use submeter_percpu::Word;

use crate::metric::reading::Scalar;
use crate::metric::schema::{Counter, Gauge, Key};
use crate::metric::unit::Unit;
use crate::stats::rstat::GroupStats;
use crate::tree::group::Group;

/// One counter or gauge of one group whose word was looked up beforehand, so that an update is only
/// the add.
///
/// Costs a few nanoseconds to create and nothing to copy or drop; borrows the group's handle. It is
/// meant for loops, where it stays in registers. For a single update, use the group.
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
/// let answered = web.handle(requests);
/// for _ in 0..1000 {
///     answered.inc();
/// }
/// assert_eq!(answered.group(), &web);
/// assert_eq!(tree.root().sum(requests), 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MetricHandle<'a, M> {
    word: Word<'a>,
    /// For the slow path.
    stats: &'a GroupStats,
    /// The word's index in the group's block.
    index: usize,
    group: &'a Group,
    metric: PhantomData<fn() -> M>,
}

// Not derived: that would require the same traits of the metric.
impl<M> Clone for MetricHandle<'_, M> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for MetricHandle<'_, M> {}

impl Group {
    /// Looks up the word of a counter or gauge once, for many updates: see [`MetricHandle`].
    ///
    /// # Examples
    /// ```
    /// # use submeter::{Count, Schema, Tree};
    /// # let mut schema = Schema::builder();
    /// # let requests = schema.counter::<Count>("requests", "Requests answered");
    /// # let tree = Tree::new(schema.build()?)?;
    /// let answered = tree.root().handle(requests);
    /// (0..100).for_each(|_| answered.inc());
    /// assert_eq!(tree.root().sum(requests), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the metric belongs to another tree's schema.
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn handle<M: Scalar>(&self, metric: M) -> MetricHandle<'_, M> {
        MetricHandle::new(self, metric.key())
    }
}

impl<'a, M: Scalar> MetricHandle<'a, M> {
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn new(group: &'a Group, key: Key) -> MetricHandle<'a, M> {
        let (stats, index) = (group.group_stats(key), usize::from(key.slot));
        MetricHandle { word: stats.word(index), stats, index, group, metric: PhantomData }
    }

    /// Returns the group.
    #[must_use]
    pub fn group(self) -> &'a Group {
        self.group
    }

    /// Adds 1 to the counter or gauge.
    #[inline(always)]
    pub fn inc(self) {
        self.update(1);
    }

    #[inline(always)]
    fn update(self, n: i64) {
        let MetricHandle { word, stats, index, .. } = self;
        word.add_dirty(n, M::BATCH_MASK, move |updated| stats.crossed(index, &updated));
    }
}

impl<U: Unit> MetricHandle<'_, Counter<U>> {
    /// Adds to the counter.
    #[inline(always)]
    pub fn add(self, n: u64) {
        self.update(n.cast_signed());
    }
}

impl<U: Unit> MetricHandle<'_, Gauge<U>> {
    /// Adds `delta`, which may be negative, to the gauge.
    #[inline(always)]
    pub fn adjust(self, delta: i64) {
        self.update(delta);
    }

    /// Subtracts 1 from the gauge.
    #[inline(always)]
    pub fn dec(self) {
        self.update(-1);
    }

    /// Sets the group's own part of the gauge: see [`Group::set`].
    pub fn set(self, value: i64) {
        self.group.set_word(self.stats, self.index, value, <Gauge<U>>::BATCH_MASK);
    }
}

impl<M> fmt::Debug for MetricHandle<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetricHandle({}[{}])", self.group.path(), self.index)
    }
}
