//! The target of the handles that `metrics` keeps: a slot, and no group. A handle outlives any
//! group, and its caller's group differs from one update to the next.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{CounterFn, GaugeFn, HistogramFn};
use submeter::{Count, Counter, Gauge, Group, Histogram, switch};

use crate::slots::Losses;

/// The value of a gauge's slot that stands for 1. Gauges are kept in thousandths, so that there is
/// room for every integer that a float holds exactly.
pub const GAUGE_PER_UNIT: u32 = 1000;

/// Above this, not every integer is a float.
const GAUGE_MAX: f64 = (1u64 << 53) as f64;

/// The largest value that buckets distinguish.
const HISTOGRAM_MAX: f64 = (1u64 << 62) as f64;

/// The fields of every handle.
#[derive(Clone, Debug)]
pub(crate) struct Charged {
    /// The group for work outside all groups.
    pub(crate) outside: Group,
    pub(crate) losses: Losses,
}

impl Charged {
    #[cold]
    fn unfit(&self) {
        switch::add(&self.outside, self.losses.unfit_values, 1);
    }

    #[cold]
    fn unplaced(&self, updates: u64) {
        switch::add(&self.outside, self.losses.unplaced_updates, updates);
    }
}

pub(crate) struct CounterSlot {
    pub(crate) charged: Charged,
    pub(crate) counter: Counter<Count>,
    /// The highest value that was set.
    pub(crate) absolute: AtomicU64,
}

impl CounterFn for CounterSlot {
    fn increment(&self, n: u64) {
        switch::add(&self.charged.outside, self.counter, n);
    }

    fn absolute(&self, value: u64) {
        // Relaxed: the atomic's own modification order makes each rise the share of one caller.
        let before = self.absolute.fetch_max(value, Ordering::Relaxed);
        if value > before {
            self.increment(value - before);
        }
    }
}

pub(crate) struct GaugeSlot {
    pub(crate) charged: Charged,
    pub(crate) gauge: Gauge<Count>,
}

impl GaugeSlot {
    /// Returns the value in the slot's unit, or counts that it does not fit.
    fn scaled(&self, value: f64) -> Option<i64> {
        let scaled = (value * f64::from(GAUGE_PER_UNIT)).round();
        // False for NaN too.
        if scaled.abs() <= GAUGE_MAX {
            return Some(scaled as i64);
        }
        self.charged.unfit();
        None
    }
}

impl GaugeFn for GaugeSlot {
    fn increment(&self, value: f64) {
        if let Some(delta) = self.scaled(value) {
            switch::adjust(&self.charged.outside, self.gauge, delta);
        }
    }

    fn decrement(&self, value: f64) {
        self.increment(-value);
    }

    fn set(&self, value: f64) {
        if let Some(value) = self.scaled(value) {
            switch::set(&self.charged.outside, self.gauge, value);
        }
    }
}

pub(crate) struct HistogramSlot {
    pub(crate) charged: Charged,
    pub(crate) histogram: Histogram<Count>,
    pub(crate) per_unit: u32,
}

impl HistogramFn for HistogramSlot {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        let scaled = (value * f64::from(self.per_unit)).round();
        // False for NaN too.
        if (0.0..=HISTOGRAM_MAX).contains(&scaled) {
            let Charged { outside, .. } = &self.charged;
            switch::record_many(outside, self.histogram, scaled as u64, count as u64);
        } else {
            self.charged.unfit();
        }
    }
}

/// The handle of every metric that found no slot.
pub(crate) struct Unplaced(pub(crate) Charged);

impl CounterFn for Unplaced {
    fn increment(&self, n: u64) {
        self.0.unplaced(1);
        switch::add(&self.0.outside, self.0.losses.unplaced_increments, n);
    }

    /// The increase is unknown, as there is no slot with the value before.
    fn absolute(&self, _value: u64) {
        self.0.unplaced(1);
    }
}

impl GaugeFn for Unplaced {
    fn increment(&self, _value: f64) {
        self.0.unplaced(1);
    }

    fn decrement(&self, _value: f64) {
        self.0.unplaced(1);
    }

    fn set(&self, _value: f64) {
        self.0.unplaced(1);
    }
}

impl HistogramFn for Unplaced {
    fn record(&self, _value: f64) {
        self.0.unplaced(1);
    }

    fn record_many(&self, _value: f64, count: usize) {
        self.0.unplaced(count as u64);
    }
}
