//! Updates of the current group, for code to which no group is passed.

use super::thread;
use crate::metric::schema::{Counter, Gauge, Histogram};
use crate::metric::unit::Unit;
use crate::tree::group::Group;

/// Adds to a counter of the calling thread's group, or of `outside` if the thread is in no group of
/// that tree.
///
/// It is cheaper than [`current`](super::current) and [`Group::add`], as it takes no handle. Where
/// you have the group at hand, use that.
///
/// # Examples
/// ```
/// use submeter::{Count, Schema, Tree, switch};
///
/// let mut schema = Schema::builder();
/// let queries = schema.counter::<Count>("queries", "Queries run");
/// let tree = Tree::new(schema.build()?)?;
/// let web = tree.create("/web")?;
/// web.run(|| switch::add(tree.root(), queries, 2));
/// switch::add(tree.root(), queries, 1);
/// assert_eq!((web.sum(queries), tree.root().sum(queries)), (2, 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// When the counter is not of the schema of `outside`.
#[inline]
pub fn add<U: Unit>(outside: &Group, counter: Counter<U>, n: u64) {
    thread::update(outside, |group| group.add(counter, n));
}

/// Moves a gauge of the calling thread's group up or down, or of `outside` if the thread is in no
/// group of that tree. Otherwise the same as [`add`].
///
/// # Panics
/// When the gauge is not of the schema of `outside`.
#[inline]
pub fn adjust<U: Unit>(outside: &Group, gauge: Gauge<U>, delta: i64) {
    thread::update(outside, |group| group.adjust(gauge, delta));
}

/// Sets the own part of a gauge ([`Group::set`]) of the calling thread's group, or of `outside` if
/// the thread is in no group of that tree.
///
/// # Panics
/// When the gauge is not of the schema of `outside`.
pub fn set<U: Unit>(outside: &Group, gauge: Gauge<U>, value: i64) {
    thread::update(outside, |group| group.set(gauge, value));
}

/// Records a value `n` times in a histogram of the calling thread's group, or of `outside` if the
/// thread is in no group of that tree. Otherwise the same as [`add`].
///
/// # Panics
/// When the histogram is not of the schema of `outside`.
#[inline]
pub fn record_many<U: Unit>(outside: &Group, histogram: Histogram<U>, value: u64, n: u64) {
    thread::update(outside, |group| group.record_many(histogram, value, n));
}
