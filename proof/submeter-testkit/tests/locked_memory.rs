//! Locked memory, limits and core dumps cover the memory in use, not the reserved address space.
//!
//! Each test starts itself again in a process of its own, whose memory it locks or limits.
#![cfg(all(target_os = "linux", not(miri)))]
#![expect(unsafe_code, reason = "locks memory, sets limits, and ends a process with a dump")]

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock};

use submeter::{Buckets, Count, Counter, Group, Histogram, Nanoseconds, Schema, Tree};

/// Far more than the trees of these tests use, far less than they reserve.
const SMALL: u64 = 64 << 20;

fn is_child() -> bool {
    std::env::var_os("SUBMETER_TEST_CHILD").is_some()
}

/// Held by a test that changes settings of the machine; shared by tests that rely on them.
static MACHINE: RwLock<()> = RwLock::new(());

/// Runs `test` again in a new process, after calling `prepare` there, which must return 0.
fn again(test: &str, prepare: impl Fn() -> i32 + Send + Sync + 'static) -> Output {
    let _unchanged = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    again_holding(test, &[], prepare)
}

/// Makes the heap large at once, so that a limit is met by a tree's rows, which report it, and not
/// by a small allocation, which ends the process.
const LARGE_HEAP: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TOP_PAD_", "33554432")];

/// The same as `again`, with a limit on data.
fn again_with_little_data(test: &str) -> Output {
    let _unchanged = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    again_holding(test, &LARGE_HEAP, || set_limit(libc::RLIMIT_DATA, 2 * SMALL))
}

/// The same as `again`, for a test that holds `MACHINE`.
fn again_holding(
    test: &str,
    variables: &[(&str, &str)],
    prepare: impl Fn() -> i32 + Send + Sync + 'static,
) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env("SUBMETER_TEST_CHILD", "1").envs(variables.iter().copied()).current_dir(scratch());
    let prepare = move || {
        // SAFETY: 1. The call takes a number; the signal ends a child that hangs.
        unsafe { libc::alarm(300) };
        match prepare() {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: 1. The closure does only what a child of threads may: system calls on memory that
    // exists already.
    unsafe { command.pre_exec(prepare) };
    command.output().expect("starts")
}

/// Returns the directory for cores: cargo's, unless the program was copied to another machine.
fn scratch() -> PathBuf {
    let built_here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if built_here.is_dir() { built_here.to_owned() } else { std::env::temp_dir() }
}

/// Returns a child's output; panics unless its test passed.
fn passed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}: {text}", output.status);
    text.lines().filter(|line| line.starts_with("skipped")).for_each(|line| eprintln!("{line}"));
    text
}

fn set_limit(resource: libc::__rlimit_resource_t, bytes: u64) -> i32 {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: 1. The structure is live, and only read.
    unsafe { libc::setrlimit(resource, &raw const limit) }
}

/// Locks memory; where that is not allowed, prints why.
fn lock(flags: i32) -> bool {
    // SAFETY: 1. The call takes a number, and changes no contents.
    let locked = unsafe { libc::mlockall(flags) } == 0;
    if !locked {
        let error = std::io::Error::last_os_error();
        println!(
            "skipped: memory cannot be locked here: {error}; run as root, or ulimit -l unlimited"
        );
    }
    locked
}

/// Returns the bytes that are resident, and those that are private and writable, which strict
/// overcommit and `RLIMIT_DATA` count.
fn resident_and_writable() -> (u64, u64) {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).expect("a field").parse().expect("a number");
    let maps = fs::read_to_string("/proc/self/maps").expect("Linux");
    let writable = maps.lines().filter(|line| line.contains(" rw-p ")).map(|line| {
        let (from, to) = line.split(' ').next().and_then(|r| r.split_once('-')).expect("a range");
        let address = |text| u64::from_str_radix(text, 16).expect("an address");
        address(to) - address(from)
    });
    (pages * submeter_sys::memory::page_size() as u64, writable.sum())
}

fn schema() -> (Schema, Counter<Count>) {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests");
    (schema.build().expect("valid"), requests)
}

/// Makes a tree and uses it as a program does.
fn used_tree() -> Tree {
    let (schema, requests) = schema();
    let tree = Tree::new(schema).expect("address space");
    let groups: Vec<_> =
        (0..2000).map(|n| tree.get_or_create(&format!("/{}/{n}", n % 7)).expect("room")).collect();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| groups.iter().for_each(|group| group.add(requests, 1)));
        }
    });
    assert_eq!(tree.root().sum(requests), 3 * 2000);
    tree
}

/// Creates trees until one is refused; returns how many there are, and the refusal.
fn trees_until_refused() -> (usize, String) {
    let mut trees = vec![used_tree()];
    let (schema, requests) = schema();
    // Each tree is below the limit; all of them together are not.
    let error = (0..10_000).find_map(|_| match Tree::new(schema.clone()) {
        Ok(tree) => {
            trees.push(tree);
            None
        }
        Err(error) => Some(error.to_string()),
    });
    // The existing trees still work.
    trees[1].root().add(requests, 1);
    assert_eq!(trees[1].root().sum(requests), 1);
    (trees.len(), error.expect("refused in the end"))
}

fn assert_small(when: &str) {
    let (resident, writable) = resident_and_writable();
    assert!(resident < 2 * SMALL, "{} MiB resident {when}", resident >> 20);
    assert!(writable < 2 * SMALL, "{} MiB writable {when}", writable >> 20);
}

#[test]
fn a_tree_opens_what_it_uses_and_no_more() {
    if is_child() {
        let tree = used_tree();
        assert_small("with a tree");
        drop(tree);
        return;
    }
    passed(&again("a_tree_opens_what_it_uses_and_no_more", || 0));
}

/// Locked memory, before or after, holds what is used and no more.
#[test]
fn locked_memory_is_what_is_used() {
    if is_child() {
        if !lock(libc::MCL_CURRENT) {
            return;
        }
        // Before any tree: every later mapping is locked, and thus resident.
        assert!(lock(libc::MCL_FUTURE));
        let before = used_tree();
        assert_small("after MCL_FUTURE");
        // With trees, which then grow.
        assert!(lock(libc::MCL_CURRENT | libc::MCL_FUTURE));
        assert_small("after MCL_CURRENT");
        let after = used_tree();
        assert_small("with another tree");
        drop((before, after));
        return;
    }
    let name = "locked_memory_is_what_is_used";
    passed(&again(name, unlimited));
}

/// Makes groups with a histogram, which take 1 KiB of each row, and lets each count a request: the
/// words of 20,000 groups are 200 MiB in the rows of two CPUs.
fn many(tree: &Tree, requests: Counter<Count>) -> Vec<Group> {
    let create = |n| tree.get_or_create(&format!("/{n}")).expect("room");
    let groups: Vec<_> = (0..20_000).map(create).collect();
    groups.iter().for_each(|group| group.add(requests, 1));
    groups
}

fn tree_with_histogram() -> (Tree, Counter<Count>, Histogram<Nanoseconds>) {
    let mut schema = Schema::builder();
    let requests = schema.counter::<Count>("requests", "Requests");
    let latency = schema.histogram::<Nanoseconds>("latency", "Latency", Buckets::LATENCY_NS);
    (Tree::new(schema.build().expect("valid")).expect("address space"), requests, latency)
}

fn assert_resident(when: &str) {
    let (resident, _) = resident_and_writable();
    assert!(resident < 2 * SMALL, "{} MiB resident {when}", resident >> 20);
}

/// Returns how many addresses are locked.
fn locked() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Memory that is locked on fault holds what was written, and no more.
#[test]
fn memory_locked_on_fault_is_what_was_written() {
    let name = "memory_locked_on_fault_is_what_was_written";
    if is_child() {
        let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
        let (tree, requests, _) = tree_with_histogram();
        let before = many(&tree, requests);
        if !lock(flags) {
            return;
        }
        assert_resident("after MCL_ONFAULT");
        let (tree, requests, _) = tree_with_histogram();
        drop((before, many(&tree, requests)));
        assert_resident("with more groups");
        return;
    }
    passed(&again(name, unlimited));
}

/// A tree in locked memory holds what was written and no more.
#[test]
fn a_locked_tree_holds_what_was_written_only() {
    if cfg!(submeter_portable) {
        eprintln!("skipped: rows are locked as they are written on Linux alone");
        return;
    }
    let name = "a_locked_tree_holds_what_was_written_only";
    if is_child() {
        if !lock(libc::MCL_CURRENT | libc::MCL_FUTURE) {
            return;
        }
        let before = locked();
        let (tree, requests, latency) = tree_with_histogram();
        let groups = many(&tree, requests);
        assert_resident("with groups");
        assert!(locked() - before > 1 << 30, "the rows are locked, as all that is mapped");
        // What is written is locked, and is returned with its groups all the same.
        groups.iter().for_each(|group| (0..40).for_each(|n| group.record(latency, 1 << n)));
        let (written, _) = resident_and_writable();
        groups.into_iter().for_each(|group| drop(group.kill()));
        tree.flush();
        let (left, _) = resident_and_writable();
        assert!(left < written - (SMALL >> 3), "{} of {} MiB left", left >> 20, written >> 20);
        return;
    }
    passed(&again(name, unlimited));
}

/// Lets a child lock memory; where that is refused, the limit does not apply, or the test prints
/// that it is skipped.
fn unlimited() -> i32 {
    let _ = set_limit(libc::RLIMIT_MEMLOCK, libc::RLIM_INFINITY);
    0
}

/// A limit on locked memory refuses a tree with the remedy.
#[test]
fn a_limit_on_locked_memory_refuses_a_tree() {
    if is_child() {
        // Before the lock: the probe starts threads, whose stacks would count.
        let _ = submeter::backend();
        if !lock(libc::MCL_FUTURE) {
            return;
        }
        let error = Tree::new(schema().0).expect_err("more than may be locked").to_string();
        assert!(error.contains("RLIMIT_MEMLOCK") && error.contains("mlockall"), "{error}");
        return;
    }
    let name = "a_limit_on_locked_memory_refuses_a_tree";
    let output = again(name, || {
        if set_limit(libc::RLIMIT_MEMLOCK, 4 << 20) != 0 {
            return -1;
        }
        // Root is exempt from the limit unless the capability leaves the bounding set. Other users
        // do not have it, and are refused this call.
        const CAP_IPC_LOCK: libc::c_ulong = 14;
        // SAFETY: 1. The call takes numbers, and changes what this process may do.
        let _ = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0) };
        0
    });
    passed(&output);
}

/// A limit on addresses refuses a tree with the remedy.
#[test]
fn a_limit_on_addresses_refuses_a_tree() {
    if is_child() {
        let error = Tree::new(schema().0).expect_err("more than there is").to_string();
        assert!(error.contains("RLIMIT_AS"), "{error}");
        return;
    }
    let name = "a_limit_on_addresses_refuses_a_tree";
    passed(&again(name, || set_limit(libc::RLIMIT_AS, 1 << 30)));
}

/// A limit on data counts what a tree uses, and refuses the rest with the remedy.
#[test]
fn a_limit_on_data_is_refused_with_the_remedy() {
    if is_child() {
        let (trees, error) = trees_until_refused();
        assert!(trees > 5 && error.contains("RLIMIT_DATA"), "{trees} trees: {error}");
        return;
    }
    let name = "a_limit_on_data_is_refused_with_the_remedy";
    passed(&again_with_little_data(name));
}

/// A tree that may not grow says so, and continues with what it has.
#[test]
fn a_tree_that_may_not_grow_goes_on() {
    if is_child() {
        let mut schema = Schema::builder();
        let counters: Vec<Counter<Count>> =
            (0..400).map(|n| schema.counter(&format!("c{n}"), "A counter")).collect();
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        // The process's other needs, such as a flush's lists: how much of the limit a refusal
        // leaves depends on how large the tree's last step was.
        let beside = vec![1_u8; 1 << 20];
        let mut groups = Vec::new();
        let error = loop {
            match tree.create(&format!("/{}", groups.len())) {
                Ok(group) => {
                    counters.iter().for_each(|&counter| group.add(counter, 1));
                    groups.push(group);
                }
                Err(error) => break error,
            }
        };
        drop(beside);
        assert!(error.is_out_of_memory(), "{error}");
        assert!(error.to_string().contains("RLIMIT_DATA"), "{error}");
        let (len, last) = (groups.len() as u64, counters[counters.len() - 1]);
        assert!(len > 100, "{len}");
        assert_eq!(tree.root().sum(last), len);
        groups.iter().for_each(|group| group.add(last, 1));
        assert_eq!(tree.root().sum(last), 2 * len);
        // Killed groups make room.
        groups.drain(..50).for_each(|group| drop(group.kill()));
        tree.flush();
        let again = (0..50).map(|n| tree.create(&format!("/again{n}")).expect("room"));
        again.for_each(|group| group.add(last, 1));
        assert_eq!(tree.root().sum(last), 2 * len + 50);
        return;
    }
    let name = "a_tree_that_may_not_grow_goes_on";
    passed(&again_with_little_data(name));
}

/// Many trees leave a process the mappings that it may have.
#[test]
fn many_trees_leave_a_process_its_mappings() {
    if is_child() {
        let mappings = || fs::read_to_string("/proc/self/maps").expect("Linux").lines().count();
        let (before, many) = (mappings(), 60);
        let make = |_| {
            let (schema, requests) = schema();
            let tree = Tree::builder(schema).simulated_cpus(64).build().expect("addresses");
            tree.get_or_create("/a/b").expect("room").add(requests, 1);
            (tree, requests)
        };
        let trees: Vec<_> = (0..many).map(make).collect();
        let most = mappings();
        assert!(most < before + 14_000, "{before}, with {many} trees {most}");
        assert!(trees.iter().all(|(tree, requests)| tree.root().sum(*requests) == 1));
        // Dropped trees make room for others.
        drop(trees);
        let tree = make(0);
        assert!(mappings() > before + 100, "opened in parts");
        drop(tree);
        return;
    }
    passed(&again("many_trees_leave_a_process_its_mappings", || 0));
}

#[test]
fn a_core_dump_holds_what_is_used_and_no_more() {
    if is_child() {
        let _tree = used_tree();
        std::process::abort();
    }
    // Before it is read: another test of this program changes it.
    let _unchanged = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("Linux");
    if pattern.trim() != "core" {
        eprintln!("skipped: core dumps do not go to a file here: set kernel.core_pattern to core");
        return;
    }
    let output = again_holding("a_core_dump_holds_what_is_used_and_no_more", &[], || {
        set_limit(libc::RLIMIT_CORE, libc::RLIM_INFINITY)
    });
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    if !output.status.core_dumped() {
        eprintln!("skipped: no core was dumped: raise the hard limit (ulimit -H -c unlimited)");
        return;
    }
    let uses_pid = fs::read_to_string("/proc/sys/kernel/core_uses_pid").expect("Linux");
    let dumped = fs::read_dir(scratch()).expect("readable").find_map(|entry| {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str())?;
        let with_pid = uses_pid.trim() == "1" && name.starts_with("core.");
        (name == "core" || with_pid).then_some(path)
    });
    let dumped = dumped.expect("a core");
    let bytes = fs::metadata(&dumped).expect("exists").len();
    fs::remove_file(&dumped).expect("ours");
    // A dump into a pipe includes all bytes, zeroes too.
    assert!(bytes < 2 * SMALL, "{} MiB", bytes >> 20);
}

/// A changed setting of the machine. Dropping it restores the old value.
struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    fn set(path: &'static str, value: &str) -> Setting {
        let before = fs::read_to_string(path).expect("Linux");
        fs::write(path, value).expect("a machine of its own");
        Setting { path, before }
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let _ = fs::write(self.path, self.before.trim());
    }
}

/// Returns whether tests may change settings of the whole machine; prints why not.
fn machine_is_ours() -> bool {
    let own = std::env::var_os("SUBMETER_TORTURE_MACHINE").is_some_and(|value| value == "own");
    if !own {
        eprintln!("skipped: settings of the whole machine: proof/worlds/run boots one of its own");
    }
    own
}

/// Returns a figure of /proc/meminfo, in bytes.
fn meminfo(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    let kib: u64 =
        line.trim_start_matches(':').trim_end_matches("kB").trim().parse().expect("a number");
    kib << 10
}

/// Strict overcommit counts what a tree uses, and refuses the rest with the remedy.
#[test]
fn strict_overcommit_counts_only_what_is_used() {
    if is_child() {
        let (trees, error) = trees_until_refused();
        assert!(trees > 5 && error.contains("vm.overcommit_memory"), "{trees} trees: {error}");
        return;
    }
    if !machine_is_ours() {
        return;
    }
    let _ours = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let limit = (meminfo("Committed_AS") + 4 * SMALL) >> 10;
    let _settings = [
        Setting::set("/proc/sys/vm/overcommit_kbytes", &limit.to_string()),
        Setting::set("/proc/sys/vm/overcommit_memory", "2"),
    ];
    let name = "strict_overcommit_counts_only_what_is_used";
    passed(&again_holding(name, &LARGE_HEAP, || 0));
}

#[test]
fn a_piped_core_dump_holds_what_is_used_only() {
    if is_child() {
        let _tree = used_tree();
        std::process::abort();
    }
    if !machine_is_ours() {
        return;
    }
    let _ours = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let file = "/tmp/submeter-piped-core";
    let pattern: &'static str = "|/bin/dd of=/tmp/submeter-piped-core";
    let _settings = [
        Setting::set("/proc/sys/kernel/core_pattern", pattern),
        // Makes the process wait for the reader of its core, so that the file is complete.
        Setting::set("/proc/sys/kernel/core_pipe_limit", "4"),
    ];
    let output = again_holding("a_piped_core_dump_holds_what_is_used_only", &[], || 0);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    assert!(output.status.core_dumped(), "{output:?}");
    let bytes = fs::metadata(file).expect("written by dd").len();
    fs::remove_file(file).expect("ours");
    assert!((1 << 20..2 * SMALL).contains(&bytes), "{bytes} bytes");
}
