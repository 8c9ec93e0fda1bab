//! Aggregators that are slow, panic, or call back into the tree affect only themselves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use submeter::{
    Aggregate, Aggregator, AggregatorError, Count, Counter, Group, Origin, Schema, Tree,
};

/// A limit for operations that must not block, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An aggregate that sums numbers and calls a function at each flush and at each merge.
struct Hooked<F, M> {
    flush: F,
    merge: M,
}

impl<F, M> Aggregate for Hooked<F, M>
where
    F: Fn(&str) + Send + Sync + 'static,
    M: Fn(u64, u64) + Send + Sync + 'static,
{
    type Local = AtomicU64;
    type Delta = u64;

    fn flush(&self, origin: &Origin<'_>, local: &AtomicU64, delta: &mut u64) {
        *delta += local.swap(0, Relaxed);
        (self.flush)(origin.path());
    }

    fn merge(&self, delta: &u64, into: &mut u64) {
        (self.merge)(*delta, *into);
        *into += delta;
    }
}

fn tree() -> (Tree, Counter<Count>) {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    (Tree::new(schema.build().expect("valid")).expect("address space"), requests)
}

fn group(tree: &Tree, path: &str) -> Group {
    tree.get_or_create(path).expect("created")
}

fn add<C: Aggregate<Local = AtomicU64>>(aggregator: &Aggregator<C>, group: &Group, n: u64) {
    aggregator.attach(group).update(|local| local.fetch_add(n, Relaxed));
}

fn value<C: Aggregate<Delta = u64>>(
    aggregator: &Aggregator<C>,
    group: &Group,
) -> Result<(u64, u64), AggregatorError> {
    aggregator.read(group, |seen| (*seen.total, seen.broken_below))
}

/// Returns an aggregate whose callback reports that it has begun, then waits to be released.
fn stuck() -> (impl Aggregate<Local = AtomicU64, Delta = u64>, Receiver<()>, Sender<()>) {
    let (begun, has_begun) = channel();
    let (let_go, may_go) = channel::<()>();
    let (begun, may_go) = (Mutex::new(begun), Mutex::new(may_go));
    let flush = move |_: &str| {
        // Both calls fail only after the test has ended.
        let _ = begun.lock().expect("whole").send(());
        let _ = may_go.lock().expect("whole").recv();
    };
    (Hooked { flush, merge: |_, _| () }, has_begun, let_go)
}

/// A slow callback delays only callers that flush its aggregator.
#[test]
fn a_slow_callback_delays_only_its_flushes() {
    let (tree, requests) = tree();
    let (stuck, has_begun, let_go) = stuck();
    let slow = tree.aggregator("slow", stuck);
    let quick = tree.aggregator("quick", Hooked { flush: |_: &str| (), merge: |_, _| () });
    let web = group(&tree, "/acme/web");
    add(&slow, &web, 1);
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| slow.flush().expect("not nested"));
        has_begun.recv_timeout(PATIENCE).expect("the callback runs");
        let (done, is_done) = channel();
        scope.spawn(|| {
            let done = done;
            web.add(requests, 1);
            tree.flush();
            assert_eq!(tree.root().sum(requests), 1);
            assert_eq!(tree.snapshot().groups().len(), 3);
            add(&quick, &web, 5);
            assert_eq!(quick.sum(tree.root(), |seen| *seen.total).expect("whole"), 5);
            // Even the slow aggregator still accepts updates, attachments and reads, and its groups
            // end.
            add(&slow, &web, 2);
            add(&slow, &group(&tree, "/acme/mail"), 4);
            assert_eq!(value(&slow, tree.root()).expect("whole"), (0, 0));
            let mail = group(&tree, "/acme/mail");
            let killed = mail.kill().expect("a leaf");
            drop(mail);
            assert!(killed.is_released());
            drop(tree.create("/late").expect("created"));
            done.send(()).expect("awaited");
        });
        let in_time = is_done.recv_timeout(PATIENCE);
        // Release the callback before asserting anything: a failed assertion would hang otherwise.
        drop(let_go);
        in_time.expect("nothing waited for the callback");
        assert!(!flush.join().expect("no panic").joined);
    });
    assert_eq!(slow.sum(tree.root(), |seen| *seen.total).expect("whole"), 7);
}

#[test]
fn waits_for_a_slow_flush_share_the_next() {
    let (tree, _) = tree();
    let (stuck, has_begun, let_go) = stuck();
    let slow = tree.aggregator("slow", stuck);
    add(&slow, tree.root(), 1);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| slow.flush().expect("not nested"));
        has_begun.recv_timeout(PATIENCE).expect("the callback runs");
        add(&slow, tree.root(), 1);
        let (asking, asked) = channel();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let asking = asking.clone();
                let slow = &slow;
                scope.spawn(move || {
                    asking.send(()).expect("awaited");
                    slow.flush().expect("not nested")
                })
            })
            .collect();
        (0..4).for_each(|_| asked.recv_timeout(PATIENCE).expect("asks"));
        // The threads announced their flush before calling it; a late one finds nothing.
        std::thread::sleep(Duration::from_millis(50));
        drop(let_go);
        assert!(!first.join().expect("no panic").joined);
        let reports: Vec<_> =
            waiters.into_iter().map(|waiter| waiter.join().expect("no panic")).collect();
        let flushed = reports.iter().filter(|report| !report.joined && report.locals > 0).count();
        assert_eq!(flushed, 1, "{reports:?}");
    });
    assert_eq!(value(&slow, tree.root()).expect("whole"), (2, 0));
}

/// A callback that panics breaks its group and leaves the others exact.
#[test]
fn a_panicking_callback_breaks_only_its_group() {
    let (tree, _) = tree();
    let flush = |path: &str| assert_ne!(path, "/acme/web", "bad luck");
    let aggregator = tree.aggregator("fragile", Hooked { flush, merge: |_, _| () });
    let [web, mail, other] = ["/acme/web", "/acme/mail", "/other"].map(|path| group(&tree, path));
    for round in 1..=3 {
        for (group, n) in [(&web, 1), (&mail, 10), (&other, 100)] {
            add(&aggregator, group, n);
        }
        let report = aggregator.flush().expect("not nested");
        assert_eq!((report.locals, report.panics), (3, 1), "later flushes go on");
        let error = value(&aggregator, &web).expect_err("broken, and not zero");
        assert!(error.is_broken() && !error.is_nested());
        let text = error.to_string();
        assert!(
            text.starts_with("aggregator fragile is broken for /acme/web: a callback"),
            "{text}"
        );
        assert!(text.contains("bad luck"), "{text}");
        assert_eq!(value(&aggregator, &mail).expect("whole"), (10 * round, 0));
        assert_eq!(value(&aggregator, &other).expect("whole"), (100 * round, 0));
        // One value was lost per round, and the total reports that it is incomplete.
        assert_eq!(value(&aggregator, &group(&tree, "/acme")).expect("whole"), (10 * round, 1));
        assert_eq!(value(&aggregator, tree.root()).expect("whole"), (110 * round, 1));
    }
    // A new group of the same name starts intact; what its predecessor lost stays lost.
    web.kill().expect("a leaf");
    drop(web);
    let web = group(&tree, "/acme/web");
    assert_eq!(value(&aggregator, &web).expect("whole"), (0, 0));
    assert_eq!(value(&aggregator, tree.root()).expect("whole"), (330, 1));
}

/// A merge that panics breaks the group that it merges into.
#[test]
fn a_merge_that_panics_breaks_its_target() {
    let (tree, _) = tree();
    // Only the second flush of /a/b merges 7 into 1.
    let merge = |delta: u64, into: u64| assert_ne!((delta, into), (7, 1), "bad sum");
    let aggregator = tree.aggregator("fragile", Hooked { flush: |_: &str| (), merge });
    let [b, c, root] = ["/a/b", "/c", "/"].map(|path| group(&tree, path));
    add(&aggregator, &b, 1);
    add(&aggregator, &c, 100);
    assert_eq!(aggregator.flush().expect("not nested").panics, 0);
    add(&aggregator, &b, 7);
    // Two panics: in the total of /a/b, and in that of /a, which has the same value. The root's
    // total is intact.
    assert_eq!(aggregator.flush().expect("not nested").panics, 2);
    assert!(value(&aggregator, &b).expect_err("broken").is_broken());
    assert!(value(&aggregator, &group(&tree, "/a")).expect_err("broken").is_broken());
    assert_eq!(value(&aggregator, &c).expect("whole"), (100, 0));
    assert_eq!(value(&aggregator, &root).expect("whole"), (108, 2), "whole, and says who is not");
}

/// An update that panics keeps its changes, and the panic reaches the caller.
#[test]
fn a_panicking_update_keeps_what_it_did() {
    let (tree, _) = tree();
    let aggregator = tree.aggregator("sum", Hooked { flush: |_: &str| (), merge: |_, _| () });
    let attached = aggregator.attach(tree.root());
    let update = || {
        attached.update(|local| {
            local.fetch_add(1, Relaxed);
            panic!("after half of it");
        })
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(update)).expect_err("the caller's");
    assert_eq!(aggregator.sum(tree.root(), |seen| *seen.total).expect("whole"), 1);
}

/// A panic whose payload is not text and a drop that panics both end in the flush.
#[test]
fn odd_panics_end_in_the_flush() {
    static ARMED: AtomicBool = AtomicBool::new(true);
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking() || !ARMED.load(Relaxed), "dropped");
        }
    }
    struct Explosive;
    impl Aggregate for Explosive {
        type Local = Mutex<Option<Bomb>>;
        type Delta = u64;
        fn flush(&self, origin: &Origin<'_>, _: &Self::Local, delta: &mut u64) {
            if origin.path() == "/odd" {
                std::panic::panic_any(Bomb);
            }
            *delta = 1;
        }
        fn merge(&self, delta: &u64, into: &mut u64) {
            *into += delta;
        }
    }
    let (tree, _) = tree();
    let aggregator = tree.aggregator("explosive", Explosive);
    let arm = |path: &str| {
        let group = group(&tree, path);
        aggregator.attach(&group).update(|local| *local.lock().expect("whole") = Some(Bomb));
        group
    };
    let odd = arm("/odd");
    arm("/web").kill().expect("a leaf");
    arm("/mail").kill().expect("a leaf");
    assert_eq!(aggregator.flush().expect("not nested").panics, 1);
    assert!(value(&aggregator, &odd).expect_err("broken").to_string().contains("no message"));
    assert_eq!(value(&aggregator, tree.root()).expect("whole"), (2, 1));
    // The flush dropped the bombs of both killed groups. That of the live group is dropped with the
    // tree; it belongs to the CPU that armed it, which need not be the one where the test ends.
    ARMED.store(false, Relaxed);
}

#[test]
fn a_callback_may_use_the_tree() {
    let (tree, requests) = tree();
    let (used, calls) = (tree.clone(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&calls);
    let other = tree.aggregator("other", Hooked { flush: |_: &str| (), merge: |_, _| () });
    let inner = other.clone();
    let call_back = move || {
        let n = counted.fetch_add(1, Relaxed);
        used.root().add(requests, 1);
        used.flush();
        assert_eq!(used.root().sum(requests), n + 1);
        assert!(!used.snapshot().groups().is_empty());
        let child = used.get_or_create(&format!("/made/{n}")).expect("created");
        add(&inner, &child, 1);
        child.kill().expect("a leaf");
    };
    let (flush, merge) = (call_back.clone(), call_back);
    let flush = move |_: &str| flush();
    let aggregator = tree.aggregator("busy", Hooked { flush, merge: move |_, _| merge() });
    add(&aggregator, &group(&tree, "/acme/web"), 3);
    assert_eq!(aggregator.sum(tree.root(), |seen| *seen.total).expect("whole"), 3);
    let calls = calls.load(Relaxed);
    assert_eq!(calls, 4, "asked once, merged into three totals");
    assert_eq!(other.sum(tree.root(), |seen| *seen.total).expect("whole"), calls);
    assert_eq!(tree.root().sum(requests), calls);
}

/// A callback that calls an aggregator is refused and does not wait.
#[test]
fn a_nested_call_is_refused_without_a_wait() {
    /// An aggregate that reads its own and another aggregator in every callback.
    struct Asking {
        ask: Mutex<Vec<Aggregator<Asking>>>,
        refused: AtomicU64,
    }
    impl Asking {
        fn ask(&self) {
            for aggregator in &*self.ask.lock().expect("whole") {
                let root = aggregator.attach(&aggregator.get_ref().root());
                root.update(|local| local.fetch_add(1, Relaxed));
                let flush = aggregator.flush().expect_err("a flush in a flush");
                let read = aggregator.read(root.group(), |_| ()).expect_err("a read in a flush");
                assert!(flush.is_nested() && read.is_nested() && !read.is_broken());
                assert!(flush.to_string().contains("asking was called from inside"), "{flush}");
                self.refused.fetch_add(2, Relaxed);
            }
        }
        fn root(&self) -> Group {
            ROOT.with(|root| root.borrow().clone().expect("set"))
        }
    }
    thread_local! {
        static ROOT: std::cell::RefCell<Option<Group>> = const { std::cell::RefCell::new(None) };
    }
    impl Aggregate for Asking {
        type Local = AtomicU64;
        type Delta = u64;
        fn flush(&self, _: &Origin<'_>, local: &AtomicU64, delta: &mut u64) {
            *delta = local.swap(0, Relaxed);
            self.ask();
        }
        fn merge(&self, delta: &u64, into: &mut u64) {
            *into += delta;
            self.ask();
        }
    }
    let (tree, _) = tree();
    ROOT.set(Some(tree.root().clone()));
    let asking = || Asking { ask: Mutex::default(), refused: AtomicU64::new(0) };
    let one = tree.aggregator("asking", asking());
    let two = tree.aggregator("asking", asking());
    *one.get_ref().ask.lock().expect("whole") = vec![one.clone(), two.clone()];
    add(&one, &group(&tree, "/web"), 1);
    assert_eq!(one.flush().expect("not nested").panics, 0);
    assert_eq!(one.get_ref().refused.load(Relaxed), 12, "three callbacks, four refusals each");
    assert_eq!(value(&one, tree.root()).expect("whole"), (1, 0));
    assert_eq!(two.sum(tree.root(), |seen| *seen.total).expect("whole"), 3);
    one.get_ref().ask.lock().expect("whole").clear();
    assert_eq!(one.sum(tree.root(), |seen| *seen.total).expect("whole"), 4);
    ROOT.set(None);
}

#[test]
fn a_read_may_read_and_is_refused_a_flush() {
    let (tree, _) = tree();
    let aggregator = tree.aggregator("sum", Hooked { flush: |_: &str| (), merge: |_, _| () });
    let web = group(&tree, "/web");
    add(&aggregator, &web, 2);
    aggregator.flush().expect("not nested");
    let inside = aggregator.read(tree.root(), |root| {
        assert!(aggregator.flush().expect_err("nested").is_nested());
        assert!(aggregator.sum(&web, |_| ()).expect_err("nested").is_nested());
        // Reentry into the same group is refused as well, even through another aggregator.
        let again = value(&aggregator, tree.root()).expect("whole").0;
        (*root.total, again, value(&aggregator, &web).expect("whole").0)
    });
    assert_eq!(inside.expect("whole"), (2, 2, 2));
    aggregator.flush().expect("not nested any more");
}

#[test]
fn an_update_inside_an_update_counts_both() {
    // An update inside an update, as a signal handler would do it.
    let (tree, _) = tree();
    let aggregator = tree.aggregator("sum", Hooked { flush: |_: &str| (), merge: |_, _| () });
    let attached = aggregator.attach(tree.root());
    attached.prepare();
    attached.update(|outer| {
        attached.update(|inner| inner.fetch_add(1, Relaxed));
        aggregator.flush().expect("an update holds nothing");
        outer.fetch_add(10, Relaxed)
    });
    assert_eq!(aggregator.sum(tree.root(), |seen| *seen.total).expect("whole"), 11);
}
