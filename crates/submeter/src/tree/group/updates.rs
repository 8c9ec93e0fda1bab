//! Updates: adds to the running CPU's own words.

use std::time::Duration;

use super::Group;
use crate::metric::reading::Scalar;
use crate::metric::schema::{Counter, Gauge, Histogram, Key};
use crate::metric::unit::{Count, NO_BATCH_MASK, Nanoseconds, Unit};
use crate::stats::rstat::GroupStats;

/// Updates. Ancestors are brought up to date by the next flush.
impl Group {
    /// Adds to a counter, which wraps around at 2^64.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let sent = schema.counter::<Bytes>("sent", "Bytes of answers");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.get_or_create("/acme/web")?.add(sent, 512);
    /// assert_eq!(tree.root().sum(sent), 512);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the counter belongs to another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn add<U: Unit>(&self, counter: Counter<U>, n: u64) {
        self.add_to(counter.key, 0, n.cast_signed(), U::KIND.batch_mask());
    }

    /// Adds 1 to a counter or gauge. For bytes and nanoseconds, 1 is rarely what is meant: use
    /// [`add`](Group::add).
    ///
    /// # Panics
    /// When the metric belongs to another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn inc<M: Scalar>(&self, metric: M) {
        self.add_to(metric.key(), 0, 1, M::BATCH_MASK);
    }

    /// Subtracts 1 from a gauge. [`inc`](Group::inc) has an example.
    ///
    /// # Panics
    /// When the gauge belongs to another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn dec<U: Unit>(&self, gauge: Gauge<U>) {
        self.adjust(gauge, -1);
    }

    /// Moves a gauge up or down.
    ///
    /// # Panics
    /// When the gauge belongs to another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn adjust<U: Unit>(&self, gauge: Gauge<U>, delta: i64) {
        self.add_to(gauge.key, 0, delta, U::KIND.batch_mask());
    }

    /// Sets this group's own part of a gauge, by adding the difference. A read shows that part plus
    /// the parts of the groups below.
    ///
    /// Costs a load for each CPU, a lock of this group, and an add. For values that are sampled,
    /// such as the length of a queue. For a value that goes up and down with each request,
    /// [`adjust`](Group::adjust) is cheaper, and many threads may use it at once.
    ///
    /// No update is lost: a concurrent `adjust` counts as if it came either before the set, which
    /// overwrites it, or after, on top of it. Concurrent sets of one group wait for each other, and
    /// the last one wins.
    ///
    /// When the group is [killed](Group::kill), its last value stays in the totals above, and is
    /// shown as its parent's own in addition to what is set there. Set it to 0 then, through a
    /// remaining handle.
    ///
    /// Not for signal handlers, which would wait for a set that they interrupted: use `adjust`
    /// there.
    ///
    /// Either set a gauge or adjust it. If a thread's `+1` and `-1` run beside a set, one may be
    /// added on top of it and the other overwritten; the difference stays until the next set.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let queued = schema.gauge::<Count>("queued", "Requests in the queue");
    /// let tree = Tree::new(schema.build()?)?;
    /// let (web, mail) = (tree.create("/web")?, tree.create("/mail")?);
    /// web.set(queued, 7);
    /// mail.set(queued, 2);
    /// web.set(queued, 3);
    /// assert_eq!((web.sum(queued), tree.root().sum(queued)), (3, 5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the gauge belongs to another tree's schema.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn set<U: Unit>(&self, gauge: Gauge<U>, value: i64) {
        let (stats, word) = (self.group_stats(gauge.key), usize::from(gauge.key.slot));
        // Without room for the group's own words, these belong to a group above, whose part must
        // not be set.
        if self.has(stats) {
            let add = |lacking| stats.add(word, lacking, U::KIND.batch_mask());
            self.inner.setter.set(value, || stats.own(word), add);
        }
    }

    /// Records one value in a histogram: two adds. The sum of values wraps around at 2^64. For a
    /// duration use [`record_duration`](Group::record_duration).
    ///
    /// # Examples
    /// ```
    /// use submeter::{Buckets, Bytes, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let sizes = schema.histogram::<Bytes>("sizes", "Of answers", Buckets::powers(6, 20));
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().record(sizes, 1500);
    /// assert_eq!(tree.root().sum_histogram(sizes).sum(), 1500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the histogram belongs to another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn record<U: Unit>(&self, histogram: Histogram<U>, value: u64) {
        self.record_many(histogram, value, 1);
    }

    /// Records a duration, in nanoseconds. More than 584 years count as 584.
    ///
    /// # Panics
    /// When the histogram belongs to another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn record_duration(&self, histogram: Histogram<Nanoseconds>, duration: Duration) {
        self.record(histogram, u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records a value `n` times for the price of one: for a batch that was measured as a whole.
    ///
    /// # Panics
    /// When the histogram belongs to another tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn record_many<U: Unit>(&self, histogram: Histogram<U>, value: u64, n: u64) {
        let bucket = histogram.buckets.index(value);
        // The bound of a distribution is in values, so only the buckets' adds need to report batch
        // crossings.
        let sum = value.wrapping_mul(n).cast_signed();
        self.add_to(histogram.key, 0, sum, NO_BATCH_MASK);
        self.add_to(histogram.key, 1 + bucket, n.cast_signed(), Count::KIND.batch_mask());
    }

    /// Returns the words of a metric's section, and makes them if this is the first update. The
    /// metric must belong to this tree's schema.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn group_stats(&self, key: Key) -> &GroupStats {
        match self.inner.words_of(key.section) {
            Some(stats) => stats,
            None => self.first_words(key.section),
        }
    }

    /// Counts a charge that this group's limit of a quota refused.
    pub(crate) fn add_refused(&self, quota: Key) {
        let word = self.inner.tree.first_schema().refused_word(quota);
        self.inner.stats.add(word, 1, Count::KIND.batch_mask());
    }

    /// Counts that a caller was asked to pause because of this group's own usage of a quota.
    pub(crate) fn add_paused(&self, quota: Key) {
        let word = self.inner.tree.first_schema().paused_word(quota);
        self.inner.stats.add(word, 1, Count::KIND.batch_mask());
    }

    /// Counts charges that were granted beyond this group's limit of a quota.
    pub(crate) fn add_overdrafts(&self, quota: Key, n: u64) {
        let word = self.inner.tree.first_schema().overdrafts_word(quota);
        self.inner.stats.add(word, n.cast_signed(), Count::KIND.batch_mask());
    }

    /// Adds what a thread's counts gained.
    #[inline]
    pub(crate) fn add_gained(&self, counter: Key, gained: u64, batch_mask: u64) {
        self.add_to(counter, 0, gained.cast_signed(), batch_mask);
    }

    /// Adds to words of a counter or histogram, by their index within it.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn add_words(&self, metric: &crate::Metric, words: &[(usize, i64)]) {
        if self.schema().cpu_time().is_some_and(|cpu_time| cpu_time.key == metric.key) {
            let restored = words.iter().fold(0, |sum: i64, &(_, n)| sum.wrapping_add(n));
            self.inner.extras.restored(restored);
        }
        for &(place, n) in words {
            // As in `add` and `record_many`: the sum of a histogram's values need not report batch
            // crossings.
            let batch_mask = match (metric.kind(), place) {
                (crate::MetricKind::Histogram, 0) => NO_BATCH_MASK,
                (crate::MetricKind::Histogram, _) => Count::KIND.batch_mask(),
                _ => metric.unit().batch_mask(),
            };
            self.add_to(metric.key, place, n, batch_mask);
        }
    }

    /// Adds to a word of a metric, `offset` words after its first.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    fn add_to(&self, key: Key, offset: usize, n: i64, batch_mask: u64) {
        if key.section == self.inner.section_id {
            self.inner.stats.add(usize::from(key.slot) + offset, n, batch_mask);
        } else {
            self.add_elsewhere(key, offset, n, batch_mask);
        }
    }

    /// Not inlined, so that metrics of the first section do not pay for the others.
    #[inline(never)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn add_elsewhere(&self, key: Key, offset: usize, n: i64, batch_mask: u64) {
        match self.inner.extras.find(key.section) {
            Some(other) => other.stats.add(usize::from(key.slot) + offset, n, batch_mask),
            None => self.add_first(key, offset, n, batch_mask),
        }
    }

    /// Does the first add in a section that was added to the tree. A tail call: the caller need not
    /// keep anything across it.
    #[cold]
    #[inline(never)]
    #[cfg_attr(debug_assertions, track_caller)]
    fn add_first(&self, key: Key, offset: usize, n: i64, batch_mask: u64) {
        self.group_stats(key).add(usize::from(key.slot) + offset, n, batch_mask);
    }
}
