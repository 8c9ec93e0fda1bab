//! The statistics of one group in one of the further sections.

use super::GroupStats;

/// The words of a section other than the first.
pub(crate) struct OtherStats {
    pub(crate) section_id: u32,
    pub(crate) stats: GroupStats,
}
