//! How a refusal's text says when to try again.

use std::fmt;
use std::time::Duration;

/// Writes the time in whole milliseconds: a fraction would tell a tenant nothing. It is rounded up,
/// because a retry that comes too early is refused again.
pub(crate) fn after(f: &mut fmt::Formatter<'_>, after: Duration) -> fmt::Result {
    let ms = u64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    write!(f, "; retry after {:?}", Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_milliseconds_are_told_and_none_too_few() {
        struct After(Duration);
        impl fmt::Display for After {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                after(f, self.0)
            }
        }
        for (nanos, told) in
            [(1, "1ms"), (332_893_514, "333ms"), (333_000_000, "333ms"), (1_500_000_001, "1.501s")]
        {
            let text = After(Duration::from_nanos(nanos)).to_string();
            assert_eq!(text, format!("; retry after {told}"));
        }
        After(Duration::MAX).to_string();
    }
}
