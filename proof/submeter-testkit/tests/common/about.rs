//! The tolerance between counted and used CPU time.

/// The difference that preemption between two clock reads may cause.
pub(crate) const SLACK_NS: u64 = 3_000_000;

/// Returns whether `gained` equals `used` within the tolerance.
pub(crate) fn about(gained: u64, used: u64) -> bool {
    gained + SLACK_NS >= used && gained <= used + used / 5 + SLACK_NS
}
