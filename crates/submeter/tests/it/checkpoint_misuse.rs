//! Checkpoints by another tree, under another name, and of paths that are not files.

use std::fs;
use std::path::PathBuf;

use submeter::checkpoint::CheckpointFile;
use submeter::{Count, Counter, Schema, Tree};

use super::checkpoint::Directory;
use crate::work::burn_ms;

fn open(directory: &Directory) -> CheckpointFile {
    CheckpointFile::open(directory.file()).expect("a directory")
}

fn tree() -> (Tree, Counter<Count>) {
    let mut schema = Schema::builder();
    let requests = schema.counter("requests", "");
    (Tree::new(schema.build().expect("valid")).expect("address space"), requests)
}

#[test]
fn a_tree_overwrites_nothing_of_anothers_file() {
    let directory = Directory::new("another-tree");
    let (first, requests) = tree();
    first.root().add(requests, 1_000);
    let mut file = open(&directory);
    first.checkpoint(&mut file).expect("a disk");
    let (second, _) = tree();
    for _ in 0..2 {
        let error = second.checkpoint(&mut file).expect_err("the first has them");
        assert!(error.is_not_restored() && error.to_string().contains("another file"), "{error}");
    }
    first.root().add(requests, 1);
    first.checkpoint(&mut file).expect("its own");
    drop(file);

    let mut file = open(&directory);
    let (third, requests) = tree();
    third.restore(&mut file).expect("whole").expect("there is one");
    let error = first.checkpoint(&mut file).expect_err("the third has them now");
    assert!(error.is_not_restored(), "{error}");
    third.checkpoint(&mut file).expect("its own");
    assert_eq!(third.root().sum(requests), 1_001);
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_is_the_file_that_it_leads_to() {
    let directory = Directory::new("link");
    let link = directory.0.join("link");
    std::os::unix::fs::symlink("totals", &link).expect("a directory");
    let (first, requests) = tree();
    first.root().add(requests, 7);
    // Even before there is a file.
    let mut by_link = CheckpointFile::open(&link).expect("a directory");
    let file = || CheckpointFile::open(directory.file());
    assert!(file().expect_err("the other name has it").is_locked());
    first.checkpoint(&mut by_link).expect("a disk");
    drop(by_link);
    assert!(link.is_symlink());

    let (second, requests) = tree();
    second.restore(&mut file().expect("nobody has it")).expect("whole").expect("there is one");
    assert_eq!(second.root().sum(requests), 7);
    let other = file().expect("nobody has it");
    assert!(CheckpointFile::open(&link).expect_err("the other name has it").is_locked());
    drop(other);
}

/// A path that is not a file is refused before anything is left beside it.
#[test]
fn what_is_no_file_leaves_nothing_beside_it() {
    let directory = Directory::new("no-file");
    let inner = directory.0.join("inner");
    fs::create_dir(&inner).expect("a directory");
    for path in [inner, PathBuf::new(), PathBuf::from("/"), directory.0.join("..")] {
        let error = CheckpointFile::open(&path).expect_err("no file").to_string();
        assert!(error.contains("is a directory"), "{}: {error}", path.display());
    }
    assert_eq!(fs::read_dir(&directory.0).expect("a directory").count(), 1);
}

#[test]
fn a_damaged_file_says_where_and_how() {
    let directory = Directory::new("where");
    let (before, requests) = tree();
    before.get_or_create("/a/b").expect("room").add(requests, 5);
    before.checkpoint(&mut open(&directory)).expect("a disk");
    let whole = fs::read_to_string(directory.file()).expect("written");
    let second = whole.find('\n').expect("lines") + 1;
    let edited = |from: &str, to: &str| whole.replace(from, to);
    for (content, says) in [
        (String::new(), "line 1: it is empty: the file is damaged"),
        (
            whole[..second + 9].to_owned(),
            "line 2: not JSON (EOF while parsing a string at column 9)",
        ),
        (edited("\"/a\"", "\"/..\""), "line 3: not a group"),
        (edited("\"/a\"", "\"/a/\""), "line 3: not a group"),
        (edited("\"/a\"", "\"/\""), "line 3: not a group"),
        (edited("\"/a\"", "\"/c\""), "line 4: not a group"),
    ] {
        fs::write(directory.file(), content).expect("a disk");
        let (after, _) = tree();
        let error = after.restore(&mut open(&directory)).expect_err(says);
        assert!(error.is_damaged() && error.to_string().contains(says), "{says}: {error}");
        assert_eq!(after.group_count(), 1, "{says}");
    }
}

#[test]
fn restored_cpu_time_is_not_that_of_this_process() {
    let directory = Directory::new("cpu-balance");
    let metered = || {
        let mut schema = Schema::builder();
        let cpu = schema.cpu_time("cpu", "");
        (Tree::new(schema.build().expect("valid")).expect("address space"), cpu)
    };
    let (before, cpu) = metered();
    before.get_or_create("/web").expect("room").add(cpu, 1 << 40);
    before.checkpoint(&mut open(&directory)).expect("a disk");

    let (after, cpu) = metered();
    after.restore(&mut open(&directory)).expect("whole").expect("there is one");
    after.get("/web").expect("restored").run(|| burn_ms(5));
    let balance = after.cpu_balance().expect("declared");
    let charged = after.root().sum(cpu) - (1 << 40);
    assert!((1..1 << 40).contains(&balance.attributed_ns), "{balance:?}");
    assert!(balance.attributed_ns <= charged && charged > 1_000_000, "{balance:?}, {charged}");
}
