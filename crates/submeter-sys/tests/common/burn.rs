//! Work of a known price.

use submeter::switch::clock;

/// Computes until the thread has used `ms` of CPU time, and returns what it used.
pub(crate) fn burn(ms: u64) -> u64 {
    let start = clock::thread_cpu_ns();
    loop {
        let used = clock::thread_cpu_ns() - start;
        if used >= ms * 1_000_000 {
            return used;
        }
        std::hint::black_box((0..1000u64).sum::<u64>());
    }
}
