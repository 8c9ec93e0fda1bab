//! Identifies the kernel, and whether its barrier can be relied on.
//!
//! [`rseq_barrier`](crate::membarrier::rseq_barrier) asks each CPU by an interrupt to restart the
//! sequence that it is in. From 5.10, the first Linux to have it, until October 2025, that
//! interrupt could arrive between the kernel's reading and clearing of its pending requests for a
//! thread. The request was lost, and the sequence committed after the barrier. Linux commit
//! 6eb350a22331 ("rseq: Protect event mask against membarrier IPI") fixes this.
//!
//! No test can tell the two kinds apart: the gap is one instruction wide, and a kernel that was
//! never seen to lose a restart may lose the next one. Two barriers in a row may both be lost.
//! Therefore the release decides, and a kernel that is not known to be fixed counts as not fixed:
//! there sequences are waited for by [visits](crate::Barrier::Visits).

/// Returns the running kernel's release, as `uname -r` prints it, or the system's name if it is not
/// Linux.
#[must_use]
pub fn release() -> String {
    crate::os::kernel::names().release
}

/// A kernel's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The release, as `uname -r` prints it.
    pub release: String,
    /// The version, as `uname -v` prints it: Debian's kernels name their package here.
    pub version: String,
    /// The content of `/proc/version_signature`, which Ubuntu's kernels have.
    pub signature: Option<String>,
}

/// A release's three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first.
    pub major: u32,
    /// The second.
    pub minor: u32,
    /// The third, 0 if there is none.
    pub patch: u32,
}

/// The first release with the fix.
const CORRECTED: (u32, u32) = (6, 18);

/// The earlier series that received it, and from which patch on, according to the shortlogs of
/// these four releases (all of 19 October 2025). For 5.15 the stable maintainers announced on 15
/// October that it does not apply. No fixed release is known for 5.15 and 5.10, and the series in
/// between had ended.
const CORRECTED_SERIES: [Version; 4] = [
    Version { major: 6, minor: 1, patch: 157 },
    Version { major: 6, minor: 6, patch: 113 },
    Version { major: 6, minor: 12, patch: 54 },
    Version { major: 6, minor: 17, patch: 4 },
];

/// The fixed kernels, for errors and advice.
pub const CORRECTED_RELEASES: &str = "6.1.157, 6.6.113, 6.12.54, 6.17.4 and 6.18";

impl Kernel {
    /// Describes the running kernel.
    #[must_use]
    pub fn running() -> Kernel {
        crate::os::kernel::names()
    }

    /// Returns the kernel.org release that this kernel was built from; `None` for a release without
    /// numbers.
    ///
    /// Debian and Ubuntu freeze `uname -r` (`6.1.0-47-amd64`, `6.17.0-14-generic`) and merge later
    /// stable releases; they name the current one elsewhere. Others either keep the number up to
    /// date (Fedora, Amazon, Arch) or do not say (Red Hat, SUSE); for those, the release counts as
    /// it stands.
    #[must_use]
    pub fn upstream(&self) -> Option<Version> {
        let release = Version::parse(&self.release)?;
        // A name of another series does not count: a process may be shown an old release
        // (personality(2)).
        let same_series = |named: &Version| {
            (named.major, named.minor, true) == (release.major, release.minor, *named >= release)
        };
        // "#1 SMP PREEMPT_DYNAMIC Debian 6.1.170-3 (2026-05-20)"
        let debian = self.version.split_whitespace().skip_while(|&word| word != "Debian").nth(1);
        // "Ubuntu 6.17.0-14.14~24.04.1-generic 6.17.9"
        let ubuntu = self.signature.as_deref().and_then(|text| {
            let mut words = text.split_whitespace();
            (words.next() == Some("Ubuntu")).then(|| words.nth(1)).flatten()
        });
        let named = debian.or(ubuntu).and_then(Version::parse).filter(same_series);
        Some(named.unwrap_or(release))
    }

    /// Returns whether the barrier of this kernel is known to restart every sequence, so that its
    /// return is a grace period.
    ///
    /// A distribution may have fixed it without saying so in any of the three names; this is false
    /// then too.
    #[must_use]
    pub fn keeps_restarts(&self) -> bool {
        self.upstream().is_some_and(Version::keeps_restarts)
    }
}

impl Version {
    /// Parses `6.12.53-foo`; `None` for anything that does not begin with two numbers.
    #[must_use]
    pub fn parse(release: &str) -> Option<Version> {
        let numbers = release.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
        let mut numbers = numbers.split('.');
        let mut next = || numbers.next()?.parse().ok();
        Some(Version { major: next()?, minor: next()?, patch: next().unwrap_or(0) })
    }

    /// The same as [`Kernel::keeps_restarts`], for a kernel.org release.
    fn keeps_restarts(self) -> bool {
        let in_series = |first: Version| {
            (self.major, self.minor) == (first.major, first.minor) && self.patch >= first.patch
        };
        (self.major, self.minor) >= CORRECTED || CORRECTED_SERIES.into_iter().any(in_series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(release: &str, version: &str, signature: &str) -> Kernel {
        let signature = (!signature.is_empty()).then(|| signature.to_owned());
        Kernel { release: release.to_owned(), version: version.to_owned(), signature }
    }

    /// Releases parse as kernels and distributions write them.
    #[test]
    fn releases_parse_as_they_are_written() {
        let version = |major, minor, patch| Some(Version { major, minor, patch });
        assert_eq!(Version::parse("6.18.44-fc-v445"), version(6, 18, 44));
        assert_eq!(Version::parse("5.15.0-1062-aws"), version(5, 15, 0));
        assert_eq!(Version::parse("6.12.57+deb13-amd64"), version(6, 12, 57));
        assert_eq!(Version::parse("6.19"), version(6, 19, 0));
        assert_eq!(Version::parse("6.19-rc3"), version(6, 19, 0));
        assert_eq!(Version::parse("7.0.1+"), version(7, 0, 1));
        assert_eq!(Version::parse("4.4.0"), version(4, 4, 0));
        assert_eq!(Version::parse(""), None);
        assert_eq!(Version::parse("gVisor"), None);
        let linux = cfg!(all(target_os = "linux", not(any(miri, submeter_portable))));
        assert_eq!(Kernel::running().upstream().is_some(), linux, "{:?}", Kernel::running());
    }

    /// Restarts are kept from 6.18 on and in four series before.
    #[test]
    fn restarts_are_kept_from_6_18_on() {
        let keeps = |release| kernel(release, "#1 SMP", "").keeps_restarts();
        for bad in [
            "4.18.0-553.el8_10.x86_64",
            "5.10.0",
            "5.10.245",
            "5.15.196",
            "6.1.0",
            "6.1.156",
            "6.6.87.2-microsoft-standard-WSL2",
            "6.6.112",
            "6.8.12",
            "6.12.53",
            "6.12.0-124.el10.x86_64",
            "6.13.9",
            "6.16.12",
            "6.17.3",
            "5.14.0-611.el9.x86_64",
            "gVisor",
            "",
        ] {
            assert!(!keeps(bad), "{bad}");
        }
        for good in [
            "6.1.157",
            "6.1.158-180.294.amzn2023.x86_64",
            "6.6.113",
            "6.12.54",
            "6.12.60",
            "6.17.4",
            "6.17.5-300.fc43.x86_64",
            "6.18-rc1",
            "6.18.0",
            "6.19.1",
            "7.1.0",
        ] {
            assert!(keeps(good), "{good}");
        }
    }

    #[test]
    fn debian_and_ubuntu_name_their_stable_release() {
        let debian = |package: &str| {
            let version = format!("#1 SMP PREEMPT_DYNAMIC Debian {package} (2026-05-20)");
            kernel("6.1.0-47-amd64", &version, "")
        };
        assert!(debian("6.1.170-3").keeps_restarts());
        assert!(debian("6.1.157-1").keeps_restarts());
        assert!(!debian("6.1.153-1").keeps_restarts());
        let ubuntu =
            |release: &str, signature: &str| kernel(release, "#14~24.04.1-Ubuntu SMP", signature);
        let new = "Ubuntu 6.17.0-14.14~24.04.1-generic 6.17.9\n";
        assert!(ubuntu("6.17.0-14-generic", new).keeps_restarts());
        let old = "Ubuntu 6.17.0-5.5-generic 6.17.3\n";
        assert!(!ubuntu("6.17.0-5-generic", old).keeps_restarts());
        let noble = "Ubuntu 6.8.0-51.52-generic 6.8.12\n";
        assert!(!ubuntu("6.8.0-51-generic", noble).keeps_restarts());
    }

    /// A release of another series or form is ignored.
    #[test]
    fn other_forms_of_a_release_count_for_nothing() {
        let debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.57-1 (2025-11-05)";
        assert!(!kernel("6.1.0-47-amd64", debian, "").keeps_restarts());
        assert!(!kernel("2.6.78", debian, "").keeps_restarts(), "setarch --uname-2.6");
        assert!(!kernel("6.1.0-47-amd64", "#1 SMP Debian", "").keeps_restarts());
        assert!(!kernel("6.6.0", "#1 SMP", "6.6.0 6.6.0 6.6.200").keeps_restarts());
        let older = kernel("6.1.160", "#1 SMP Debian 6.1.99-1 (2024-07-15)", "");
        assert!(older.keeps_restarts(), "an own build of a later release");
    }
}
