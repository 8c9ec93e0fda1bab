//! Updates: operations that change a group's totals and return nothing.

use submeter::{Aggregator, Attached, Group};

use crate::schema::{TestSchema, Totals};
use crate::visits::{Visited, Visits};

/// A change to the totals of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named as the parameters in `submeter::Group`")]
pub enum Update {
    /// Adds to a counter.
    Add { counter: usize, n: u64 },
    /// Adjusts the gauge.
    Adjust { delta: i64 },
    /// Records a value in the histogram.
    Record { value: u64 },
    /// Records a value `n` times.
    RecordMany { value: u64, n: u64 },
    /// Adds a visit to the aggregator.
    Visit { length: u64 },
}

/// A group's handle, and the aggregator's handle once there was a visit.
pub struct Handle {
    /// The group.
    pub group: Group,
    attached: Option<Attached<Visits>>,
}

impl Handle {
    /// Wraps a group's handle.
    #[must_use]
    pub fn new(group: Group) -> Handle {
        Handle { group, attached: None }
    }
}

impl Update {
    /// Applies the update to a tree.
    pub fn apply(self, to: &mut Handle, schema: &TestSchema, visits: &Aggregator<Visits>) {
        let Handle { group, attached } = to;
        match self {
            Update::Add { counter, n } => group.add(schema.counters[counter], n),
            Update::Adjust { delta } => group.adjust(schema.gauge, delta),
            Update::Record { value } => group.record(schema.histogram, value),
            Update::RecordMany { value, n } => group.record_many(schema.histogram, value, n),
            Update::Visit { length } => {
                let handle = attached.get_or_insert_with(|| visits.attach(group));
                handle.update(|here| here.visit(length));
                if length.is_multiple_of(4) {
                    // The counts of a dropped handle must survive.
                    *attached = None;
                }
            }
        }
    }

    /// Applies the update to the totals of a model.
    pub fn count_in(self, totals: &mut Totals) {
        let Totals { sums, visited } = totals;
        match self {
            Update::Add { counter, n } => sums.counters[counter] += n,
            Update::Adjust { delta } => sums.gauge += delta,
            Update::Record { value } => sums.record(value, 1),
            Update::RecordMany { value, n } => sums.record(value, n),
            Update::Visit { length } => visited.merge(&Visited { count: 1, longest: length }),
        }
    }
}
