//! Slots: metrics of a schema whose names become known later.

use submeter::{Buckets, Count, Counter, Gauge, Histogram, SchemaBuilder, WORDS_MAX};

/// The buckets of a histogram's slots, from 4 µs to 51 days if values are seconds.
const BUCKETS: Buckets = Buckets::powers(2, 42);

/// Names and help texts of [`Losses`], in their order.
pub(crate) const LOSSES: [(&str, &str); 3] = [
    ("metrics_unplaced_updates", "Updates of metrics for which there was no slot"),
    ("metrics_unplaced_increments", "Amounts added to counters without a slot"),
    ("metrics_unfit_values", "Values that are not numbers, too large, or below 0 in a histogram"),
];

/// How many metrics of each kind a [`Recorder`](crate::Recorder) has room for.
///
/// A counter or a gauge takes a word (8 bytes) for each group and CPU that updates it, a histogram
/// 163 by default. Memory is taken where it is first written, so unused slots cost only room in the
/// schema: at most [`WORDS_MAX`] words in a section, and a schema has at most
/// [`SECTIONS_MAX`](submeter::SECTIONS_MAX) sections.
#[derive(Clone, Debug)]
pub struct Slots {
    counters: usize,
    gauges: usize,
    histograms: usize,
    per_unit: u32,
    buckets: Buckets,
}

/// Slots that were [declared](Slots::declare), for one [`Recorder`](crate::Recorder).
#[derive(Debug)]
pub struct Declared {
    pub(crate) counters: Vec<Counter<Count>>,
    pub(crate) gauges: Vec<Gauge<Count>>,
    pub(crate) histograms: Vec<Histogram<Count>>,
    pub(crate) per_unit: u32,
    pub(crate) losses: Losses,
}

/// Counters of updates for which there was no place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Losses {
    pub(crate) unplaced_updates: Counter<Count>,
    pub(crate) unplaced_increments: Counter<Count>,
    pub(crate) unfit_values: Counter<Count>,
}

/// A metric that took a slot, as [`Recorder::named`](crate::Recorder::named) returns it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Named {
    /// The name that the program gave, such as `http.requests`.
    pub name: String,
    /// The labels, in the order of first use.
    pub labels: Vec<(String, String)>,
    /// The description, if there is one yet.
    pub help: Option<String>,
    /// The key by which the tree is read.
    pub slot: Slot,
}

/// The key of a metric of the tree's schema: the place to read for [`Named::slot`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Slot {
    /// A counter's key.
    Counter(Counter<Count>),
    /// A gauge's key; [`GAUGE_PER_UNIT`](crate::GAUGE_PER_UNIT) stands for 1.
    Gauge(Gauge<Count>),
    /// A histogram's key, in the parts of 1 that [`Slots::buckets`] set.
    Histogram(Histogram<Count>),
}

impl Default for Slots {
    fn default() -> Slots {
        Slots::new()
    }
}

impl Slots {
    /// Starts with room for 64 counters, 16 gauges and 6 histograms.
    #[must_use]
    pub fn new() -> Slots {
        Slots { counters: 64, gauges: 16, histograms: 6, per_unit: 1_000_000, buckets: BUCKETS }
    }

    /// Sets how many counters there may be; each name with each set of labels is one.
    #[must_use]
    pub fn counters(mut self, counters: usize) -> Slots {
        self.counters = counters;
        self
    }

    /// Sets how many gauges there may be; each name with each set of labels is one.
    #[must_use]
    pub fn gauges(mut self, gauges: usize) -> Slots {
        self.gauges = gauges;
        self
    }

    /// Sets how many histograms there may be; each name with each set of labels is one.
    #[must_use]
    pub fn histograms(mut self, histograms: usize) -> Slots {
        self.histograms = histograms;
        self
    }

    /// Sets the buckets of all histograms, and which value in them stands for 1: values are rounded
    /// to such parts. The default is 162 buckets, in which a million stands for 1.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Buckets, Schema};
    /// use submeter_metrics::Slots;
    ///
    /// // Bytes, in buckets from 64 bytes to a gigabyte.
    /// let slots = Slots::new().buckets(1, Buckets::powers(6, 30));
    /// let mut schema = Schema::builder();
    /// slots.declare(&mut schema);
    /// # schema.build()?;
    /// # Ok::<(), submeter::SchemaError>(())
    /// ```
    ///
    /// # Panics
    /// When `per_unit` is 0.
    #[must_use]
    pub fn buckets(mut self, per_unit: u32, buckets: Buckets) -> Slots {
        assert!(per_unit > 0, "per_unit is 0: use at least 1, which rounds to integers");
        (self.per_unit, self.buckets) = (per_unit, buckets);
        self
    }

    /// Declares the slots in a schema: counters and gauges in the current section, histograms in
    /// sections of their own, since few fit in one. Call it once for each schema.
    ///
    /// The schema knows them as `metrics_counter_0` and so on. Too many slots are refused by
    /// [`SchemaBuilder::build`].
    pub fn declare(self, schema: &mut SchemaBuilder) -> Declared {
        let losses = LOSSES.map(|(name, help)| schema.counter(name, help));
        let [unplaced_updates, unplaced_increments, unfit_values] = losses;
        let losses = Losses { unplaced_updates, unplaced_increments, unfit_values };
        let name = |kind, n| format!("metrics_{kind}_{n}");
        let help = "Slot of a recorder";
        let counters = (0..self.counters).map(|n| schema.counter(&name("counter", n), help));
        let counters = counters.collect();
        let gauges = (0..self.gauges).map(|n| schema.gauge(&name("gauge", n), help)).collect();
        // One word for the sum, then one for each bucket.
        let in_section = (WORDS_MAX / (self.buckets.len() + 1)).max(1);
        let histograms = (0..self.histograms).map(|n| {
            schema.section(&format!("metrics_{}", n / in_section), |section| {
                section.histogram(&name("histogram", n), help, self.buckets)
            })
        });
        let histograms = histograms.collect();
        Declared { counters, gauges, histograms, per_unit: self.per_unit, losses }
    }
}
