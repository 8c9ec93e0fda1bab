//! The command under a filter that refuses what Docker's default profile or systemd's
//! `@system-service` refuses, and every other system call that it does not need.
#![cfg(target_arch = "x86_64")]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use serde_json::Value;
use submeter_program::text;

use crate::support::SUBMETER;

/// Lists system calls by name and number.
macro_rules! calls {
    ($($number:ident)*) => { [$((stringify!($number), libc::$number)),*] };
}

/// Returns the system calls that the server may use. A new entry must be in both lists; the tests
/// below check that where the lists are available.
fn allowed() -> BTreeMap<&'static str, i64> {
    let calls = calls! {
        SYS_accept4 SYS_access SYS_arch_prctl SYS_bind SYS_brk SYS_clock_gettime
        SYS_clock_nanosleep SYS_clone SYS_close SYS_connect SYS_epoll_create1 SYS_epoll_ctl
        SYS_epoll_wait SYS_eventfd2 SYS_execve SYS_exit SYS_exit_group SYS_fcntl SYS_fstat
        SYS_futex SYS_getpid SYS_getrandom SYS_getsockname SYS_getsockopt SYS_gettid SYS_ioctl
        SYS_listen SYS_lseek SYS_madvise SYS_membarrier SYS_mmap SYS_mprotect SYS_mremap
        SYS_munmap SYS_nanosleep SYS_newfstatat SYS_open SYS_openat SYS_poll SYS_prctl
        SYS_pread64 SYS_prlimit64 SYS_read SYS_recvfrom SYS_rseq SYS_rt_sigaction
        SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sched_getaffinity SYS_sched_setaffinity
        SYS_sched_setscheduler SYS_sched_yield SYS_sendto SYS_set_robust_list
        SYS_set_tid_address SYS_setsockopt SYS_sigaltstack SYS_shutdown SYS_socket SYS_socketpair SYS_statx SYS_uname SYS_write
        SYS_writev
    };
    calls.into_iter().map(|(name, number)| (name.trim_start_matches("SYS_"), number)).collect()
}

const CHILD: &str = "SUBMETER_TEST_SANDBOX";

/// Runs the command under the filter: runs this test in a new process, which then executes it.
fn confined(test: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command.args(["--exact", test, "--nocapture"]).env(CHILD, args.join(" "));
    let output = command.output().expect("it runs");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if out.contains("skipped: ") {
        eprintln!("skipped: no system call filters here");
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{args:?}: {out}{err}");
    Some(out)
}

/// Executes the command under the filter if this process was started by `confined`.
fn become_confined() {
    let Ok(args) = std::env::var(CHILD) else { return };
    let number = |call: i64| (call, Vec::new());
    let install = |calls: BTreeMap<_, _>, others, these| -> Result<(), seccompiler::Error> {
        let filter = SeccompFilter::new(calls, others, these, TargetArch::x86_64)?;
        apply_filter(&BpfProgram::try_from(filter)?)
    };
    // ENOSYS for `clone3`, as Docker answers, so that libc tries `clone`. If two filters differ,
    // the kernel applies the stricter answer.
    let no_clone3 = [number(libc::SYS_clone3)].into();
    let errno = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
    let old = install(no_clone3, SeccompAction::Allow, errno(libc::ENOSYS));
    let calls = allowed().into_values().chain([libc::SYS_clone3, libc::SYS_seccomp]);
    let rest = || install(calls.map(number).collect(), errno(libc::EPERM), SeccompAction::Allow);
    if let Err(error) = old.and_then(|()| rest()) {
        println!("skipped: {error}");
        std::process::exit(0);
    }
    let made = std::fs::create_dir(std::env::temp_dir().join("submeter-sandbox"));
    assert_eq!(made.map_err(|error| error.raw_os_error()), Err(Some(libc::EPERM)), "no filter");
    let error = Command::new(env!("CARGO_BIN_EXE_submeter")).args(args.split(' ')).exec();
    panic!("cannot start: {error}");
}

#[test]
fn the_server_needs_no_call_containers_refuse() {
    become_confined();
    let args = "serve --load 2 --seconds 0.3 --listen 127.0.0.1:0 --http 127.0.0.1:0";
    let args: Vec<&str> = args.split(' ').collect();
    let test = "sandbox::the_server_needs_no_call_containers_refuse";
    let Some(out) = confined(test, &args) else { return };
    assert!(out.contains("sums    exact: "), "{out}");
}

/// Updates keep their backend in a container, and `doctor` names what is refused.
#[test]
fn updates_keep_their_backend_in_a_container() {
    become_confined();
    let test = "sandbox::updates_keep_their_backend_in_a_container";
    let Some(inside) = confined(test, &["doctor", "--json"]) else { return };
    let facts = |out: &str| -> Value {
        let json = &out[out.find('{').expect("an object")..];
        let mut objects = serde_json::Deserializer::from_str(json).into_iter();
        objects.next().expect("an object").expect("JSON")
    };
    let (inside, outside) =
        (facts(&inside), facts(&text(&SUBMETER.run(&["doctor", "--json"]).stdout)));
    assert_eq!(inside["backend"], outside["backend"]);
    let world = inside["world"].as_str().expect("a line");
    assert!(world.contains("perf events refused"), "{world}");
    assert!(inside["remedies"].to_string().contains("perf_event_open"), "{inside:#}");
    assert!(inside["operations"].as_array().is_some_and(|all| all.len() == 4), "{inside:#}");
}

#[test]
fn what_the_server_asks_for_is_in_systemds_list() {
    let mut listed = BTreeSet::new();
    let mut groups = vec!["@system-service".to_owned()];
    while let Some(group) = groups.pop() {
        let output = Command::new("systemd-analyze").args(["syscall-filter", &group]).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            eprintln!("skipped: systemd's list of system calls: apt-get install systemd");
            return;
        };
        for line in text(&output.stdout).lines().skip(1).map(str::trim) {
            match line.starts_with('@') {
                true => groups.push(line.to_owned()),
                false => drop(listed.insert(line.to_owned())),
            }
        }
    }
    let missing: Vec<_> = allowed().into_keys().filter(|name| !listed.contains(*name)).collect();
    assert!(missing.is_empty(), "not in @system-service: {missing:?}");
}

/// Docker's default profile has every system call that the server makes.
#[test]
fn what_the_server_asks_for_docker_allows() {
    let Some(path) = std::env::var_os("DOCKER_SECCOMP") else {
        eprintln!(
            "skipped: Docker's profile: DOCKER_SECCOMP=FILE with seccomp/default.json of \
             https://github.com/moby/profiles"
        );
        return;
    };
    let profile = std::fs::read_to_string(path).expect("DOCKER_SECCOMP names a file");
    let profile: Value = serde_json::from_str(&profile).expect("JSON");
    let rules = profile["syscalls"].as_array().expect("rules");
    // Rules for capabilities that a container lacks do not count.
    let granted = rules.iter().filter(|rule| {
        rule["action"] == "SCMP_ACT_ALLOW" && rule["includes"].get("caps").is_none()
    });
    let listed: BTreeSet<&str> = granted
        .flat_map(|rule| rule["names"].as_array().expect("names"))
        .filter_map(Value::as_str)
        .collect();
    let missing: Vec<_> = allowed().into_keys().filter(|name| !listed.contains(*name)).collect();
    assert!(missing.is_empty(), "not in Docker's profile: {missing:?}");
}
