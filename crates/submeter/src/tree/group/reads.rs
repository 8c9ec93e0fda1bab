//! Reads: cached, within a tolerance, or exact after a flush.

use std::time::Duration;

use super::{Group, GroupInner, wrong_schema};
use crate::metric::histogram::HistogramSnapshot;
use crate::metric::reading::{Reading, Scalar, Tolerance};
use crate::metric::schema::{Histogram, Key, Schema, SectionLayout};
use crate::metric::unit::{Count, Unit};
use crate::stats::rstat::{FlushReport, Flushed, GroupStats};

/// Reads. Three methods at three prices: `read` is O(1), `sum` flushes, a snapshot copies the tree.
impl Group {
    /// Reads the total as of the last flush, own plus descendants': O(1), with an error bound and
    /// an age.
    ///
    /// Costs some tens of nanoseconds, plus one nanosecond for each line that the last flush left
    /// marked and that has not changed since: at most 128, or 2,048 while the whole tree is flushed
    /// more than once a millisecond. The number of groups and CPUs does not matter, except that
    /// batches crossed since this group was last flushed by itself cost a look at the groups above.
    ///
    /// Does not flush. If nothing ever flushes, the value stays 0 and `max_error` says how far off
    /// it may be. Where that is not good enough, use [`read_within`](Group::read_within), or
    /// [`sum`](Group::sum) for the exact value. A [`Flusher`](crate::Flusher) keeps cached totals
    /// fresh for many readers.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().add(requests, 7);
    ///
    /// let reading = tree.root().read(requests);
    /// assert!(reading.value == 0 && reading.max_error >= 7);
    /// tree.flush();
    /// let reading = tree.root().read(requests);
    /// assert_eq!((reading.value, reading.max_error), (7, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the metric belongs to another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read<M: Scalar>(&self, metric: M) -> Reading<M::Value> {
        let key = metric.key();
        let reading = match self.counted(key) {
            Some(stats) => stats.read(usize::from(key.slot), M::BATCH_MASK),
            None => Reading { value: 0, max_error: 0, age: Duration::ZERO },
        };
        reading.map(M::value)
    }

    /// Flushes the metric's section in this group and below, then reads: every update that returned
    /// before this call is included. Costs what [`flush`](Group::flush) costs, for one section.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.get_or_create("/acme/web")?.add(requests, 3);
    /// assert_eq!(tree.root().sum(requests), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the metric belongs to another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn sum<M: Scalar>(&self, metric: M) -> M::Value {
        let key = metric.key();
        let Some(stats) = self.counted(key) else { return M::value(0) };
        stats.rstat().flush_below(stats);
        M::value(stats.total(usize::from(key.slot)))
    }

    /// Reads the cached total if it is good enough; if not, first flushes this group and everything
    /// below it.
    ///
    /// For pages and controllers that look often: most calls cost what [`read`](Group::read) costs.
    /// After a flush the value includes all updates that returned before this call. Its error bound
    /// then covers those made during the flush, and may exceed the tolerance again.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Count, Schema, Tolerance, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let requests = schema.counter::<Count>("requests", "Requests answered");
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().add(requests, 7);
    ///
    /// // Up to 5,000 requests may be missing, for up to a minute: no flush.
    /// let loose = Tolerance::max_error(5000).max_age(Duration::from_secs(60));
    /// assert_eq!(tree.root().read_within(requests, loose).value, 0);
    ///
    /// assert_eq!(tree.root().read_within(requests, Tolerance::EXACT).value, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the metric belongs to another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read_within<M: Scalar>(&self, metric: M, tolerance: Tolerance) -> Reading<M::Value> {
        let reading = self.read(metric);
        if tolerance.accepts(&reading) {
            return reading;
        }
        if let Some(stats) = self.counted(metric.key()) {
            stats.rstat().flush_below(stats);
        }
        self.read(metric)
    }

    /// Brings the cached totals of this group and of everything below it up to date: all updates
    /// that returned before this call are included. What it finds is added to the groups above too,
    /// so that a parent remains the sum of itself and its children. Changes elsewhere below those
    /// ancestors wait for a later flush.
    ///
    /// Costs time in proportion to what changed below, a look at up to 2,048 lines that changed
    /// lately, a load for each 64 lines that changed anywhere (not for a group that never had a
    /// child), and occasionally a `membarrier` for each section. Shares a flush of this group, of
    /// one above it or of the tree that began after this call. For all groups use
    /// [`Tree::flush`](crate::Tree::flush): one flush is cheaper than many.
    pub fn flush(&self) -> FlushReport {
        let first = self.inner.stats.rstat().flush_below(&self.inner.stats);
        let others = self.inner.extras.all().map(|other| &other.stats);
        others.fold(first, |report, stats| report.and(stats.rstat().flush_below(stats)))
    }

    /// Copies the distribution as of the last flush, own plus descendants', with an error bound and
    /// an age. Costs what [`read`](Group::read) costs, and two loads for each bucket.
    ///
    /// `max_error` is the number of values that the buckets may lack. A value that is being
    /// recorded may already be in the sum but in no bucket yet.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Buckets, Nanoseconds, Schema, Tree};
    ///
    /// let mut schema = Schema::builder();
    /// let latency = schema.histogram::<Nanoseconds>("latency", "Latency", Buckets::LATENCY_NS);
    /// let tree = Tree::new(schema.build()?)?;
    /// tree.root().record(latency, 5_000);
    ///
    /// let reading = tree.root().read_histogram(latency);
    /// assert!(reading.value.count() == 0 && reading.max_error >= 1);
    /// tree.flush();
    /// let reading = tree.root().read_histogram(latency);
    /// assert_eq!((reading.value.count(), reading.max_error), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When the histogram belongs to another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read_histogram<U: Unit>(&self, histogram: Histogram<U>) -> Reading<HistogramSnapshot> {
        let Some(stats) = self.counted(histogram.key) else {
            let none = HistogramSnapshot::none(histogram.buckets);
            return Reading { value: none, max_error: 0, age: Duration::ZERO };
        };
        let word = usize::from(histogram.key.slot);
        let buckets = word + 1..word + 1 + histogram.buckets.len();
        let counts = stats.read_many(buckets, Count::KIND.batch_mask());
        // After the counts, because the bound is theirs.
        let sum = stats.total(word).cast_unsigned();
        counts.map(|counts| HistogramSnapshot::new(histogram.buckets, counts, sum))
    }

    /// Flushes the histogram's section in this group and below, then copies its distribution: every
    /// value whose `record` returned before this call is included. Costs what [`sum`](Group::sum)
    /// costs, and a load for each bucket.
    ///
    /// # Panics
    /// When the histogram belongs to another tree's schema.
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn sum_histogram<U: Unit>(&self, histogram: Histogram<U>) -> HistogramSnapshot {
        if let Some(stats) = self.counted(histogram.key) {
            stats.rstat().flush_below(stats);
        }
        self.read_histogram(histogram).value
    }

    /// Returns the words of a metric's section, for a reader; `None` if the section was added to
    /// the tree and nothing was counted here or below.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub(crate) fn counted(&self, key: Key) -> Option<&GroupStats> {
        let stats = self.inner.words_of(key.section);
        if stats.is_none() && !self.inner.tree.first_schema().may_add(key.section) {
            wrong_schema();
        }
        stats
    }

    /// Returns all cached totals, section after section. The schema is one that the tree has or
    /// had.
    pub(crate) fn totals(&self, schema: &Schema) -> Box<[i64]> {
        let mut totals = Vec::with_capacity(schema.words());
        for (section, stats) in self.sections(schema) {
            let total = |word| stats.map_or(0, |stats| stats.total(word));
            totals.extend((0..section.words).map(total));
        }
        totals.into()
    }

    /// Returns the group's own counts as of a flush of all sections, section after section.
    pub(crate) fn own_words(&self, schema: &Schema, flushed: &mut [Flushed<'_>]) -> Box<[i64]> {
        let mut words = Vec::with_capacity(schema.words());
        for ((section, stats), flushed) in self.sections(schema).zip(flushed) {
            let end = words.len() + section.words;
            if let Some(stats) = stats {
                flushed.own(stats, &mut words);
            }
            // The last line may have words to spare.
            words.resize(end, 0);
        }
        words.into()
    }

    /// Returns the words of each section, if there are any.
    fn sections<'a>(
        &'a self,
        schema: &'a Schema,
    ) -> impl Iterator<Item = (&'a SectionLayout, Option<&'a GroupStats>)> {
        schema.layouts().iter().map(|section| (section, self.inner.words_of(section.id)))
    }
}

impl GroupInner {
    /// Returns the words of a section, if there are any.
    #[inline]
    pub(super) fn words_of(&self, section: u32) -> Option<&GroupStats> {
        if section == self.section_id {
            return Some(&self.stats);
        }
        self.extras.find(section).map(|other| &other.stats)
    }
}
