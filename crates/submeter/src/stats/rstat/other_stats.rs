//! The statistics of one group, of one section among others.

use super::GroupStats;

/// The words of a section other than the first.
pub(crate) struct OtherStats {
    pub(crate) section_id: u32,
    pub(crate) stats: GroupStats,
}
