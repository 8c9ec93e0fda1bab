//! The work of the processes that the tests read.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, thread};

use submeter::switch::thread_context;
use submeter::{Schema, Tree};

#[path = "../common/fork.rs"]
mod fork;

use fork::in_a_fork;

/// Names the scenario. Without it there is no reader.
pub(crate) const SCENARIO: &str = "SUBMETER_TEST_SCENARIO";

pub(crate) const SERVICE: &str = "shop";

/// More than a record has room for, in characters of two bytes of which one would be split.
pub(crate) const LONG: &str = concat!(
    "/_éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé",
    "/_éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé",
    "/_éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé",
);

#[test]
fn writes() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    let tree = Tree::new(Schema::builder().build().expect("valid")).expect("address space");
    match scenario.as_str() {
        "announced" => announced(),
        "switches" => switches(&tree),
        "long" => tree.get_or_create(LONG).expect("new").run(|| step("long")),
        "threads" => threads(&tree),
        "killed" => killed(&tree),
        "ends" => ends(&tree),
        "forks" => forks(&tree),
        "busy" => busy(&tree),
        other => panic!("no such scenario: {other}"),
    }
}

/// Reports its step, and waits to be told to continue.
fn step(name: &str) {
    // SAFETY: the call takes nothing.
    let thread = unsafe { libc::gettid() };
    // One write, without the lock of standard output: a forked child inherits that lock's state.
    let line = format!("@{name} {} {thread}\n", std::process::id());
    // SAFETY: the bytes live.
    let written = unsafe { libc::write(1, line.as_ptr().cast(), line.len()) };
    assert_eq!(written, line.len() as isize);
    let mut byte = 0u8;
    // SAFETY: the byte lives.
    let read = unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
    assert_eq!(read, 1);
}

fn announced() {
    step("before");
    thread_context::announce([("service.name", SERVICE)]).expect("the first");
    let again = thread_context::announce([("service.name", "other")]);
    assert_eq!(again.map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
    step("after");
}

fn switches(tree: &Tree) {
    let group = |path| tree.get_or_create(path).expect("new");
    let (web, mail) = (group("/acme/web"), group("/acme/mail"));
    step("before");
    let entered = web.enter();
    step("in");
    web.run(|| step("same"));
    let mut nested = mail.enter();
    step("nested");
    nested.switch_to(tree.root());
    step("switched");
    drop(nested);
    step("outer");
    drop(entered);
    step("out");
}

fn threads(tree: &Tree) {
    thread::scope(|scope| {
        for name in ["one", "two"] {
            let group = tree.create(&format!("/{name}")).expect("new");
            let thread = scope.spawn(move || group.run(|| step(name)));
            // In order: the second begins once the first has reported its step.
            if name == "one" {
                thread::sleep(std::time::Duration::from_millis(200));
                assert!(!thread.is_finished());
            }
        }
    });
}

fn killed(tree: &Tree) {
    let gone = tree.create("/gone").expect("new");
    let entered = gone.enter();
    gone.kill().expect("alive");
    drop(gone);
    step("killed");
    // Other groups that would take its memory if it were free.
    let others: Vec<_> = (0..100).map(|n| tree.create(&format!("/{n:03}")).expect("new")).collect();
    step("again");
    drop(entered);
    drop(others);
    step("left");
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Dropped after the switch's own values, since it was made before them.
struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        step("ended");
    }
}

fn ends(tree: &Tree) {
    let group = tree.create("/forgotten").expect("new");
    let thread = thread::spawn(move || {
        LAST.with(|last| *last.borrow_mut() = Some(Last));
        std::mem::forget(group.enter());
        group.kill().expect("alive");
        step("in");
    });
    thread.join().expect("no panic");
}

fn forks(tree: &Tree) {
    let (web, own) = (tree.create("/web").expect("new"), tree.create("/child").expect("new"));
    thread_context::announce([("service.name", SERVICE)]).expect("the first");
    let entered = web.enter();
    let passed = in_a_fork(|| {
        step("child");
        thread_context::announce([("service.name", "child")]).expect("the child's first");
        own.run(|| step("announced"));
        true
    });
    assert!(passed);
    drop(entered);
}

fn busy(tree: &Tree) {
    static DONE: AtomicBool = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: the call takes nothing.
            let thread = unsafe { libc::gettid() };
            println!("@busy {} {thread}", std::process::id());
            io::stdout().flush().expect("piped");
            for number in 0u64.. {
                // Relaxed: only the flag matters.
                if DONE.load(Ordering::Relaxed) {
                    break;
                }
                let group = tree.create(&format!("/tenant-{number}")).expect("new");
                let entered = group.enter();
                group.kill().expect("alive");
                drop(group);
                for _ in 0..20_000 {
                    std::hint::spin_loop();
                }
                drop(entered);
            }
        });
        let mut byte = [0];
        io::stdin().read_exact(&mut byte).expect("piped");
        // Relaxed: as above.
        DONE.store(true, Ordering::Relaxed);
    });
}
