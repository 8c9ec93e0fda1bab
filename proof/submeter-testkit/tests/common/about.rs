//! How near what was counted must be to what was used.

/// What being stopped between two clocks may make of a difference.
pub(crate) const SLACK_NS: u64 = 3_000_000;

/// Whether `gained` is what was used, as far as the machine lets one know.
pub(crate) fn about(gained: u64, used: u64) -> bool {
    gained + SLACK_NS >= used && gained <= used + used / 5 + SLACK_NS
}
