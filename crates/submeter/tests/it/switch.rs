//! Threads in groups: which group is charged.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use submeter::switch::{self, clock};
use submeter::{Counter, Group, Nanoseconds, Schema, SchemaBuilder, SchemaError, Tree};

use crate::work::burn_ms;

/// A tree that meters CPU time, with `/a`, `/a/x` and `/b`.
struct Fixture {
    tree: Tree,
    cpu: Counter<Nanoseconds>,
    a: Group,
    x: Group,
    b: Group,
}

fn fixture() -> Fixture {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let group = |path| tree.get_or_create(path).expect("created");
    let (a, x, b) = (group("/a"), group("/a/x"), group("/b"));
    Fixture { tree, cpu, a, x, b }
}

/// The difference that interrupts, and preemption between two clock readings, may cause.
const SLACK_NS: u64 = 3_000_000;

#[track_caller]
fn assert_about(charged: u64, used: u64) {
    assert!(charged + SLACK_NS >= used, "{charged} charged of {used}");
    if charged > used + used / 20 + SLACK_NS {
        panic_any(Noise(format!("{charged} charged for {used}")));
    }
}

/// More was charged than the work used. The kernel counts as the thread's own what it does for it
/// between the work and the switch, such as finding memory for a page, and for the network during
/// an interrupt. Both take milliseconds on a busy machine.
struct Noise(String);

/// Runs a test again if there was noise, four times at most: a fault is found in each.
fn despite_noise(test: impl Fn()) {
    for _ in 0..4 {
        let Err(panic) = catch_unwind(AssertUnwindSafe(&test)) else { return };
        match panic.downcast::<Noise>() {
            Ok(noise) => eprintln!("once more: {}", noise.0),
            Err(panic) => resume_unwind(panic),
        }
    }
    test();
}

/// Work in a group is charged to it and its ancestors.
#[test]
fn what_runs_in_a_group_is_charged_upward() {
    despite_noise(|| {
        let f = fixture();
        let used_x = f.x.run(|| burn_ms(20));
        burn_ms(20);
        let used_b = f.b.run(|| burn_ms(10));
        assert_about(f.x.sum(f.cpu), used_x);
        assert_about(f.b.sum(f.cpu), used_b);
        assert_eq!(
            f.a.read(f.cpu).value,
            f.x.read(f.cpu).value,
            "nothing ran in the parent itself"
        );
        let root = f.tree.root().read(f.cpu).value;
        assert_eq!(
            root,
            f.a.read(f.cpu).value + f.b.read(f.cpu).value,
            "nothing outside is charged"
        );
    });
}

#[test]
fn the_innermost_group_is_charged() {
    despite_noise(|| {
        let f = fixture();
        let (outer, inner) = f.a.run(|| {
            let before = burn_ms(10);
            let inner = f.b.run(|| burn_ms(15));
            (before + burn_ms(10), inner)
        });
        assert_about(f.a.sum(f.cpu), outer);
        assert_about(f.b.sum(f.cpu), inner);
    });
}

#[test]
fn a_switch_to_the_same_group_writes_nothing() {
    let f = fixture();
    let _entered = f.a.enter();
    switch::park();
    f.tree.flush();
    for _ in 0..1000 {
        let _again = f.a.enter();
        f.a.clone().run(|| ());
    }
    let reading = f.a.read(f.cpu);
    assert_eq!(reading.max_error, 0, "no word of the tree was marked since the flush");
    switch::park();
    assert!(f.a.read(f.cpu).max_error > 0, "a charge is one that marks");
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let f = fixture();
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for same in [false, true] {
        for order in orders {
            let groups = [&f.a, if same { &f.a } else { &f.x }, &f.b];
            let mut guards = groups.map(|group| Some(group.enter()));
            for index in order {
                guards[index] = None;
                let deepest = (0..3).rev().find(|&at| guards[at].is_some());
                let expected = deepest.map(|at| groups[at].clone());
                assert_eq!(switch::current(), expected, "{order:?}, after {index}");
            }
            // Nothing is left of the ended guards: the thread behaves as at the start.
            let _entered = f.b.enter();
            assert_eq!(f.a.run(switch::current), Some(f.a.clone()));
            assert_eq!(switch::current(), Some(f.b.clone()));
        }
    }
}

#[test]
fn a_panic_leaves_the_group() {
    despite_noise(|| {
        let f = fixture();
        let _outer = f.b.enter();
        let caught = catch_unwind(AssertUnwindSafe(|| f.a.run(|| panic!("on purpose"))));
        assert!(caught.is_err());
        assert_eq!(switch::current(), Some(f.b.clone()));
        let used = burn_ms(10);
        switch::park();
        assert_about(f.b.sum(f.cpu), used);
    });
}

#[test]
fn parking_makes_visible_what_was_used() {
    despite_noise(|| {
        let f = fixture();
        let (tell, told) = mpsc::channel();
        let (wake, woken) = mpsc::channel::<()>();
        let group = f.a.clone();
        let thread = std::thread::spawn(move || {
            let _entered = group.enter();
            let used = burn_ms(10);
            switch::park();
            tell.send(used).expect("received");
            woken.recv().expect("sent");
            burn_ms(10)
        });
        let before = told.recv().expect("sent");
        assert_about(f.a.sum(f.cpu), before);
        // Sleeping uses no CPU time.
        std::thread::sleep(Duration::from_millis(50));
        assert_about(f.a.sum(f.cpu), before);
        wake.send(()).expect("received");
        let after = thread.join().expect("no panic");
        assert_about(f.a.sum(f.cpu), before + after);
    });
}

/// A thread that ends in a group is charged, and a forgotten guard is counted.
#[test]
fn a_thread_that_ends_in_a_group_is_charged() {
    despite_noise(|| {
        let f = fixture();
        let before = switch::forgotten_guards();
        let group = f.a.clone();
        let used = std::thread::spawn(move || {
            std::mem::forget(group.enter());
            burn_ms(10)
        });
        let used = used.join().expect("no panic");
        assert_about(f.a.sum(f.cpu), used);
        assert!(switch::forgotten_guards() > before);
    });
}

/// Entering a group while the thread ends has no effect.
#[test]
fn entering_at_a_threads_end_is_harmless() {
    /// A thread-local value that enters a group when it is dropped.
    struct Late(Group);
    impl Drop for Late {
        fn drop(&mut self) {
            self.0.run(|| burn_ms(1));
        }
    }
    thread_local!(static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) });
    let f = fixture();
    for late_first in [false, true] {
        let group = f.a.clone();
        std::thread::spawn(move || {
            let enter = || group.run(|| ());
            let set = || LATE.set(Some(Late(group.clone())));
            if late_first {
                set();
                enter();
            } else {
                enter();
                set();
            }
        })
        .join()
        .expect("no panic");
    }
}

#[test]
fn a_killed_group_is_charged_until_it_is_left() {
    despite_noise(|| {
        let f = fixture();
        let used = {
            let _entered = f.b.enter();
            f.b.kill().expect("no children");
            burn_ms(10)
        };
        assert_eq!(f.tree.get("/b"), None);
        assert_about(f.tree.root().sum(f.cpu), used);
    });
}

#[test]
fn groups_of_several_trees_nest() {
    despite_noise(|| {
        let (one, two) = (fixture(), fixture());
        let plain = Tree::new(Schema::builder().build().expect("empty")).expect("address space");
        let (mut used_one, mut used_two) = (0, 0);
        one.a.run(|| {
            used_one += burn_ms(5);
            // This tree has no CPU metric, so the time is charged to no group.
            plain.root().run(|| {
                burn_ms(5);
                two.a.run(|| used_two += burn_ms(5));
                burn_ms(5);
            });
            used_one += burn_ms(5);
        });
        assert_about(one.a.sum(one.cpu), used_one);
        assert_about(two.a.sum(two.cpu), used_two);
    });
}

#[test]
fn switches_sum_up_to_a_threads_cpu_time_stress() {
    let f = fixture();
    // With more threads than CPUs, each is preempted and migrated every few milliseconds.
    let threads = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    let used: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let _outer = f.tree.root().enter();
                    // Starts this thread's clock outside the group, which is then not charged.
                    switch::park();
                    let start = clock::thread_cpu_ns();
                    let until = Instant::now();
                    while until.elapsed() < Duration::from_millis(300) {
                        for group in [&f.a, &f.x, &f.b] {
                            group.run(|| std::hint::black_box((0..200u64).sum::<u64>()));
                        }
                    }
                    let used = clock::thread_cpu_ns() - start;
                    switch::park();
                    used
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let charged = f.tree.root().sum(f.cpu);
    assert!(charged.abs_diff(used) <= used / 100 + SLACK_NS, "{charged} charged of {used}");
}

#[test]
fn a_switch_allocates_nothing() {
    let f = fixture();
    // The first switch of a thread starts its clock.
    f.a.run(|| f.b.run(|| ()));
    let count = allocation_counter::measure(|| {
        for _ in 0..100 {
            f.a.run(|| f.x.run(|| f.b.run(|| f.b.run(switch::park))));
        }
    });
    assert_eq!(count.count_total, 0);
}

/// A schema takes one counter of CPU time, and one each of time off the CPU and of errors.
#[test]
fn a_schema_has_one_counter_of_cpu_time() {
    let mut schema = Schema::builder();
    let cpu = schema.cpu_time("cpu", "CPU time");
    assert!(format!("{cpu:?}").contains("Nanoseconds"));
    schema.cpu_time("cpu_again", "CPU time");
    let error = schema.build().expect_err("two");
    assert_eq!(error, SchemaError::CpuTimeTwice("cpu_again".to_owned()));
    assert!(error.to_string().contains("\"cpu_again\""));

    for declare in [SchemaBuilder::off_cpu, SchemaBuilder::cpu_error] {
        let mut schema = Schema::builder();
        declare(&mut schema, "beside", "");
        let error = schema.build().expect_err("no CPU time");
        assert_eq!(error, SchemaError::CpuTimeMissing("beside".to_owned()));
        assert!(error.to_string().contains("\"beside\""));

        let mut schema = Schema::builder();
        schema.cpu_time("cpu", "CPU time");
        declare(&mut schema, "beside", "");
        declare(&mut schema, "again", "");
        let error = schema.build().expect_err("two");
        assert_eq!(error, SchemaError::CpuTimeTwice("again".to_owned()));
    }
}

/// Waits are charged to the group in which they happened, and others to no group.
#[test]
fn waits_are_charged_where_they_were() {
    const WAIT: Duration = Duration::from_millis(10);
    if clock::choice().source == clock::Source::Syscall {
        eprintln!("skipped: no CPU's counter here: {:?}", clock::choice());
        return;
    }
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    let off = schema.off_cpu("off", "Time off the CPU");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let [a, b, c] = ["/a", "/b", "/c"].map(|path| tree.create(path).expect("created"));
    let wall = Instant::now();
    c.run(|| std::thread::sleep(Duration::from_nanos(1)));
    // Outside all groups, outside groups that meter it, and once in each of two groups.
    std::thread::sleep(WAIT);
    fixture().a.run(|| std::thread::sleep(WAIT));
    let mut entered = a.enter();
    std::thread::sleep(WAIT);
    entered.switch_to(&b);
    std::thread::sleep(WAIT);
    drop(entered);
    let wall = wall.elapsed();
    let charged = [&a, &b].map(|group| group.sum(off));
    // It waits for no less, and uses some microseconds of CPU time in the process.
    let least = WAIT.as_nanos() as u64 * 9 / 10;
    assert!(charged.iter().all(|&ns| ns >= least), "{charged:?}");
    let all = u128::from(tree.root().sum(off)) + 2 * u128::from(least);
    assert!(all <= wall.as_nanos(), "{charged:?}, {all} of {wall:?}");
}

/// A waiter for a group's release may switch when the last guard releases it.
///
/// Dropping a handle may release its group and wake the waiters: never in the middle of a switch.
#[test]
fn a_waiter_may_switch_at_the_release() {
    /// A waker that notes the group in which it is woken.
    #[derive(Default)]
    struct Noting(Mutex<Vec<Option<Group>>>);
    impl Wake for Noting {
        fn wake(self: Arc<Self>) {
            self.0.lock().expect("whole").push(switch::current());
        }
    }
    let Fixture { a, b, tree, .. } = fixture();
    let noting = Arc::new(Noting::default());
    let waker = Waker::from(Arc::clone(&noting));
    let (mut guards, killed) = ([a.enter(), b.enter(), a.enter()].map(Some), b.kill());
    let killed = killed.expect("no children");
    let mut released = pin!(killed.released());
    drop(b);
    assert!(released.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Out of order: the last guard to end drops its handle to a group that the thread does not
    // return to.
    guards[1] = None;
    guards[2] = None;
    assert!(killed.is_released());
    assert_eq!(*noting.0.lock().expect("whole"), [Some(a)]);
    drop((guards, tree));
}
