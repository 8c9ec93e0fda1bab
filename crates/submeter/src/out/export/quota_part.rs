//! The values of a quota that exporters show beside its usage, in one list for all exporters.

use crate::metric::schema::Metric;
use crate::metric::unit::UnitKind;
use crate::metric::usage::Usage;
use crate::out::snapshot::{GroupValues, Value};

/// A number that exporters show for a quota beside its usage, under a name of its own.
///
/// [`Export`](super::Export) and the exporters in other crates share this list, so that a new
/// number appears in all of them under the same name. It costs nothing to look at. A program that
/// wants one number reads [`Usage`](crate::Usage).
///
/// # Examples
/// ```
/// use submeter::export::QuotaPart;
/// use submeter::{Bytes, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory held");
/// let tree = Tree::new(schema.build()?)?;
/// tree.root().set_limit(memory, Some(100));
/// assert!(tree.root().try_charge(memory, 101).is_err());
///
/// let snapshot = tree.snapshot();
/// let root = snapshot.get("/").expect("always there");
/// let metric = &snapshot.schema().metrics()[0];
/// let counted = QuotaPart::ALL.iter().filter(|part| part.is_counter());
/// let counted: Vec<_> =
///     counted.filter(|part| part.value(root, metric) > Some(0)).map(|part| part.name()).collect();
/// assert_eq!(counted, ["refused"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaPart {
    /// The group's own limit, if it has one.
    Limit,
    /// The highest usage, with descendants.
    Peak,
    /// Charges that the group's limit refused.
    Refused,
    /// Charges granted beyond the group's limit.
    Overdrafts,
    /// Pauses asked of callers above the group's `high`.
    Paused,
    /// Time in which some charge waited.
    SomeStalled,
    /// Time in which some charge waited and the group held nothing.
    FullStalled,
    /// The amount that the group's callbacks gave back.
    Reclaimed,
    /// The number of times that the callbacks were asked for bytes that `low` protects.
    ReclaimedLow,
}

impl QuotaPart {
    /// All parts, in the order in which they are shown.
    pub const ALL: &[QuotaPart] = &[
        QuotaPart::Limit,
        QuotaPart::Peak,
        QuotaPart::Refused,
        QuotaPart::Overdrafts,
        QuotaPart::Paused,
        QuotaPart::SomeStalled,
        QuotaPart::FullStalled,
        QuotaPart::Reclaimed,
        QuotaPart::ReclaimedLow,
    ];

    /// Returns the suffix for the quota's name, such as `limit`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            QuotaPart::Limit => "limit",
            QuotaPart::Peak => "peak",
            QuotaPart::Refused => "refused",
            QuotaPart::Overdrafts => "overdrafts",
            QuotaPart::Paused => "paused",
            QuotaPart::SomeStalled => "pressure_some",
            QuotaPart::FullStalled => "pressure_full",
            QuotaPart::Reclaimed => "reclaimed",
            QuotaPart::ReclaimedLow => "reclaimed_low",
        }
    }

    /// Returns what is added to the quota's help text.
    #[must_use]
    pub fn help(self) -> &'static str {
        match self {
            QuotaPart::Limit => "limit",
            QuotaPart::Peak => "upper bound of the peak usage with descendants",
            QuotaPart::Refused => "charges refused by this group's limit",
            QuotaPart::Overdrafts => "charges granted beyond this group's limit",
            QuotaPart::Paused => "pauses requested while usage was above this group's high",
            QuotaPart::SomeStalled => {
                "time in which a charge of this group or below it waited for room"
            }
            QuotaPart::FullStalled => {
                "time in which a charge of this group or below it waited and the group held nothing"
            }
            QuotaPart::Reclaimed => "amount freed by this group's callbacks",
            QuotaPart::ReclaimedLow => "calls despite the protection of this group's low",
        }
    }

    /// Returns whether it only grows: all but the limit and the peak.
    #[must_use]
    pub fn is_counter(self) -> bool {
        !matches!(self, QuotaPart::Limit | QuotaPart::Peak)
    }

    /// Returns its unit: the quota's, or that of a number of events or of time.
    #[must_use]
    pub fn unit(self, quota: &Metric) -> UnitKind {
        match self {
            QuotaPart::Limit | QuotaPart::Peak | QuotaPart::Reclaimed => quota.unit(),
            QuotaPart::Refused
            | QuotaPart::Overdrafts
            | QuotaPart::Paused
            | QuotaPart::ReclaimedLow => UnitKind::Count,
            QuotaPart::SomeStalled | QuotaPart::FullStalled => UnitKind::Nanoseconds,
        }
    }

    /// Returns its value for one group, in its unit; `None` for a group without a limit, and for a
    /// metric that is not a quota.
    ///
    /// # Panics
    /// When the metric belongs to another schema than the snapshot.
    #[must_use]
    pub fn value(self, group: &GroupValues, quota: &Metric) -> Option<u64> {
        let Value::Quota(usage) = group.value(quota) else { return None };
        let Usage { limit, peak, refused, overdrafts, counts, .. } = usage;
        let stalls = || group.pressure_of(quota).unwrap_or_default();
        let nanoseconds =
            |total: std::time::Duration| Some(u64::try_from(total.as_nanos()).unwrap_or(u64::MAX));
        match self {
            QuotaPart::Limit => limit,
            QuotaPart::Peak => Some(peak),
            QuotaPart::Refused => Some(refused),
            QuotaPart::Overdrafts => Some(overdrafts),
            QuotaPart::Paused => Some(counts.paused),
            QuotaPart::SomeStalled => nanoseconds(stalls().some.total),
            QuotaPart::FullStalled => nanoseconds(stalls().full.total),
            QuotaPart::Reclaimed => Some(counts.reclaimed),
            QuotaPart::ReclaimedLow => Some(counts.reclaimed_low),
        }
    }
}
