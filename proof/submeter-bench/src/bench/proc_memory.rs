//! Memory as the kernel reports it, in bytes.

use std::fs;
use std::io;

/// Returns the memory that is available to programs: free, or reclaimable on demand.
pub(super) fn available_bytes() -> Option<u64> {
    kib(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// Returns the anonymous memory of this process. Exact: the cheaper figures in `status` are
/// estimates.
pub(super) fn anonymous_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    kib(&text, "Anonymous:").ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Returns the resident memory of this process, an estimate that costs little.
pub(super) fn resident_bytes() -> Option<u64> {
    kib(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Returns the resident memory of another process. Exact: the cheaper figure in `status` may be off
/// by some pages per thread.
pub(super) fn resident_bytes_of(process: u32) -> Option<u64> {
    kib(&fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?, "Rss:")
}

/// Finds a line such as `VmRSS:  1234 kB`; returns bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        let status = "Name:\tx\nVmRSS:\t    1234 kB\nThreads:\t1\n";
        assert_eq!((kib(status, "VmRSS:"), kib(status, "VmSwap:")), (Some(1234 << 10), None));
        let rollup = "5600-7fff ---p 0 00:00 0 [rollup]\nRss:  12 kB\nAnonymous:   8 kB\n";
        assert_eq!((kib(rollup, "Anonymous:"), kib(rollup, "Swap:")), (Some(8192), None));
    }
}
