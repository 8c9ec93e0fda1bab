//! A request that takes more memory than its tenant may have is ended, and its neighbour's requests
//! are not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Service;

const LIMIT: u64 = 8 << 20;

/// More than a poll adds: the words of a piece of 64 KiB, each with a block and a tree node, the
/// piece itself, and what the database caches of its file after reading it.
const POLL: u64 = 1 << 20;

/// Makes a text of `n` words, all of them different.
fn words(n: u32) -> Vec<u8> {
    (0..n).flat_map(|n| format!("word{n} ").into_bytes()).collect()
}

/// A runaway request ends within a poll, and the tenant continues.
#[test]
fn a_runaway_request_ends_within_a_poll() {
    let service = Service::start("heap");
    let plan = format!("requests_per_s=1000000&heap_bytes={LIMIT}");
    let key = service.create("runaway", &plan);
    for (name, n) in [("large", 500_000), ("small", 1_000)] {
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
        assert!((LIMIT..LIMIT + POLL).contains(&held), "{said}");
        // Its memory is free again: the tenant is below its limit.
        small();
    }
}

/// How much longer than alone 99 of 100 requests of a neighbour may take beside runaway requests;
/// the machine is too noisy to tell if two measurements alone are further apart.
const SLOWER: f64 = 1.1;

/// It is too noisy, too, if these take more than so many times the median when alone: what a
/// runaway adds would not be seen in that.
const SPREAD: f64 = 4.0;

/// A neighbour's requests take as long beside runaway requests as alone.
#[test]
fn a_runaways_neighbour_is_as_fast_as_alone() {
    let service = Service::start("heap-neighbour");
    let plan = format!("requests_per_s=1000000&heap_bytes={LIMIT}");
    let [runaway, neighbour] = ["runaway", "neighbour"].map(|name| service.create(name, &plan));
    assert_eq!(service.call(&runaway, "PUT", "/documents/a", &words(500_000)).0, 201);
    assert_eq!(service.call(&neighbour, "PUT", "/documents/a", &words(1_000)).0, 201);
    let rounds = std::env::var("SUBMETER_HEAP_ROUNDS").map_or(5, |n| n.parse().expect("rounds"));
    let (runs, ended, ends) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    // Relaxed, all: they order nothing.
    let run_away = || {
        while !ended.load(Ordering::Relaxed) {
            if !runs.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let answer = service.call(&runaway, "GET", "/documents/a/vocabulary", &[]);
            assert_eq!(answer.0, 507);
            ends.fetch_add(1, Ordering::Relaxed);
        }
    };
    let mut slow = 0;
    thread::scope(|scope| {
        scope.spawn(run_away);
        for _ in 0..5 {
            // Alone, beside runaway requests, and alone again, in turns.
            let mut took = [const { Vec::new() }; 3];
            for _ in 0..rounds {
                for (part, took) in took.iter_mut().enumerate() {
                    runs.store(part == 1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                    took.extend((0..200).map(|_| asked(&service, &neighbour)));
                }
            }
            runs.store(false, Ordering::Relaxed);
            let [alone, beside, again] = took.each_mut().map(|took| part(took, 99));
            let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
            let (least, most) = (alone.min(again), alone.max(again));
            let median = part(&mut took[0], 50);
            println!("p99: alone {alone:?}, beside {beside:?}, alone {again:?}; median {median:?}");
            match () {
                () if ratio(most, least) > SLOWER || ratio(most, median) > SPREAD => {
                    println!("too noisy");
                }
                () if ratio(beside, most) > SLOWER => slow += 1,
                () => {
                    slow = 0;
                    break;
                }
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    println!("{ends:?} runaway requests ended");
    assert!(ends.into_inner() > 0);
    assert!(slow < 2, "{slow} times slower beside runaway requests on a quiet machine");
}

/// Returns how long a request of the neighbour takes.
fn asked(service: &Service, neighbour: &str) -> Duration {
    let began = Instant::now();
    let answer = service.call(neighbour, "GET", "/documents/a/vocabulary", &[]);
    assert_eq!((answer.0, &answer.2[..]), (200, &b"1000\n"[..]));
    began.elapsed()
}

/// Returns what this many of 100 do not exceed.
fn part(took: &mut [Duration], of_100: usize) -> Duration {
    took.sort_unstable();
    took[(took.len() - 1) * of_100 / 100]
}
