//! Sections of one schema are flushed separately and share one tree.

use std::sync::atomic::{AtomicBool, Ordering};

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, Nanoseconds, Quota, SECTIONS_MAX, Schema,
    SchemaBuilder, SchemaError, Section, Tree, Value,
};

use crate::met::until_met;
use crate::stop::StopOnDrop;

struct Fixture {
    tree: Tree,
    main: Section,
    io: Section,
    requests: Counter<Count>,
    written: Counter<Bytes>,
    wait: Histogram<Nanoseconds>,
    open: Gauge<Count>,
    cache: Quota<Bytes>,
}

fn fixture() -> Fixture {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "Requests");
    let (written, wait, cache) = schema.section("io", |io| {
        let written = io.counter("written", "Bytes written");
        let wait = io.histogram("wait", "For the disk", Buckets::LATENCY_NS);
        (written, wait, io.quota("cache", "Bytes cached"))
    });
    let open = schema.gauge("open", "Open files");
    let schema = schema.build().expect("valid");
    let section = |name| schema.section(name).expect("declared");
    let (main, io) = (section("main"), section("io"));
    let tree = Tree::new(schema).expect("address space");
    Fixture { tree, main, io, requests, written, wait, open, cache }
}

#[test]
fn a_flush_of_one_section_leaves_the_others() {
    let f = fixture();
    let web = f.tree.get_or_create("/acme/web").expect("created");
    web.add(f.requests, 1);
    web.adjust(f.open, 2);
    web.add(f.written, 4096);
    web.record(f.wait, 1000);

    let report = f.tree.flush_section(f.io);
    assert_eq!(report.groups, 3, "/acme/web, /acme and /");
    let root = f.tree.root();
    assert_eq!(root.read(f.written).value, 4096);
    assert_eq!(root.read(f.written).max_error, 0, "nothing of its section is marked");
    assert_eq!(root.read_histogram(f.wait).value.count(), 1);
    assert_eq!((root.read(f.requests).value, root.read(f.open).value), (0, 0));
    assert!(root.read(f.requests).max_error > 0, "and it says so");
    assert_eq!(f.tree.flush_section(f.io).groups, 0, "nothing is left there");

    assert_eq!(f.tree.flush_section(f.main).groups, 3);
    assert_eq!((root.read(f.requests).value, root.read(f.open).value), (1, 2));
    assert_eq!(f.tree.flush().groups, 0, "nothing is left anywhere");
}

#[test]
fn a_sum_flushes_its_own_section_only() {
    let f = fixture();
    let web = f.tree.get_or_create("/acme/web").expect("created");
    web.add(f.requests, 7);
    web.add(f.written, 5);
    assert_eq!(web.sum(f.written), 5);
    assert_eq!(web.read(f.requests).value, 0);
    assert_eq!(web.sum(f.requests), 7);
}

#[test]
fn a_flush_of_the_tree_flushes_every_section() {
    let f = fixture();
    let web = f.tree.get_or_create("/acme/web").expect("created");
    web.add(f.requests, 1);
    f.tree.get_or_create("/acme/mail").expect("created").add(f.written, 2);
    assert_eq!(f.tree.flush().groups, 6, "three groups in each section");
    assert_eq!(f.tree.root().read(f.requests).value, 1);
    assert_eq!(f.tree.root().read(f.written).value, 2);
}

#[test]
fn a_snapshot_agrees_with_all_sections() {
    let f = fixture();
    for (path, n) in [("/a/x", 1), ("/a/y", 2), ("/b", 3)] {
        let group = f.tree.get_or_create(path).expect("created");
        group.add(f.requests, n);
        group.add(f.written, 10 * n);
        group.record(f.wait, 100 * n);
        group.adjust(f.open, -(n.cast_signed()));
        std::mem::forget(group.try_charge(f.cache, n));
    }
    let snapshot = f.tree.snapshot();
    for (path, n) in [("/", 6), ("/a", 3), ("/a/x", 1), ("/a/y", 2), ("/b", 3)] {
        let values = snapshot.get(path).expect("exists");
        assert_eq!(values.counter(f.requests), n, "{path}");
        assert_eq!(values.counter(f.written), 10 * n, "{path}");
        assert_eq!(values.gauge(f.open), -(n.cast_signed()), "{path}");
        assert_eq!(values.histogram(f.wait).sum(), 100 * n, "{path}");
        assert_eq!(values.usage(f.cache).current, n, "{path}");
        let open = snapshot.schema().metric("open").expect("declared");
        assert_eq!(values.value(open), Value::Gauge(-(n.cast_signed())), "{path}");
    }
}

#[test]
fn an_export_does_not_show_how_metrics_are_split() {
    let mut text = [String::new(), String::new()];
    for (split, text) in [false, true].into_iter().zip(&mut text) {
        let mut schema = Schema::builder();
        let requests = schema.counter::<Count>("requests", "Requests");
        let declare = |s: &mut SchemaBuilder| s.counter::<Bytes>("written", "Bytes written");
        let written = if split { schema.section("io", declare) } else { declare(&mut schema) };
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let web = tree.get_or_create("/web").expect("created");
        web.add(requests, 3);
        web.add(written, 9);
        submeter::export::Export::new("app").write(&tree, text).expect("a string");
    }
    // The text before that belongs to one of the trees.
    let [one, split] = text.each_ref().map(|text| text.split_once("app_tree_sequence 1\n"));
    assert_eq!(one.expect("the tree").1, split.expect("the tree").1);
    assert!(text[1].contains("app_written_bytes_total{group=\"/web\"} 9\n"), "{}", text[1]);
}

/// A killed group leaves its totals in every section, whichever is flushed first.
#[test]
fn a_killed_group_leaves_totals_in_each_section() {
    let f = fixture();
    for round in 1..=50u64 {
        let child = f.tree.get_or_create("/p/child").expect("created");
        child.add(f.requests, 1);
        child.add(f.written, 2);
        child.kill().expect("no children");
        child.add(f.written, 3);
        drop(child);
        f.tree.flush_section(if round % 2 == 0 { f.io } else { f.main });
        let parent = f.tree.get("/p").expect("lives");
        assert_eq!(parent.sum(f.written), 5 * round);
        assert_eq!(parent.sum(f.requests), round);
    }
    assert_eq!(f.tree.group_count(), 2, "every section has forgotten the dead");
}

#[test]
fn each_sections_population_bounds_its_reads() {
    let f = fixture();
    let groups: Vec<_> =
        (0..10).map(|i| f.tree.get_or_create(&format!("/p/{i}")).expect("created")).collect();
    groups[0].add(f.written, 1);
    let parent = f.tree.get("/p").expect("lives");
    let truth = |written: u64, bound: u64| assert!(written + bound >= 1, "{written} ± {bound}");
    let seen = parent.read(f.written);
    truth(seen.value, seen.max_error);
    for group in groups {
        group.kill().expect("a leaf");
    }
    f.tree.flush_section(f.io);
    let seen = parent.read(f.written);
    assert_eq!((seen.value, seen.max_error), (1, 0));
}

#[test]
fn a_tree_full_of_one_sections_dead_flushes_it() {
    let mut schema = Schema::builder();
    schema.counter::<Count>("requests", "Requests");
    schema.section("io", |io| io.counter::<Count>("writes", "Writes"));
    let schema = schema.build().expect("valid");
    let io = schema.section("io").expect("declared");
    let tree = Tree::builder(schema).groups_max(2).build().expect("address space");
    for _ in 0..20 {
        tree.create("/one").expect("room").kill().expect("a leaf");
        assert!(tree.group_count() <= 2);
        // Only this section has reclaimed its killed groups; those of the other still take up room.
        tree.flush_section(io);
    }
    let _held = tree.create("/one").expect("room");
    assert!(tree.create("/two").expect_err("full").is_full());
    assert_eq!(tree.group_count(), 2);
}

/// A parent is the sum of its children in every section while everything changes.
#[test]
fn parents_are_sums_in_every_section_stress() {
    const SNAPSHOTS: u32 = 500;
    let f = fixture();
    let groups: Vec<_> =
        (0..4).map(|i| f.tree.get_or_create(&format!("/p/{i}")).expect("created")).collect();
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let (f, stop) = (&f, &stop);
        let stopping = StopOnDrop(stop);
        let updaters: Vec<_> = groups
            .iter()
            .map(|group| {
                scope.spawn(move || {
                    let mut done = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        group.add(f.requests, 1);
                        group.add(f.written, 3);
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        let mut last = (0, 0);
        until_met(SNAPSHOTS, || {
            f.tree.flush_section(f.io);
            let snapshot = f.tree.snapshot();
            let value = |path: &str| {
                let values = snapshot.get(path).expect("lives");
                (values.counter(f.requests), values.counter(f.written))
            };
            let children: Vec<_> = (0..4).map(|i| value(&format!("/p/{i}"))).collect();
            let sums = children.iter().fold((0, 0), |sum, v| (sum.0 + v.0, sum.1 + v.1));
            assert_eq!(value("/p"), sums);
            assert_eq!(value("/"), sums);
            // Both sections change.
            let before = std::mem::replace(&mut last, sums);
            before != (0, 0) && sums.0 != before.0 && sums.1 != before.1
        });
        drop(stopping);
        updaters.into_iter().map(|updater| updater.join().expect("no panic")).sum::<u64>()
    });
    assert_eq!(f.tree.root().sum(f.written), 3 * done);
    assert_eq!(f.tree.root().sum(f.requests), done);
}

#[test]
fn sections_are_found_by_name_and_by_metric() {
    let f = fixture();
    let schema = f.tree.schema();
    let names: Vec<_> = schema.sections().collect();
    assert_eq!(names, [(f.main, "main"), (f.io, "io")]);
    assert_eq!(schema.section("io"), Some(f.io));
    assert_eq!(schema.section("net"), None);
    let of = |name: &str| schema.metric(name).expect("declared").section();
    assert_eq!((of("requests"), of("open")), (f.main, f.main), "one after the section too");
    assert_eq!((of("written"), of("wait"), of("cache")), (f.io, f.io, f.main));
}

/// Sections take declarations from several places and do not nest.
#[test]
fn sections_do_not_nest() {
    let mut schema = Schema::builder();
    // As two libraries in one process would: each declares its metrics through a function.
    let library = |s: &mut SchemaBuilder, name: &str| s.counter::<Count>(name, "");
    let reads = schema.section("io", |io| library(io, "reads"));
    let (sent, writes) = schema.section("net", |net| {
        let sent = library(net, "sent");
        let writes = net.section("io", |io| library(io, "writes"));
        library(net, "received");
        (sent, writes)
    });
    let requests = library(&mut schema, "requests");
    let schema = schema.build().expect("valid");
    let of = |name: &str| schema.metric(name).expect("declared").section();
    let names: Vec<_> = schema.sections().map(|(_, name)| name).collect();
    assert_eq!(names, ["main", "io", "net"]);
    assert_eq!([of("reads"), of("writes")], [schema.section("io").expect("declared"); 2]);
    assert_eq!([of("sent"), of("received")], [schema.section("net").expect("declared"); 2]);
    assert_eq!(Some(of("requests")), schema.section("main"));
    let tree = Tree::new(schema).expect("address space");
    for (key, n) in [(reads, 1), (sent, 2), (writes, 3), (requests, 4)] {
        tree.root().add(key, n);
        assert_eq!(tree.root().sum(key), n);
    }
}

#[test]
fn bad_sections_are_refused_with_a_remedy() {
    let mut schema = Schema::builder();
    schema.section("I/O", |_| ());
    let error = schema.build().expect_err("no name");
    assert_eq!(error, SchemaError::SectionName("I/O".to_owned()));
    let remedy = "use lowercase letters, digits and underscores, starting with a letter";
    assert!(
        error.to_string().starts_with("section name \"I/O\" is not")
            && error.to_string().ends_with(remedy)
    );

    let mut schema = Schema::builder();
    for section in 0..SECTIONS_MAX {
        schema.section(&format!("s{section}"), |_| ());
    }
    let error = schema.build().expect_err("and `main`");
    assert_eq!(error, SchemaError::TooManySections { sections: SECTIONS_MAX + 1 });

    // Metrics that do not fit into one section may fit into two.
    let half = |schema: &mut SchemaBuilder, name: &str| {
        for n in 0..300 {
            schema.counter::<Count>(&format!("{name}_{n}"), "");
        }
    };
    let mut schema = Schema::builder();
    half(&mut schema, "a");
    half(&mut schema, "b");
    assert_eq!(schema.build().expect_err("too large"), SchemaError::TooLarge { words: 600 });
    let mut schema = Schema::builder();
    half(&mut schema, "a");
    schema.section("more", |more| half(more, "b"));
    assert_eq!(schema.build().expect("two sections").words(), 600);
}

#[test]
#[should_panic(expected = "the metric belongs to the schema of another tree")]
fn a_metric_of_another_trees_section_is_refused() {
    let (f, other) = (fixture(), fixture());
    f.tree.root().add(other.written, 1);
}

/// The panic for a metric of another tree points at the caller's line.
#[test]
#[cfg(debug_assertions)]
fn a_foreign_metric_panics_at_the_callers_line() {
    use std::sync::Mutex;

    let (f, other) = (fixture(), fixture());
    let group = f.tree.root().clone();
    let files: &'static Mutex<Vec<String>> = Box::leak(Box::default());
    let (test, before) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| match panic.location() {
        Some(at) if std::thread::current().id() == test => {
            files.lock().expect("no panic").push(at.file().to_owned());
        }
        // Another test's panic.
        _ => before(panic),
    }));
    let uses: [&dyn Fn(); 8] = [
        &|| group.add(other.written, 1),
        &|| group.inc(other.requests),
        &|| group.set(other.open, 1),
        &|| group.record(other.wait, 1),
        &|| _ = group.sum(other.requests),
        &|| _ = group.read_histogram(other.wait),
        &|| _ = group.try_charge(other.cache, 1),
        &|| _ = group.set_limit(other.cache, Some(1)),
    ];
    for wrong in uses {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wrong)).is_err());
    }
    assert_eq!(*files.lock().expect("no panic"), [file!(); 8]);
}

#[test]
#[should_panic(expected = "the section belongs to the schema of another tree")]
fn a_section_of_another_tree_is_refused() {
    let (f, other) = (fixture(), fixture());
    f.tree.flush_section(other.io);
}
