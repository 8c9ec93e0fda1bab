//! Totals that outlive their process.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use submeter::checkpoint::CheckpointFile;
use submeter::export::Export;
use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Group, Histogram, Nanoseconds, Quota, Schema, Tolerance,
    Tree, Value,
};

/// A directory that goes with the test.
pub(super) struct Directory(pub(super) PathBuf);

impl Directory {
    pub(super) fn new(test: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("submeter-{}-{test}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Directory(path)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.0.join("totals")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A tree with a metric of each kind.
struct Metered {
    tree: Tree,
    requests: Counter<Count>,
    sent: Counter<Bytes>,
    open: Gauge<Count>,
    latency: Histogram<Nanoseconds>,
    memory: Quota<Bytes>,
}

fn metered() -> Metered {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "");
    let sent = schema.section("network", |section| section.counter("sent", ""));
    let open = schema.gauge("open", "");
    let latency = schema.histogram("latency", "", Buckets::LATENCY_NS);
    let memory = schema.quota("memory", "");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    Metered { tree, requests, sent, open, latency, memory }
}

/// The totals that a checkpoint keeps, by path and metric.
fn totals(tree: &Tree) -> Vec<(String, String, Value)> {
    let snapshot = tree.snapshot();
    let kept = |name: &str| ["requests", "sent", "latency"].contains(&name);
    let metrics = snapshot.schema().metrics().iter().filter(|metric| kept(metric.name()));
    let metrics: Vec<_> = metrics.collect();
    let of = |group: &submeter::GroupValues| {
        let path = group.path().to_owned();
        let value = |m: &&submeter::Metric| (path.clone(), m.name().to_owned(), group.value(m));
        metrics.iter().map(value).collect::<Vec<_>>()
    };
    snapshot.groups().iter().flat_map(of).collect()
}

/// A group's exact total.
fn exact(group: &Group, counter: Counter<Count>) -> u64 {
    group.read_within(counter, Tolerance::EXACT).value
}

/// Creates, updates and kills at random.
fn work(metered: &Metered, rng: &mut fastrand::Rng, steps: Range<u32>) {
    let Metered { tree, requests, sent, latency, .. } = metered;
    for _ in steps {
        let path = ["/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/deep", "/ü\"\\n"];
        let group = tree.get_or_create(path[rng.usize(..path.len())]).expect("room");
        match rng.u32(..8) {
            0 => drop(group.kill()),
            1 | 2 => group.add(*sent, rng.u64(..1 << 40)),
            3 | 4 => group.record(*latency, rng.u64(..1 << 38)),
            _ => group.add(*requests, rng.u64(..1000)),
        }
    }
}

#[test]
fn totals_are_those_of_the_process_before() {
    let directory = Directory::new("totals");
    let mut rng = fastrand::Rng::with_seed(7);
    let mut before = None;
    // Each process adds to what those before it counted.
    for epoch in 1..=4 {
        let metered = metered();
        let mut file = CheckpointFile::open(directory.file()).expect("a directory");
        let restored = metered.tree.restore(&mut file).expect("whole");
        assert_eq!(restored.map(|restored| restored.epoch() + 1), (epoch > 1).then_some(epoch));
        assert_eq!(before.as_ref().unwrap_or(&totals(&metered.tree)), &totals(&metered.tree));
        work(&metered, &mut rng, 0..400);
        for sequence in 1..=3 {
            work(&metered, &mut rng, 0..50);
            metered.tree.checkpoint(&mut file).expect("a disk");
            assert_eq!((file.epoch(), file.sequence()), (epoch, sequence));
        }
        before = Some(totals(&metered.tree));
        work(&metered, &mut rng, 0..50); // lost
    }
}

#[test]
fn values_of_a_file_may_be_added_up() {
    let directory = Directory::new("sums");
    let metered = metered();
    work(&metered, &mut fastrand::Rng::with_seed(3), 0..1000);
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    metered.tree.checkpoint(&mut file).expect("a disk");
    let text = fs::read_to_string(directory.file()).expect("written");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let sum =
        |sum: u64, line: serde_json::Value| sum + line["values"]["requests"].as_u64().unwrap_or(0);
    let root = exact(metered.tree.root(), metered.requests);
    assert_eq!(lines.fold(0, sum), root);
}

#[test]
fn what_a_process_holds_is_not_restored() {
    let directory = Directory::new("levels");
    let before = metered();
    let web = before.tree.get_or_create("/web").expect("room");
    web.set(before.open, 5);
    let _held = web.try_charge(before.memory, 100).expect("no limit");
    web.add(before.requests, 1);
    let file = CheckpointFile::open(directory.file()).expect("a directory");
    before.tree.checkpoint_last(file).expect("a disk");

    let after = metered();
    let mut file = CheckpointFile::open(directory.file()).expect("unlocked");
    after.tree.restore(&mut file).expect("whole").expect("there is one");
    let web = after.tree.get("/web").expect("restored");
    assert_eq!(exact(&web, after.requests), 1);
    assert_eq!((web.read(after.open).value, web.usage(after.memory).current), (0, 0));
}

#[test]
fn groups_that_exist_are_added_to() {
    let directory = Directory::new("added");
    let before = metered();
    before.tree.get_or_create("/web").expect("room").add(before.requests, 5);
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    before.tree.checkpoint(&mut file).expect("a disk");
    drop(file);

    let after = metered();
    after.tree.get_or_create("/web").expect("room").add(after.requests, 2);
    let mut file = CheckpointFile::open(directory.file()).expect("unlocked");
    after.tree.restore(&mut file).expect("whole");
    assert_eq!(exact(after.tree.root(), after.requests), 7);
}

#[test]
fn a_second_restore_is_refused() {
    let directory = Directory::new("second");
    let tree = metered().tree;
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    tree.checkpoint(&mut file).expect("a disk");
    let error = tree.restore(&mut file).expect_err("it has these totals itself");
    assert!(error.is_already_restored(), "{error}");
    drop(file);

    let mut file = CheckpointFile::open(directory.file()).expect("unlocked");
    let error = CheckpointFile::open(directory.file()).expect_err("it is in use");
    assert!(error.is_locked() && error.to_string().contains("totals"), "{error}");
    tree.restore(&mut file).expect("whole").expect("there is one");
    let error = tree.restore(&mut file).expect_err("a second time");
    assert!(error.is_already_restored() && error.to_string().contains("twice"), "{error}");
}

#[test]
fn totals_not_restored_are_not_overwritten() {
    let directory = Directory::new("unrestored");
    let before = metered();
    before.tree.root().add(before.requests, 3);
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    before.tree.checkpoint(&mut file).expect("a disk");
    drop(file);

    let after = metered();
    let mut file = CheckpointFile::open(directory.file()).expect("unlocked");
    let error = after.tree.checkpoint(&mut file).expect_err("three requests would be lost");
    assert!(error.is_not_restored() && error.to_string().contains("restore them"), "{error}");
    after.tree.restore(&mut file).expect("untouched").expect("there is one");
    assert_eq!(exact(after.tree.root(), after.requests), 3);
}

/// A process that saved its last checkpoint leaves nothing unknown.
#[test]
fn a_clean_end_leaves_nothing_unknown() {
    let directory = Directory::new("complete");
    let restored = || {
        let mut file = CheckpointFile::open(directory.file()).expect("unlocked");
        let tree = metered().tree;
        (tree.restore(&mut file).expect("whole").expect("there is one"), tree, file)
    };
    let file = CheckpointFile::open(directory.file()).expect("a directory");
    metered().tree.checkpoint_last(file).expect("a disk");
    let (found, tree, mut file) = restored();
    assert!(found.is_complete() && found.to_string() == "1 groups restored", "{found}");
    let age = SystemTime::now().duration_since(found.at()).expect("not in the future");
    assert!(age < Duration::from_secs(3600), "{age:?}");
    tree.checkpoint(&mut file).expect("a disk");
    drop(file);
    let (found, ..) = restored();
    assert!(!found.is_complete() && found.to_string().contains("unknown"), "{found}");
}

/// Restores a file with this content, asserts that nothing was added, and returns the error.
fn refused(
    directory: &Directory,
    content: &[u8],
    after: &Metered,
) -> submeter::checkpoint::CheckpointError {
    fs::write(directory.file(), content).expect("writable");
    let mut file = CheckpointFile::open(directory.file()).expect("unlocked");
    let error = after.tree.restore(&mut file).expect_err("not a checkpoint of this tree");
    assert!(error.to_string().contains("totals"), "{error}");
    assert_eq!(after.tree.group_count(), 1, "{error}");
    assert_eq!(exact(after.tree.root(), after.requests), 0, "{error}");
    error
}

#[test]
fn a_cut_or_damaged_file_is_refused_whole() {
    let directory = Directory::new("damaged");
    let before = metered();
    work(&before, &mut fastrand::Rng::with_seed(1), 0..60);
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    before.tree.checkpoint(&mut file).expect("a disk");
    drop(file);
    let whole = fs::read(directory.file()).expect("written");

    let after = metered();
    for length in 0..whole.len() - 1 {
        let error = refused(&directory, &whole[..length], &after);
        assert!(error.is_damaged(), "{length} of {}: {error}", whole.len());
    }
    let text = String::from_utf8(whole).expect("JSON");
    for (from, to) in [
        ("checkpoint-1", "checkpoint-9"),
        ("\"epoch\":", "\"epok\":"),
        ("\"path\":\"/a\"", "\"path\":3"),
        ("{\"requests\":", "{\"replies\":"),
        ("\"latency\":{", "\"latencies\":{"),
        ("\"id\":", "\"di\":"),
        ("\"epoch\":\"", "\"epoch\":\"-"),
        ("\"counts\":[[", "\"counts\":[[99999,1],["),
        ("\"sum\":", "\"sum\":-"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let error = refused(&directory, text.replacen(from, to, 1).as_bytes(), &after);
        assert!(error.is_damaged() && error.to_string().contains("line"), "{to}: {error}");
    }
}

#[test]
fn a_metric_the_schema_lacks_is_refused_by_name() {
    let directory = Directory::new("schema");
    let before = metered();
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    before.tree.get_or_create("/web").expect("room").add(before.requests, 5);
    before.tree.checkpoint(&mut file).expect("a disk");
    drop(file);
    let text = fs::read_to_string(directory.file()).expect("written");
    let after = metered();
    for (from, to, problem) in [
        ("requests", "answers", "lacks"),
        ("\"kind\":\"counter\"", "\"kind\":\"histogram\"", "which is a counter"),
        ("\"unit\":\"bytes\"", "\"unit\":\"count\"", "unit is bytes"),
        ("[256,68719476736]", "[512,137438953472]", "buckets"),
    ] {
        assert!(text.contains(from), "{from} in {text}");
        let error = refused(&directory, text.replace(from, to).as_bytes(), &after);
        assert!(error.is_schema() && error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn groups_that_do_not_fit_are_all_taken_back() {
    let directory = Directory::new("full");
    let before = metered();
    for n in 0..9 {
        let group = before.tree.get_or_create(&format!("/t/{n}")).expect("room");
        group.add(before.requests, 1);
    }
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    before.tree.checkpoint(&mut file).expect("a disk");
    drop(file);

    let small = Tree::builder(before.tree.schema().clone()).groups_max(8).build().expect("room");
    small.get_or_create("/t/3").expect("room").add(before.requests, 1);
    let mut file = CheckpointFile::open(directory.file()).expect("unlocked");
    let error = small.restore(&mut file).expect_err("11 of 8");
    assert!(error.to_string().contains("groups_max"), "{error}");
    let paths: Vec<String> =
        small.snapshot().groups().iter().map(|group| group.path().to_owned()).collect();
    assert_eq!(paths, ["/", "/t", "/t/3"]);
    assert_eq!(exact(small.root(), before.requests), 1);
}

#[test]
fn a_save_that_fails_leaves_the_file_as_it_was() {
    let directory = Directory::new("failed");
    let Metered { tree, requests, .. } = metered();
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    tree.checkpoint(&mut file).expect("a disk");
    let old = fs::read(directory.file()).expect("written");
    tree.root().add(requests, 1);
    // A directory in place of the temporary file.
    let beside = directory.0.join("totals.new");
    fs::create_dir(&beside).expect("writable");
    let error = tree.checkpoint(&mut file).expect_err("a directory is in the way");
    assert!(error.to_string().starts_with("cannot write checkpoint"), "{error}");
    assert_eq!(fs::read(directory.file()).expect("still there"), old);
    fs::remove_dir(&beside).expect("empty");
    tree.checkpoint(&mut file).expect("nothing is in the way");
    assert_eq!(file.sequence(), 2, "of those that succeeded");

    let nowhere = directory.0.join("no/such/directory");
    let error = CheckpointFile::open(&nowhere).expect_err("no directory");
    assert!(error.to_string().contains("no/such/directory"), "{error}");
}

const CRASHING: &str = "SUBMETER_CHECKPOINT_CRASH";

/// The process that the next test kills: counts, saves, and reports what it has saved, in an
/// endless loop.
#[test]
fn counts_and_saves_until_it_is_killed() {
    let Some(path) = std::env::var_os(CRASHING) else { return };
    let Metered { tree, requests, .. } = metered();
    let mut file = CheckpointFile::open(Path::new(&path)).expect("the process before is dead");
    tree.restore(&mut file).expect("whole");
    let mut counted = exact(tree.root(), requests);
    loop {
        tree.get_or_create(&format!("/t/{}", counted % 7)).expect("room").add(requests, 1);
        counted += 1;
        tree.checkpoint(&mut file).expect("a disk");
        // Also by an atomic rename: this never reports more than was saved.
        let aside = format!("{}.saved.new", path.display());
        fs::write(&aside, counted.to_string()).expect("a disk");
        fs::rename(&aside, format!("{}.saved", path.display())).expect("a disk");
    }
}

#[test]
fn a_kill_at_any_moment_loses_nothing_saved() {
    let directory = Directory::new("killed");
    let path = directory.file();
    let saved = || {
        let text = fs::read_to_string(directory.0.join("totals.saved"));
        text.map_or(0, |text| text.parse::<u64>().expect("renamed whole"))
    };
    let mut rng = fastrand::Rng::with_seed(5);
    for round in 0..12 {
        let before = saved();
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "checkpoint::counts_and_saves_until_it_is_killed", "--nocapture"])
            .env(CRASHING, &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("a process");
        while saved() <= before {
            assert!(child.try_wait().expect("a child").is_none(), "round {round}: it ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(rng.u64(..5_000)));
        child.kill().expect("a child");
        child.wait().expect("a child");

        let after = metered();
        let mut file = CheckpointFile::open(&path).expect("the lock ended with the process");
        after.tree.restore(&mut file).expect("whole").expect("there is one");
        let restored = exact(after.tree.root(), after.requests);
        // One more, if it was killed between saving and reporting that.
        let said = saved();
        assert!((said..=said + 1).contains(&restored), "round {round}: {restored}, said {said}");
        drop(file);
    }
}

/// Adds up totals as a reader of many processes does: the latest of each epoch.
#[derive(Default)]
struct Reader {
    /// By epoch, the sequence and the root's count.
    last: BTreeMap<u64, (u64, u64)>,
}

impl Reader {
    fn read(&mut self, tree: &Tree) {
        for totals in tree.totals() {
            let last = self.last.entry(totals.epoch).or_default();
            *last = (*last).max((totals.sequence, totals.groups[0].counters[0]));
        }
    }

    fn sum(&self) -> u64 {
        self.last.values().map(|(_, n)| n).sum()
    }
}

/// A sum of totals has each count once, however processes end.
#[test]
fn added_up_totals_have_each_count_once() {
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..40 {
        let directory = Directory::new(&format!("once-{round}"));
        let mut reader = Reader::default();
        // For each process, what was read and what was saved.
        let mut known: Vec<(u64, u64)> = Vec::new();
        for _ in 0..8 {
            let Metered { tree, requests, .. } = metered();
            let mut file = CheckpointFile::open(directory.file()).expect("a directory");
            let restored = tree.restore(&mut file).expect("whole");
            let saved = known.iter().filter(|(_, saved)| *saved > 0).count();
            assert_eq!((tree.totals().len(), restored.is_some()), (1 + saved, saved > 0));
            let before: u64 = known.iter().map(|(read, saved)| *read.max(saved)).sum();
            let (mut counted, mut read, mut saved) = (0, 0, 0);
            // Some are never read, some never save.
            let (reads, saves) = (rng.u8(..3) > 0, rng.u8(..4) > 0);
            for _ in 0..12 {
                let n = rng.u64(1..100);
                let path = ["/a", "/a/b", "/c"][rng.usize(..3)];
                tree.get_or_create(path).expect("room").add(requests, n);
                counted += n;
                if rng.u8(..4) == 0 {
                    drop(tree.get("/a/b").map(|group| group.kill()));
                }
                if reads && rng.u8(..4) == 0 {
                    reader.read(&tree);
                    read = counted;
                    assert_eq!(reader.sum(), before + read, "nothing twice, nothing lost");
                }
                if saves && rng.u8(..4) == 0 {
                    tree.checkpoint(&mut file).expect("saved");
                    saved = counted;
                }
            }
            known.push((read, saved));
        }
    }
}

#[test]
fn restored_totals_say_whose_and_whether_all() {
    let directory = Directory::new("whose");
    let first = metered();
    let file = CheckpointFile::open(directory.file()).expect("a directory");
    let web = first.tree.get_or_create("/acme/web").expect("room");
    web.add(first.requests, 5);
    web.record(first.latency, 1);
    let before = first.tree.totals().remove(0);
    first.tree.checkpoint_last(file).expect("saved");

    let second = metered();
    let mut file = CheckpointFile::open(directory.file()).expect("a directory");
    second.tree.restore(&mut file).expect("whole").expect("a checkpoint");
    second.tree.get_or_create("/acme/web").expect("room").add(second.requests, 2);
    let totals = second.tree.totals();
    let [own, restored] = totals.as_slice() else { panic!("two: {totals:?}") };
    assert_eq!((own.follows.as_slice(), own.is_complete), (&[before.epoch][..], false));
    assert_eq!((restored.epoch, restored.is_complete), (before.epoch, true));
    assert!(restored.sequence > before.sequence);
    assert_eq!(restored.groups, before.groups);
    let counted = |totals: &submeter::Totals| {
        let counters =
            totals.groups.iter().map(|group| (group.path.to_string(), group.counters[0]));
        counters.collect::<Vec<_>>()
    };
    let all = |n: u64| ["/", "/acme", "/acme/web"].map(|path| (path.to_owned(), n)).to_vec();
    assert_eq!((counted(own), counted(restored)), (all(2), all(5)));
}

/// Returns the nonzero values of a scrape, by series.
fn scraped(export: &Export, tree: &Tree) -> BTreeMap<String, String> {
    let mut text = String::new();
    export.write(tree, &mut text).expect("a String has room");
    let of_a_group = |line: &&str| !line.starts_with('#') && line.contains("{group=");
    let lines = text.lines().filter(of_a_group);
    let pairs = lines.map(|line| line.rsplit_once(' ').expect("a series and its value"));
    let pairs = pairs.map(|(series, value)| (series.to_owned(), value.to_owned()));
    pairs.filter(|(_, value)| value != "0").collect()
}

#[test]
fn scrapes_are_without_what_was_restored() {
    let directory = Directory::new("scrapes");
    let whole = || Export::new("app").every_group();
    let shallow = || Export::new("app").depth(1);
    let sums = || Export::new("app").subtrees();
    for (at, export) in [whole, shallow, sums].into_iter().enumerate() {
        for is_scraped_before in [false, true] {
            let path = directory.0.join(format!("totals-{at}-{is_scraped_before}"));
            let former = metered();
            for group in ["/a", "/a/b", "/a/b/gone", "/c"] {
                let group = former.tree.get_or_create(group).expect("within limits");
                group.add(former.requests, 1_000);
                group.add(former.sent, 77);
                group.record(former.latency, 3_000);
            }
            former.tree.checkpoint(&mut CheckpointFile::open(&path).expect("new")).expect("room");

            let [restored, fresh] = [metered(), metered()];
            let exports = [export(), export()];
            let count = |n: u64| {
                for metered in [&restored, &fresh] {
                    for (group, n) in [("/a", n), ("/a/b", 2 * n), ("/d", 3 * n)] {
                        let group = metered.tree.get_or_create(group).expect("within limits");
                        group.add(metered.requests, n);
                        group.record(metered.latency, n);
                    }
                }
            };
            let compare = || {
                let [restored, fresh] = [(&exports[0], &restored.tree), (&exports[1], &fresh.tree)]
                    .map(|(export, tree)| scraped(export, tree));
                assert_eq!(restored, fresh, "of export {at}");
                restored
            };
            count(1);
            if is_scraped_before {
                compare();
            }
            let mut file = CheckpointFile::open(&path).expect("saved above");
            restored.tree.restore(&mut file).expect("of this schema").expect("one");
            compare();
            count(10);
            let said = compare();
            let of_a = |said: &BTreeMap<String, String>| {
                said.get("app_requests_total{group=\"/a\"}").cloned()
            };
            assert!(of_a(&said).is_some_and(|n| !n.starts_with("10")), "{said:?}");
            // The remaining counts of groups that end go to the group above.
            for metered in [&restored, &fresh] {
                let gone = metered.tree.get_or_create("/a/b/gone").expect("within limits");
                gone.add(metered.requests, 5);
                gone.kill().expect("it has no children");
                metered.tree.get("/a/b").expect("above").kill().expect("no more children");
            }
            count(100);
            compare();
        }
    }
}
