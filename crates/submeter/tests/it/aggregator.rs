//! Aggregators: what they collect, in what order they merge, and what a killed group leaves.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use submeter::{Aggregate, Aggregator, Count, Group, Origin, Schema, Tree};

use crate::one_number::OneNumber;
use crate::stop::StopOnDrop;
use crate::witness::Witness;

/// An aggregate that sums numbers and logs its calls.
#[derive(Default)]
struct Sum {
    calls: Arc<Mutex<Vec<Call>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Flush(String, usize),
    Merge(Vec<String>, Vec<String>),
}

/// A number and the groups that contributed to it.
#[derive(Default)]
struct Delta {
    n: u64,
    of: Vec<String>,
}

impl Aggregate for Sum {
    type Local = AtomicU64;
    type Delta = Delta;

    fn flush(&self, origin: &Origin<'_>, local: &AtomicU64, delta: &mut Delta) {
        assert_eq!((delta.n, delta.of.len()), (0, 0), "empty, as promised");
        delta.n += local.swap(0, Relaxed);
        delta.of.push(origin.path().to_owned());
        self.calls.lock().expect("whole").push(Call::Flush(origin.path().to_owned(), origin.cpu()));
    }

    fn merge(&self, delta: &Delta, into: &mut Delta) {
        self.calls.lock().expect("whole").push(Call::Merge(delta.of.clone(), into.of.clone()));
        into.n += delta.n;
        into.of.extend(delta.of.iter().cloned());
    }
}

fn plain(aggregator: &Aggregator<OneNumber>, group: &Group) -> u64 {
    aggregator.read(group, |seen| *seen.total).expect("whole")
}

fn tree() -> Tree {
    Tree::new(Schema::builder().build().expect("valid")).expect("address space")
}

fn aggregator(tree: &Tree) -> (Aggregator<Sum>, Arc<Mutex<Vec<Call>>>) {
    let sum = Sum::default();
    let calls = Arc::clone(&sum.calls);
    (tree.aggregator("sum", sum), calls)
}

fn group(tree: &Tree, path: &str) -> Group {
    tree.get_or_create(path).expect("created")
}

fn total(aggregator: &Aggregator<Sum>, group: &Group) -> u64 {
    aggregator.read(group, |seen| seen.total.n).expect("whole")
}

/// A collected value reaches every ancestor and no other group.
#[test]
fn what_is_collected_reaches_ancestors_only() {
    let tree = tree();
    let (sum, _) = aggregator(&tree);
    let web = sum.attach(&group(&tree, "/acme/web"));
    let mail = sum.attach(&group(&tree, "/acme/mail"));
    let other = sum.attach(&group(&tree, "/other"));
    assert_eq!(web.update(|local| local.fetch_add(3, Relaxed)), 0, "the closure's result");
    mail.update(|local| local.fetch_add(4, Relaxed));
    other.update(|local| local.fetch_add(50, Relaxed));
    assert_eq!(total(&sum, tree.root()), 0, "lazy");
    let report = sum.flush().expect("not nested");
    assert_eq!((report.groups, report.locals, report.panics, report.joined), (5, 3, 0, false));
    for (path, n) in [("/acme/web", 3), ("/acme/mail", 4), ("/acme", 7), ("/other", 50), ("/", 57)]
    {
        assert_eq!(total(&sum, &group(&tree, path)), n, "{path}");
    }
    let report = sum.flush().expect("not nested");
    assert_eq!((report.groups, report.locals), (0, 0), "nothing changed since");
    web.update(|local| local.fetch_add(1, Relaxed));
    assert_eq!(sum.sum(tree.root(), |seen| seen.total.n).expect("whole"), 58);
    assert_eq!(total(&sum, &group(&tree, "/never/attached")), 0);
}

/// A group is asked once per CPU, and merged once, after its children.
#[test]
fn a_group_is_merged_once_after_its_children() {
    let tree = tree();
    let (sum, calls) = aggregator(&tree);
    let paths = ["/a/b/c/d", "/a/b", "/a/b/e", "/f", "/"];
    let attached = paths.map(|path| sum.attach(&group(&tree, path)));
    // Fill every CPU's row, whichever CPU this runs on, so that merges meet several children per
    // CPU and per group.
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for at in &attached {
                    (0..100).for_each(|_| {
                        at.update(|local| local.fetch_add(1, Relaxed));
                    });
                }
            });
        }
    });
    let report = sum.flush().expect("not nested");
    let mut calls = std::mem::take(&mut *calls.lock().expect("whole"));
    assert_eq!(total(&sum, tree.root()), 5 * 800);
    assert_eq!(report.groups, 7, "with /a and /a/b/c");

    let (mut flushes, merges): (Vec<_>, Vec<_>) =
        calls.drain(..).partition(|call| matches!(call, Call::Flush(..)));
    assert_eq!(flushes.len(), report.locals);
    flushes.sort();
    flushes.dedup();
    assert_eq!(flushes.len(), report.locals, "no group and CPU twice");
    // A total starts empty, so each value merged into it must already include everything below.
    let merged_into_totals: Vec<_> = merges
        .iter()
        .filter_map(|call| match call {
            Call::Merge(delta, into) if into.is_empty() => Some(delta),
            _ => None,
        })
        .collect();
    assert_eq!(merged_into_totals.len(), 7, "each total once");
    let has = |delta: &[String], paths: &[&str]| {
        paths.iter().all(|path| delta.iter().any(|of| of == path))
    };
    let all_of = |paths: &[&str]| merged_into_totals.iter().position(|delta| has(delta, paths));
    let root = all_of(&paths).expect("the root's has everything");
    let b = all_of(&["/a/b/c/d", "/a/b/e", "/a/b"]).expect("b's");
    assert!(b < root, "children first");
    assert_eq!(root, 6, "the root last");
}

/// A killed group leaves what it collected in its parent.
#[test]
fn a_killed_group_leaves_its_total_above() {
    let tree = tree();
    let (sum, _) = aggregator(&tree);
    for round in 1..=100u64 {
        let child = group(&tree, "/p/child");
        let attached = sum.attach(&child);
        attached.update(|local| local.fetch_add(1, Relaxed));
        if round % 3 == 0 {
            sum.flush().expect("not nested");
        }
        let killed = child.kill().expect("a leaf");
        drop(child);
        assert!(!killed.is_released(), "what is attached holds it");
        attached.update(|local| local.fetch_add(10, Relaxed));
        drop(attached);
        assert!(killed.is_released(), "and the aggregator does not");
        if round % 2 == 0 {
            sum.flush().expect("not nested");
            assert_eq!(total(&sum, &group(&tree, "/p")), 11 * round);
        }
    }
    assert_eq!(total(&sum, tree.root()), 1100);
    assert_eq!(total(&sum, &group(&tree, "/p/child")), 0, "a new group of that name");
}

#[test]
fn a_parent_dying_with_children_loses_nothing() {
    let tree = tree();
    let (sum, _) = aggregator(&tree);
    for round in 1..=20 {
        let attached: Vec<_> =
            (0..5).map(|i| sum.attach(&group(&tree, &format!("/a/b/{i}")))).collect();
        for at in &attached {
            at.update(|local| local.fetch_add(1, Relaxed));
        }
        group(&tree, "/a").kill_subtree().expect("lives");
        drop(attached);
        assert_eq!(sum.sum(tree.root(), |seen| seen.total.n).expect("whole"), 5 * round);
    }
}

/// A value that counts its live instances.
struct Counted(&'static AtomicUsize);

static LOCALS: AtomicUsize = AtomicUsize::new(0);
static LOCALS_MADE: AtomicUsize = AtomicUsize::new(0);

impl Default for Counted {
    fn default() -> Self {
        LOCALS.fetch_add(1, Relaxed);
        LOCALS_MADE.fetch_add(1, Relaxed);
        Counted(&LOCALS)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

struct Counting;

impl Aggregate for Counting {
    type Local = Counted;
    type Delta = ();
    fn flush(&self, _: &Origin<'_>, _: &Counted, (): &mut ()) {}
    fn merge(&self, (): &(), (): &mut ()) {}
}

/// State is made by the first update, and ends with the group or the aggregator.
#[test]
fn state_lives_with_group_and_aggregator() {
    let tree = tree();
    let counting = tree.aggregator("counting", Counting);
    let idle: Vec<_> = (0..50).map(|i| counting.attach(&group(&tree, &format!("/{i}")))).collect();
    assert_eq!(LOCALS_MADE.load(Relaxed), 0, "an idle group has none");
    idle[0].update(|_| ());
    idle[0].update(|_| ());
    let made = LOCALS_MADE.load(Relaxed);
    assert!((1..=2).contains(&made), "one a CPU, and the thread may have moved: {made}");
    idle[1].prepare();
    let made = LOCALS_MADE.load(Relaxed);
    idle[1].update(|_| ());
    assert_eq!(LOCALS_MADE.load(Relaxed), made, "prepared");

    let two = group(&tree, "/2");
    let attached = counting.attach(&two);
    attached.update(|_| ());
    let with_two = LOCALS.load(Relaxed);
    two.kill().expect("a leaf");
    drop((two, attached, idle));
    assert_eq!(LOCALS.load(Relaxed), with_two, "not read a last time yet");
    counting.flush().expect("not nested");
    assert!(LOCALS.load(Relaxed) < with_two);

    // The aggregator alone owns the state of live groups; attaching the next one removes it.
    drop(counting);
    let next = tree.aggregator("next", Counting);
    for i in 0..50 {
        if i != 2 {
            drop(next.attach(&group(&tree, &format!("/{i}"))));
        }
    }
    assert_eq!(LOCALS.load(Relaxed), 0);
}

#[test]
fn aggregators_of_one_tree_do_not_mix() {
    let tree = tree();
    let (one, _) = aggregator(&tree);
    let (two, _) = aggregator(&tree);
    let web = group(&tree, "/web");
    one.attach(&web).update(|local| local.store(1, Relaxed));
    two.attach(&web).update(|local| local.store(2, Relaxed));
    one.flush().expect("not nested");
    assert_eq!((total(&one, &web), total(&two, &web)), (1, 0));
    two.flush().expect("not nested");
    assert_eq!((total(&one, tree.root()), total(&two, tree.root())), (1, 2));
    assert_eq!(one.name(), "sum");
    assert!(one.get_ref().calls.lock().is_ok());
}

#[test]
fn attaching_twice_is_attaching_to_the_same() {
    let tree = tree();
    let (sum, _) = aggregator(&tree);
    let web = group(&tree, "/web");
    let (one, two) = (sum.attach(&web), sum.attach(&web));
    one.update(|local| local.fetch_add(1, Relaxed));
    two.clone().update(|local| local.fetch_add(1, Relaxed));
    assert_eq!(sum.sum(&web, |seen| seen.total.n).expect("whole"), 2);
    assert_eq!((one.group(), format!("{two:?}")), (&web, "Attached(/web)".to_owned()));
}

#[test]
#[should_panic(expected = "the group belongs to a different tree than the aggregator")]
fn a_group_of_another_tree_is_refused() {
    let (one, two) = (tree(), tree());
    let (sum, _) = aggregator(&one);
    drop(sum.attach(two.root()));
}

#[test]
fn handles_outlive_aggregators_and_those_trees() {
    let tree = tree();
    let (sum, _) = aggregator(&tree);
    let attached = sum.attach(&group(&tree, "/a/b"));
    attached.update(|local| local.fetch_add(1, Relaxed));
    let root = tree.root().clone();
    drop(tree);
    attached.update(|local| local.fetch_add(1, Relaxed));
    assert_eq!(sum.sum(&root, |seen| seen.total.n).expect("whole"), 2);
    drop(root);
    drop(sum);
    attached.update(|local| local.fetch_add(1, Relaxed));
}

#[test]
fn a_read_says_how_old_it_is() {
    let tree = tree();
    let (sum, _) = aggregator(&tree);
    let attached = sum.attach(tree.root());
    attached.update(|local| local.fetch_add(1, Relaxed));
    sum.flush().expect("not nested");
    let pause = std::time::Duration::from_millis(20);
    std::thread::sleep(pause);
    let age = sum.read(tree.root(), |seen| seen.age).expect("whole");
    assert!(age >= pause, "{age:?}");
    let before = std::time::Instant::now();
    let age = sum.sum(tree.root(), |seen| seen.age).expect("whole");
    assert!(age <= before.elapsed(), "{age:?}");
}

/// Updates, flushes, kills and attaching race, and nothing is lost.
#[test]
fn racing_updates_and_kills_lose_nothing_stress() {
    let tree = tree();
    // The test may run for a minute, in which a log would grow without bound.
    let sum = tree.aggregator("sum", OneNumber);
    let (stop, witness) = (AtomicBool::new(false), Witness::new());
    let expected = std::thread::scope(|scope| {
        let (tree, sum, stop, witness) = (&tree, &sum, &stop, &witness);
        let stopping = StopOnDrop(stop);
        let updaters: Vec<_> = (0..3u64)
            .map(|id| {
                scope.spawn(move || {
                    let mut done = 0;
                    for round in (0..).take_while(|&round| witness.goes_on(round, 300)) {
                        // Two threads share each group; either may kill it while the other uses it.
                        let Ok(child) = tree.get_or_create(&format!("/p/{}", (round + id) % 2))
                        else {
                            continue;
                        };
                        let attached = sum.attach(&child);
                        for _ in 0..50 {
                            attached.update(|local| local.fetch_add(1, Relaxed));
                            done += 1;
                        }
                        // Fails if the other thread killed it first.
                        drop(child.kill());
                    }
                    done
                })
            })
            .collect();
        let flusher = scope.spawn(move || {
            let mut last = 0;
            while !stop.load(Relaxed) {
                sum.flush().expect("not nested");
                let now = plain(sum, tree.root());
                assert!(now >= last, "a total never goes back");
                witness.met(last != 0 && now != last);
                last = now;
            }
        });
        let done =
            updaters.into_iter().map(|updater| updater.join().expect("no panic")).sum::<u64>();
        drop(stopping);
        flusher.join().expect("no panic");
        done
    });
    witness.assert_met();
    assert_eq!(sum.sum(tree.root(), |seen| *seen.total).expect("whole"), expected);
    assert_eq!(plain(&sum, &group(&tree, "/p")), expected);
}

/// A numeric metric and an aggregator of one group agree.
#[test]
fn a_metric_and_an_aggregator_agree() {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let (sum, _) = aggregator(&tree);
    let web = group(&tree, "/web");
    let attached = sum.attach(&web);
    for _ in 0..1000 {
        web.add(requests, 2);
        attached.update(|local| local.fetch_add(2, Relaxed));
    }
    tree.flush();
    assert_eq!(total(&sum, tree.root()), 0, "the numbers' flush is not the aggregator's");
    assert_eq!(tree.root().read(requests).value, 2000);
    assert_eq!(sum.sum(tree.root(), |seen| seen.total.n).expect("whole"), 2000);
}
