//! A signal handler that allocates, if its allocator permits that, takes nothing from the counts of
//! the thread that it interrupts; a block from before `main` counts where it is freed.
#![cfg(not(miri))]

use std::alloc::{Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use submeter::{Schema, Tree};
use submeter_alloc::{Metered, Volume};

#[path = "common/anywhere.rs"]
#[expect(unsafe_code, reason = "is an allocator")]
mod anywhere;
#[path = "common/before_main.rs"]
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "is called by the C library")]
mod before_main;
#[path = "common/handler.rs"]
#[expect(unsafe_code, reason = "handles signals")]
mod handler;

use anywhere::{Anywhere, anywhere};

#[global_allocator]
static HEAP: Metered<System> = Metered::new(System);

/// A second allocator, which a handler may call.
static ANYWHERE: Metered<Anywhere> = Metered::new(Anywhere);

/// Frequent enough to interrupt every instruction of a count.
const PERIOD_NS: i64 = 20_000;

/// Interruptions that the test waits for.
const HANDLED_MIN: u64 = 5_000;

/// Long enough that only a machine without signals exceeds it.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(target_os = "linux")]
#[test]
fn a_block_from_before_main_is_freed_by_a_group() {
    let mut schema = Schema::builder();
    let heap: Volume = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let group = tree.create("/a").expect("new");
    // The first switch of a thread allocates.
    tree.root().run(|| ());
    group.run(|| drop(before_main::block()));
    assert_eq!((group.sum(heap.allocated_bytes), group.sum(heap.freed_bytes)), (0, 100));
}

/// A handler that allocates takes nothing from the thread that it interrupts.
#[test]
fn a_handlers_blocks_are_its_own_stress() {
    const SMALL: u64 = 8;
    const LARGE: u64 = 1 << 20;
    let mut schema = Schema::builder();
    let heap: Volume = schema.declare();
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let [a, b] = ["/a", "/b"].map(|path| tree.create(path).expect("new"));
    let handled = Arc::new(AtomicU64::new(0));
    handler::on_signal({
        let (b, handled) = (b.clone(), Arc::clone(&handled));
        move || {
            // The handler may interrupt a switch, and then attributes nothing of its own.
            let _entered = b.enter();
            // A block, and its end.
            (0..2).for_each(|_| anywhere(&ANYWHERE, Layout::new::<u64>()));
            // Relaxed: read when the timer is gone.
            handled.fetch_add(1, Ordering::Relaxed);
        }
    });
    // The first switch of a thread allocates, which a handler must not do.
    a.run(|| b.run(|| ()));
    let deadline = Instant::now() + TIMEOUT;
    let timer = handler::Timer::on_this_thread(PERIOD_NS).expect("a timer");
    let mut blocks = 0;
    // Relaxed: only ends the loop.
    while handled.load(Ordering::Relaxed) < HANDLED_MIN && Instant::now() < deadline {
        let held: [_; 16] = a.run(|| {
            std::array::from_fn(|_| std::hint::black_box(Vec::<u8>::with_capacity(LARGE as usize)))
        });
        a.run(|| drop(held));
        blocks += 16;
    }
    drop(timer);
    let handled = handled.load(Ordering::Relaxed);
    assert!(handled >= HANDLED_MIN, "{handled} signals");
    let root = tree.root();
    for (bytes, counted) in [
        (root.sum(heap.allocated_bytes), root.sum(heap.allocated_blocks)),
        (root.sum(heap.freed_bytes), root.sum(heap.freed_blocks)),
    ] {
        // A handler in the middle of a count may lose its own.
        let least = blocks;
        assert!((least..=blocks + handled).contains(&counted), "{blocks} + {handled}: {counted}");
        let most = blocks * LARGE + handled * SMALL;
        assert!((blocks * LARGE..=most).contains(&bytes), "{blocks} + {handled}: {bytes} bytes");
        let of_handlers = counted - blocks;
        assert!(of_handlers > handled / 2, "{of_handlers} of {handled} were charged");
    }
}
