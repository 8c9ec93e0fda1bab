//! The additions with which a foreign program is built: [`Exact`] as its allocator, a group for
//! each of its tests, and a check of the books whenever no test is running.
//! `proof/submeter-foreign/run` does that with three programs from crates.io.

use std::alloc::System;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::abort;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use submeter::switch::{self, Entered};
use submeter::{Group, Schema, Tree};
use submeter_alloc::Live;
use submeter_alloc::exact::{Balance, Exact, Heap};

#[global_allocator]
static HEAP: Exact<System> = Exact::new(System);

/// The variable that names the file to which each check of the books adds a line.
const RECORD: &str = "SUBMETER_FOREIGN_RECORD";

/// How often, and at what interval, books that differ are checked again: a thread that a test has
/// left behind may allocate in the meantime.
const LOOKS: usize = 200;
const LOOK_EVERY: Duration = Duration::from_millis(10);

static BOOKS: LazyLock<Books> = LazyLock::new(Books::begin);

/// Number of running tests, and number of tests since the last check of the books.
static UNDER_WAY: Mutex<(usize, usize)> = Mutex::new((0, 0));

struct Books {
    tree: Tree,
    live: Live,
    heap: Heap,
}

impl Books {
    fn begin() -> Books {
        let mut schema = Schema::builder();
        let live: Live = schema.declare();
        let tree = Tree::new(schema.build().expect("sound")).expect("a tree");
        let heap = Heap::start(&tree, live).expect("the allocator is linked");
        Books { tree, live, heap }
    }

    /// Checks that tree and allocator agree after `tests`. Ends the process if they do not.
    fn look(&self, tests: usize) {
        let agree = |balance: &Balance| balance.booked_bytes == balance.attributed_bytes;
        let mut balance = self.heap.balance();
        for _ in 0..LOOKS {
            if agree(&balance) {
                break;
            }
            sleep(LOOK_EVERY);
            balance = self.heap.balance();
        }
        if let Some(path) = std::env::var_os(RECORD) {
            let file = OpenOptions::new().append(true).create(true).open(Path::new(&path));
            // One write, since programs run in parallel.
            let line = format!("{tests} {} {}\n", balance.booked_bytes, balance.attributed_bytes);
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("a record");
        }
        if !agree(&balance) {
            eprintln!("submeter-foreign: the books differ: {balance:?}");
            abort();
        }
    }
}

/// A running test, in its group.
#[must_use = "the thread is in the group until this is dropped"]
pub struct Test {
    /// `None` once it has left.
    entered: Option<Entered>,
    group: Group,
}

/// Enters the group of a test.
///
/// # Panics
/// When an allocation in a group is not counted there.
pub fn enter(name: &str) -> Test {
    let books = &*BOOKS;
    let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    under_way.0 += 1;
    under_way.1 += 1;
    // A number, since modules may have tests of the same name.
    let group = format!("/{name}-{}", under_way.1);
    let group = books.tree.get_or_create(&group).expect("a group");
    drop(under_way);
    let entered = group.enter();
    let probe = vec![0_u8; 4096];
    // Otherwise the thread keeps that count to itself.
    switch::park();
    books.heap.flush();
    let held = group.sum(books.live.bytes);
    assert!(held >= 4096, "{held} bytes in {}", group.path());
    drop(probe);
    Test { entered: Some(entered), group }
}

impl Drop for Test {
    fn drop(&mut self) {
        drop(self.entered.take());
        // From here on, what it has left behind belongs to the root.
        let _ = self.group.kill();
        // Held until the end of the check, so that no test begins in the meantime.
        let mut under_way = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
        under_way.0 -= 1;
        if under_way.0 == 0 {
            BOOKS.look(std::mem::take(&mut under_way.1));
        }
    }
}
