//! Which kernel this is, and what is known against it.

/// Returns the running kernel's release, as `uname -r` prints it; the system's name where it is not
/// Linux.
#[must_use]
pub fn release() -> String {
    crate::os::kernel::release()
}

/// A release's three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third, 0 where there is none.
    pub patch: u32,
}

impl Version {
    /// Reads `6.12.53-foo`; `None` for anything that does not begin with two numbers.
    #[must_use]
    pub fn parse(release: &str) -> Option<Version> {
        let numbers = release.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut numbers = numbers.split('.');
        let mut next = || numbers.next()?.parse().ok();
        Some(Version { major: next()?, minor: next()?, patch: next().unwrap_or(0) })
    }

    /// Returns whether [`rseq_barrier`](crate::membarrier::rseq_barrier) may lose a restart on this
    /// kernel: its interrupt could meet the kernel between reading and clearing what it had noted
    /// for a thread. In mainline from 5.10 until 6.18 (commit "rseq: Protect event mask against
    /// membarrier IPI", October 2025); of the long-term series, 6.12 has the correction from
    /// 6.12.54 on.
    ///
    /// A distribution may have corrected it under an older number: hence "may".
    #[must_use]
    pub fn may_lose_restarts(self) -> bool {
        let corrected_in_6_12 = (self.major, self.minor) == (6, 12) && self.patch >= 54;
        let range = (5, 10)..(6, 18);
        range.contains(&(self.major, self.minor)) && !corrected_in_6_12
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_parse_as_kernels_and_distributions_write_them() {
        let version = |major, minor, patch| Some(Version { major, minor, patch });
        assert_eq!(Version::parse("6.18.44-fc-v445"), version(6, 18, 44));
        assert_eq!(Version::parse("5.15.0-1062-aws"), version(5, 15, 0));
        assert_eq!(Version::parse("6.19"), version(6, 19, 0));
        assert_eq!(Version::parse("6.19-rc3"), version(6, 19, 0));
        assert_eq!(Version::parse("7.0.1+"), version(7, 0, 1));
        assert_eq!(Version::parse("4.4.0"), version(4, 4, 0));
        assert_eq!(Version::parse(""), None);
        assert_eq!(Version::parse("gVisor"), None);
        let linux = cfg!(all(target_os = "linux", not(any(miri, submeter_portable))));
        assert_eq!(Version::parse(&release()).is_some(), linux, "{}", release());
    }

    #[test]
    fn lost_restarts_begin_with_5_10_and_end_with_6_18_or_6_12_54() {
        let may = |release| Version::parse(release).expect("a version").may_lose_restarts();
        for bad in ["5.10.0", "5.15.196", "6.1.0", "6.6.50", "6.12.53", "6.13.9", "6.17.2"] {
            assert!(may(bad), "{bad}");
        }
        for good in ["5.9.16", "4.19.1", "6.12.54", "6.12.60", "6.18.0", "6.19.1", "7.1.0"] {
            assert!(!may(good), "{good}");
        }
    }
}
