use submeter_sys::cpu::affinity;

use super::*;

/// Each program counts what its loops do, or says what is missing.
#[test]
fn each_program_counts_its_loops_or_says_why_not() {
    let cpus = affinity().expect("this process may run somewhere");
    let (programs, absent) = programs();
    assert_eq!(programs.len() + absent.len(), 3);
    for Absence { variant, reason } in &absent {
        assert!(!reason.is_empty());
        println!("skipped: {variant}: {reason}");
    }
    for program in &programs {
        let mut process = program.start(&cpus, 1_000_000, 64).expect(program.variant);
        let first = process.sample().expect(program.variant);
        let second = process.sample().expect(program.variant);
        assert!(first.rate > 0.0 && first.asked > 0, "{} {first:?}", program.variant);
        assert!(second.asked > first.asked, "{} {second:?}", program.variant);
        // The operations of the warm-up are included in both numbers.
        for sampled in [first, second] {
            assert_eq!(sampled.counted, sampled.asked, "{}", program.variant);
        }
    }
}

#[test]
fn a_folder_is_removed_with_its_last_program() {
    let folder = Folder::new().expect("a temporary folder");
    let path = folder.0.clone();
    write(&path, "file", "text").expect("written");
    assert!(path.is_dir());
    drop(folder);
    assert!(!path.exists());
}

/// A compiler that is missing or fails is reported in one line.
#[test]
fn a_failing_compiler_is_reported_in_one_line() {
    let missing = succeeds(Command::new("/nonexistent/cc"), "no compiler: get one");
    let error = missing.expect_err("there is none");
    assert!(error.starts_with("no compiler: get one (") && !error.contains('\n'), "{error}");
    let mut fails = Command::new("sh");
    fails.args(["-c", "echo first >&2; echo second >&2; exit 1"]);
    assert_eq!(succeeds(fails, "no compiler: get one"), Err("no compiler: get one (first)".into()));
}

/// A process that answers wrongly or exits is an error that names it.
#[test]
fn a_wrong_answer_is_an_error_with_its_name() {
    let cpus = affinity().expect("this process may run somewhere");
    let begun = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        Process::start("shell", shell, &cpus, None)
    };
    let error = begun("echo no").expect_err("not ready").to_string();
    assert_eq!(error, "shell started with \"no\" instead of \"ready\"");
    let error = begun("exit 0").expect_err("not ready").to_string();
    assert_eq!(error, "shell exited unexpectedly");
    let mut process = begun("echo ready; read line; echo 1 2; read line").expect("ready");
    let error = process.sample().expect_err("two numbers").to_string();
    assert_eq!(error, "shell answered \"1 2\"");
    // It still waits for a line: the drop ends it.
}
