//! What a tenant is charged for its items against the memory that they take.

use std::io::Write;
use std::net::TcpStream;

use submeter_program::Running;

use crate::support::{FREE, SUBMETER, Server, line, stat};

const MIB: u64 = 1 << 20;

/// The memory that a server takes in addition to its items while they arrive: buffers, stacks, and
/// what the allocator keeps free for each thread.
const BASE: u64 = 8 * MIB;

/// Starts a server of `memory` and connects to it.
///
/// Its threads share what they have freed, as `serve --help` advises if `--memory` is to bound
/// everything. Otherwise glibc keeps it for each worker: when a connection moves from one to
/// another, half of what the first has freed may stay with it.
fn start(memory: &str) -> Server {
    let args = [&FREE[..], &["--memory", memory]].concat();
    let server = Server::of(SUBMETER.start_in(&args, &[("MALLOC_ARENA_MAX", "1")]));
    assert_eq!(stat(&server.cache, "bytes"), 0);
    server
}

/// Returns the server's resident memory in bytes, if the kernel reports it.
fn resident(server: &Running) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(kib.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Stores `items`, each with the size of its value and its expiry.
fn store(mut stream: &TcpStream, items: impl Iterator<Item = (usize, usize, u32)>) {
    let mut batch = Vec::new();
    for (key, size, expires) in items {
        let head = format!("set tenant:{key:08} 0 {expires} {size} noreply\r\n");
        batch.extend_from_slice(head.as_bytes());
        batch.resize(batch.len() + size, b'v');
        batch.extend_from_slice(b"\r\n");
        if batch.len() > 1 << 16 {
            stream.write_all(&batch).expect("it reads");
            batch.clear();
        }
    }
    batch.extend_from_slice(b"mn\r\n");
    stream.write_all(&batch).expect("it reads");
    assert_eq!(line(stream), "MN");
}

/// Asserts that memory grew by about the charged amount, exceeding it by at most `percent`.
fn compare(what: &str, grown: u64, charged: u64, percent: u64) {
    println!("{what}: {grown} bytes more in memory, {charged} charged");
    assert!(grown <= charged * percent / 100 + BASE, "{what}: {grown} bytes for {charged}");
    assert!(charged <= 2 * grown, "{what}: {charged} bytes charged for {grown}");
}

#[test]
fn items_are_charged_about_the_memory_they_take() {
    const CHARGED: u64 = 24 * MIB;
    for (size, expires) in [(1, 0), (1, 3600), (100, 3600), (1_000, 0), (20_000, 3600)] {
        let server = start("64m");
        let Some(before) = resident(&server) else {
            eprintln!("skipped: the kernel does not say what is resident (mount /proc)");
            return;
        };
        let mut keys = 0..;
        while stat(&server.cache, "bytes") < CHARGED {
            let some = keys.by_ref().take(1 + 500_000 / (size + 100));
            store(&server.cache, some.map(|key| (key, size, expires)));
        }
        let grown = resident(&server).expect("said before").saturating_sub(before);
        compare(&format!("values of {size}"), grown, stat(&server.cache, "bytes"), 125);
    }
}

/// Charges bound the memory while items of all sizes replace each other.
///
/// Free memory between items of other sizes belongs to no item.
#[test]
fn charges_bound_memory_of_mixed_items() {
    let server = start("24m");
    let Some(before) = resident(&server) else {
        eprintln!("skipped: the kernel does not say what is resident (mount /proc)");
        return;
    };
    let mut rng = fastrand::Rng::with_seed(1);
    while stat(&server.cache, "evictions") < 50_000 {
        let mut item = |_| (rng.usize(..200_000), 1 << rng.usize(..13), 3600 * rng.u32(..2));
        store(&server.cache, (0..5_000).map(&mut item));
    }
    let grown = resident(&server).expect("said before").saturating_sub(before);
    compare("values of 1 to 4096, replaced", grown, stat(&server.cache, "bytes"), 150);
}
