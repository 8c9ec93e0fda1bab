//! Sets of metrics: a struct of keys that declares them.

use super::{Counter, Gauge, Quota, RateLimit, SchemaBuilder};
use crate::metric::unit::Unit;

/// A struct of keys that declares its metrics itself.
///
/// With the feature `derive` the implementation is derived: the fields are the keys, and their
/// names and documentation become those of the metrics. A library declares its own set in any
/// program's schema with [`SchemaBuilder::declare`], or in any program's tree with
/// [`Tree::declare`](crate::Tree::declare).
///
/// - `#[metric(buckets = …)]` on each histogram; `#[metric(cpu_time)]`, `#[metric(off_cpu)]` and
///   `#[metric(cpu_error)]` on the counters of CPU time ([`SchemaBuilder::cpu_time`],
///   [`off_cpu`](SchemaBuilder::off_cpu), [`cpu_error`](SchemaBuilder::cpu_error)), and
///   `#[metric(cpu_budget)]` on its [budget](SchemaBuilder::cpu_budget); `#[metric(name = "…")]`
///   where the field's name will not do (a leading underscore is ignored); `#[metric(all)]` on a
///   field that is itself a set of metrics.
/// - `#[metrics(prefix = "http_")]` on the struct prefixes each of its names; `#[metrics(section =
///   "io")]` declares the whole set in a section.
///
/// The help text is the first paragraph of a field's documentation.
///
/// # Examples
/// ```
/// use submeter::{Buckets, Bytes, Count, Counter, Histogram, Metrics, Nanoseconds, Quota};
/// use submeter::{RateLimit, Schema, Tree};
///
/// #[derive(Metrics)]
/// struct Keys {
///     /// Requests answered.
///     requests: Counter<Count>,
///     /// Time to answer.
///     #[metric(buckets = Buckets::LATENCY_NS)]
///     latency: Histogram<Nanoseconds>,
///     /// Memory that requests hold.
///     memory: Quota<Bytes>,
///     /// Requests taken.
///     taken: RateLimit<Count>,
///     /// CPU time used.
///     #[metric(cpu_time)]
///     cpu: Counter<Nanoseconds>,
/// }
///
/// let mut schema = Schema::builder();
/// let keys: Keys = schema.declare();
/// let schema = schema.build()?;
/// assert_eq!(schema.metric("requests").expect("declared").help(), "Requests answered");
///
/// let tree = Tree::new(schema)?;
/// tree.root().add(keys.requests, 3);
/// # let _ = (keys.latency, keys.memory, keys.cpu);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
/// A histogram without buckets does not compile:
/// ```compile_fail,E0277
/// use submeter::{Histogram, Metrics, Nanoseconds};
///
/// #[derive(Metrics)]
/// struct Keys {
///     latency: Histogram<Nanoseconds>,
/// }
/// ```
pub trait Metrics: Sized {
    /// Declares all metrics of the set and returns its keys. Call [`SchemaBuilder::declare`].
    fn declare(schema: &mut SchemaBuilder) -> Self;
}

impl SchemaBuilder {
    /// Declares a set of metrics, and returns its keys. See [`Metrics`].
    ///
    /// # Examples
    /// ```
    /// use submeter::{Count, Counter, Metrics, Schema};
    ///
    /// #[derive(Metrics)]
    /// #[metrics(prefix = "cache_")]
    /// struct Cache {
    ///     /// Lookups that found something
    ///     hits: Counter<Count>,
    /// }
    ///
    /// let mut schema = Schema::builder();
    /// let Cache { hits } = schema.declare();
    /// assert!(schema.build()?.metric("cache_hits").is_some());
    /// # let _ = hits;
    /// # Ok::<(), submeter::SchemaError>(())
    /// ```
    pub fn declare<M: Metrics>(&mut self) -> M {
        M::declare(self)
    }
}

/// A key whose metric is declared by its type, a name and a help text; the derive of [`Metrics`]
/// calls it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be declared by its name alone",
    note = "a histogram needs `#[metric(buckets = …)]`, a set of metrics `#[metric(all)]`"
)]
pub trait MetricKey: Sized {
    /// Declares the metric.
    fn declare(schema: &mut SchemaBuilder, name: &str, help: &str) -> Self;
}

impl<U: Unit> MetricKey for Counter<U> {
    fn declare(schema: &mut SchemaBuilder, name: &str, help: &str) -> Self {
        schema.counter(name, help)
    }
}

impl<U: Unit> MetricKey for Gauge<U> {
    fn declare(schema: &mut SchemaBuilder, name: &str, help: &str) -> Self {
        schema.gauge(name, help)
    }
}

impl<U: Unit> MetricKey for Quota<U> {
    fn declare(schema: &mut SchemaBuilder, name: &str, help: &str) -> Self {
        schema.quota(name, help)
    }
}

impl<U: Unit> MetricKey for RateLimit<U> {
    fn declare(schema: &mut SchemaBuilder, name: &str, help: &str) -> Self {
        schema.rate_limit(name, help)
    }
}
