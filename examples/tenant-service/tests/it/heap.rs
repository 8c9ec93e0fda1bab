//! A request that takes more memory than its tenant may have is ended, and its neighbour's requests
//! are not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Service;

const LIMIT: u64 = 8 << 20;

/// More than is added between two checks: the words of 1 KiB, each with a block and a tree node, a
/// piece of 64 KiB, and what the database caches of its file after reading it. Less than the words
/// of a piece.
const BETWEEN_CHECKS: u64 = 256 << 10;

/// The number of different words that take more than the limit: each of them more than 64 bytes.
const LARGE: u32 = 200_000;

/// Makes a text of `n` words, all of them different.
fn words(n: u32) -> Vec<u8> {
    (0..n).flat_map(|n| format!("word{n} ").into_bytes()).collect()
}

/// A runaway request ends at the first check that finds it over, and the tenant continues.
#[test]
fn a_runaway_request_ends_at_a_check() {
    let service = Service::start("heap");
    let plan = format!("requests_per_s=1000000&heap_bytes={LIMIT}");
    let key = service.create("runaway", &plan);
    for (name, n) in [("large", LARGE), ("small", 1_000)] {
        assert_eq!(service.call(&key, "PUT", &format!("/documents/{name}"), &words(n)).0, 201);
    }
    let small = || {
        let (status, _, answer) = service.call(&key, "GET", "/documents/small/vocabulary", &[]);
        assert_eq!((status, &answer[..]), (200, &b"1000\n"[..]));
    };
    small();
    for _ in 0..5 {
        let (status, _, answer) = service.call(&key, "GET", "/documents/large/vocabulary", &[]);
        let said = String::from_utf8(answer).expect("text");
        assert_eq!(status, 507, "{said}");
        assert!(said.starts_with("/runaway holds "), "{said}");
        let held: u64 = said.split(' ').nth(2).and_then(|n| n.parse().ok()).expect(&said);
        println!("over by {} KiB", (held - LIMIT) >> 10);
        assert!((LIMIT..LIMIT + BETWEEN_CHECKS).contains(&held), "{said}");
        // Its memory is free again: the tenant is below its limit. Not at once if the future ended
        // while a thread was counting.
        service.await_status(&key, "/documents/small/vocabulary", 200);
        small();
    }
}

/// A neighbour is answered beside runaway requests; prints its latencies in µs, alone and beside
/// them, in turns.
#[test]
fn a_runaways_neighbour_is_answered() {
    let service = Service::start("heap-neighbour");
    let plan = format!("requests_per_s=1000000&heap_bytes={LIMIT}");
    let [runaway, neighbour] = ["runaway", "neighbour"].map(|name| service.create(name, &plan));
    assert_eq!(service.call(&runaway, "PUT", "/documents/a", &words(LARGE)).0, 201);
    assert_eq!(service.call(&neighbour, "PUT", "/documents/a", &words(1_000)).0, 201);
    let rounds = std::env::var("SUBMETER_HEAP_ROUNDS").map_or(1, |n| n.parse().expect("rounds"));
    let (runs, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let ends = AtomicU64::new(0);
    let mut took = [Vec::new(), Vec::new()];
    thread::scope(|scope| {
        // Relaxed, all: they order nothing.
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if !runs.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
                let answer = service.call(&runaway, "GET", "/documents/a/vocabulary", &[]);
                assert_eq!(answer.0, 507);
                ends.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0..2 * rounds {
            let beside = round % 2 == 1;
            runs.store(beside, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20));
            for _ in 0..200 {
                let began = Instant::now();
                let answer = service.call(&neighbour, "GET", "/documents/a/vocabulary", &[]);
                assert_eq!((answer.0, &answer.2[..]), (200, &b"1000\n"[..]));
                took[usize::from(beside)].push(began.elapsed().as_micros());
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let at = |of: &mut Vec<u128>, part: f64| {
        of.sort_unstable();
        of[((of.len() - 1) as f64 * part) as usize]
    };
    for (how, took) in ["alone", "beside"].into_iter().zip(&mut took) {
        let [median, p99] = [0.5, 0.99].map(|part| at(took, part));
        println!("{how}: median {median} µs, p99 {p99} µs");
    }
    let ends = ends.load(Ordering::Relaxed);
    println!("{ends} runaway requests ended");
    assert!(ends > 0);
}
