//! Work of a known size.

use std::hint::black_box;
use std::time::Duration;

use submeter::switch::clock;

/// Computes until the thread has used `time` on a CPU, and returns the nanoseconds that it used.
pub(crate) fn burn(time: Duration) -> u64 {
    let start = clock::thread_cpu_ns();
    loop {
        let used = clock::thread_cpu_ns() - start;
        if used >= time.as_nanos() as u64 {
            return used;
        }
        black_box((0..100u64).sum::<u64>());
    }
}

/// Computes for `ms` milliseconds on a CPU.
pub(crate) fn burn_ms(ms: u64) -> u64 {
    burn(Duration::from_millis(ms))
}

/// Returns whether pages are small enough for faults to be counted; prints a reason if not.
pub(crate) fn pages_are_small() -> bool {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let huge = text.is_ok_and(|text| text.contains("[always]"));
    if huge {
        eprintln!("skipped: huge pages hide page faults: set transparent_hugepage to madvise");
    }
    !huge
}

/// Touches `pages` pages for the first time.
pub(crate) fn fault(pages: usize) {
    // More than malloc keeps for reuse, so that the kernel supplies new pages each time.
    let mut bytes = vec![0u8; 64 << 20];
    for page in 0..pages {
        bytes[page * 4096] = 1;
    }
    black_box(&bytes);
}
