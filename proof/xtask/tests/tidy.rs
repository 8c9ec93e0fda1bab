//! Runs the tool as a user does. That the repository is tidy is a step of `.ci/check`, once.

use std::process::{Command, Output};

fn xtask(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).args(args).output().expect("xtask starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_finding_fails_the_run() {
    let dir = std::env::temp_dir().join(format!("submeter-xtask-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    std::fs::write(dir.join("Cargo.toml"), "[workspace]\n").expect("a file");
    std::fs::write(dir.join("a.md"), "see `docs/gone.md`\n").expect("a file");
    let output = xtask(&["tidy", dir.to_str().expect("a UTF-8 path")]);
    std::fs::remove_dir_all(&dir).expect("removed");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).starts_with("a.md:1: dead path `docs/gone.md`"));
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    for args in [&[][..], &["tidier"], &["tidy", "/nonexistent/submeter"]] {
        let output = xtask(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{args:?}");
    }
}
