//! Runs a test again in a separate process, in another environment, because the probe decides once
//! per process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns whether this process was started by [`again`].
pub(crate) fn is_child() -> bool {
    std::env::var_os("SUBMETER_TEST_CHILD").is_some()
}

/// Returns the choice of a barrier that this process was given.
fn barrier() -> Option<(&'static str, &'static str)> {
    let value = std::env::var("SUBMETER_RSEQ").ok()?;
    ["trust", "visits"].into_iter().find(|&choice| choice == value).map(|c| ("SUBMETER_RSEQ", c))
}

/// Runs `test` of this program with `variables` set; returns its output.
pub(crate) fn again(test: &str, variables: &[(&str, &str)]) -> String {
    again_under(test, variables, &[]).expect("nothing to refuse")
}

/// The same as [`again`], under a system call filter. If filters are not available, prints why and
/// returns `None`.
pub(crate) fn again_under(
    test: &str,
    variables: &[(&str, &str)],
    filter: &[libc::sock_filter],
) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().expect("known"));
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("SUBMETER_TEST_CHILD", "1")
        // The child inherits none of this process's settings, except how sequences are waited for.
        .env_remove("SUBMETER_RSEQ")
        .envs(barrier())
        .env_remove("SUBMETER_CLOCK")
        .envs(variables.iter().copied());
    if !filter.is_empty() {
        let filter = filter.to_vec();
        // SAFETY: 1. The closure does only what a child of a threaded process may: it makes two
        // system calls on existing memory.
        unsafe { command.pre_exec(move || install(&filter)) };
    }
    let output = match command.output() {
        Err(error) if !filter.is_empty() => {
            eprintln!("skipped: no system call filters here: {error}");
            return None;
        }
        output => output.expect("runs"),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    assert!(text.contains("1 passed"), "no test has the name {test}: {text}");
    Some(text)
}

/// Returns a filter that answers system call `number` (only with `argument` first, if given) with
/// `errno`, and allows every other call.
pub(crate) fn deny(
    number: libc::c_long,
    argument: Option<u32>,
    errno: i32,
) -> Vec<libc::sock_filter> {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    // Offsets in `struct seccomp_data`: the number, and the lower half of the first argument.
    let mut filter = vec![step(LOAD, 0, 0)];
    match argument {
        None => filter.push(step(EQUAL, number as u32, 1)),
        Some(argument) => filter.extend([
            step(EQUAL, number as u32, 3),
            step(LOAD, 16, 0),
            step(EQUAL, argument, 1),
        ]),
    }
    filter.push(step(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32, 0));
    filter.push(step(RETURN, libc::SECCOMP_RET_ALLOW, 0));
    filter
}

/// Puts the calling thread, and everything that it starts, under `filter`.
pub(crate) fn install(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: 1. The first call takes numbers. 2. The second reads a live program of `len` steps.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}
