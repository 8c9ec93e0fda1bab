//! What has left the store and waits to be freed. It has a process of its own: a guard that a test
//! holds delays what every cache of its process frees.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use common::{Client, Running, eventually, start};
use submeter::refs::pin;
use submeter_cache::Config;

const MEMORY: u64 = 16 << 20;
/// An eighth of the memory, plus what each of two threads releases at once.
const WAITING_MAX: u64 = (2 << 20) + 2 * (64 << 10) + VALUE;
const VALUE: u64 = 16 << 10;
/// Long enough for a thousand stores, where nothing holds them up.
const A_WHILE: Duration = Duration::from_millis(200);

/// One test at a time: they share what waits.
static ALONE: Mutex<()> = Mutex::new(());

fn server() -> Running {
    start(Config { memory_max: MEMORY, ..Config::default() })
}

fn set(client: &mut Client, key: &str) {
    assert_eq!(client.set(key, &[b'v'; VALUE as usize]), "STORED");
}

/// Makes a client release values while another thread is in a guard, and returns how many it
/// released before the guard was left.
fn released_beside_a_guard(server: &Running, release: impl FnOnce(&AtomicU64) + Send) -> u64 {
    let released = AtomicU64::new(0);
    let count = || released.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let guard = pin();
        let work = scope.spawn(|| release(&released));
        eventually("what may wait is released", || count() * VALUE > MEMORY / 8 - (128 << 10));
        thread::sleep(A_WHILE);
        let beside = count();
        assert!(!work.is_finished(), "{beside} released");
        // Others neither wait nor fail.
        assert_eq!(server.connect().get("read:1"), Some(vec![b'v'; VALUE as usize]));
        drop(guard);
        work.join().expect("all is released once it can be freed");
        beside
    })
}

#[test]
fn replacing_stores_wait_while_much_is_freed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = server();
    let mut client = server.connect();
    set(&mut client, "read:1");
    let released = released_beside_a_guard(&server, |released| {
        // As much as four times the memory.
        for _ in 0..4 * MEMORY / VALUE {
            set(&mut client, "acme:k");
            released.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(released * VALUE <= WAITING_MAX, "{released} were replaced");
}

#[test]
fn requests_that_free_much_are_no_single_batch() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = server();
    let mut client = server.connect();
    set(&mut client, "read:1");
    let keys = MEMORY / VALUE / 2;
    for key in 0..keys {
        set(&mut client, &format!("acme:{key}"));
    }
    let released = released_beside_a_guard(&server, |released| {
        // All of them fit into one read.
        let requests: String = (0..keys).map(|key| format!("delete acme:{key}\r\n")).collect();
        assert!(requests.len() < 16 << 10, "{}", requests.len());
        client.send(requests);
        for _ in 0..keys {
            assert_eq!(client.line(), "DELETED");
            released.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(released * VALUE <= WAITING_MAX, "{released} were deleted");
}
