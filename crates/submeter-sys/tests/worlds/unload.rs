//! Libraries with sequences that are loaded late: closed while threads' `rseq_cs` still point into
//! them, and loaded more than once.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::again::{again, is_child};

type Add = extern "C" fn() -> i32;

/// Returns the path of the library: the file that `SUBMETER_TEST_LIBRARY` names (for machines
/// without cargo; with flags, a file beside it), or one built here, with these flags, in a target
/// directory of its own.
fn library(flags: &str) -> PathBuf {
    if let Some(path) = std::env::var_os("SUBMETER_TEST_LIBRARY") {
        let path = PathBuf::from(path);
        return if flags.is_empty() { path } else { path.with_extension("plugin.so") };
    }
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("unloadable{flags}"));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["rustc", "--quiet", "--locked", "--example", "unloadable"])
        .args(["--crate-type", "cdylib", "--target-dir"])
        .arg(&out)
        .env_remove("CARGO_BUILD_TARGET")
        .env("RUSTFLAGS", flags)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    out.join("debug/examples/libunloadable.so")
}

#[test]
fn closing_a_library_of_sequences_kills_nobody() {
    const NAME: &str = "unload::closing_a_library_of_sequences_kills_nobody";
    if is_child() {
        let path = std::env::var("SUBMETER_TEST_LIBRARY").expect("set");
        load_add_and_close(&path);
        return;
    }
    let path = library("");
    let path = path.to_str().expect("UTF-8");
    for tunable in ["glibc.pthread.rseq=1", "glibc.pthread.rseq=0"] {
        again(NAME, &[("SUBMETER_TEST_LIBRARY", path), ("GLIBC_TUNABLES", tunable)]);
    }
}

/// Plugins load more often than static TLS would allow.
#[test]
fn plugins_load_beyond_static_tls() {
    const NAME: &str = "unload::plugins_load_beyond_static_tls";
    // With an area of its own, each takes some 300 bytes of the 1,664 that glibc keeps.
    const COPIES: usize = 32;
    if is_child() {
        let path = std::env::var("SUBMETER_TEST_LIBRARY").expect("set");
        let adds = std::thread::scope(|scope| {
            let copies = (0..COPIES).map(|copy| {
                // Each copy needs its own file: the dynamic linker loads one file as one library.
                let file = format!("{path}.{copy}");
                std::fs::copy(&path, &file).expect("copied");
                let add = load(&file).1;
                std::fs::remove_file(&file).expect("removed");
                scope.spawn(move || (0..1000).map(|_| add()).sum::<i32>())
            });
            copies.map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert_eq!(adds.len(), COPIES);
        assert!(adds.iter().all(|&done| done == -1000 || done > 900), "{adds:?} of 1000 adds each");
        return;
    }
    let path = library("--cfg submeter_plugin");
    let path = path.to_str().expect("UTF-8");
    for tunable in ["glibc.pthread.rseq=1", "glibc.pthread.rseq=0"] {
        again(NAME, &[("SUBMETER_TEST_LIBRARY", path), ("GLIBC_TUNABLES", tunable)]);
    }
}

/// Returns the library's handle and its function.
fn load(path: &str) -> (*mut libc::c_void, Add) {
    let path = CString::new(path).expect("no NUL");
    // SAFETY: 1. Its constructors may run: the library is ours, and they are the standard
    // library's.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{path:?} does not load");
    // SAFETY: 1. The handle is live: opened above. 2. The name ends with a NUL.
    let symbol = unsafe { libc::dlsym(handle, c"submeter_unloadable_add".as_ptr()) };
    assert!(!symbol.is_null());
    // SAFETY: 1. The type is right: the library defines the function with it.
    (handle, unsafe { std::mem::transmute::<*mut libc::c_void, Add>(symbol) })
}

/// Makes threads that are older than the library add through it, and run long enough after it was
/// closed to be preempted: the kernel then follows their `rseq_cs`.
fn load_add_and_close(path: &str) {
    const THREADS: usize = 4;
    let (loaded, added, closed) =
        (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let add = std::sync::OnceLock::<Add>::new();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loaded.wait();
                let add = add.get().expect("set before the barrier");
                let done: i32 = (0..1000).map(|_| add()).sum();
                assert!(done == -1000 || done > 900, "{done} of 1000 adds");
                added.wait();
                closed.wait();
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(20) {
                    std::hint::spin_loop();
                }
            });
        }
        let (handle, found) = load(path);
        add.set(found).expect("once");
        loaded.wait();
        added.wait();
        // SAFETY: 1. The handle is live, and closed once: here. 2. Nothing calls `add` any longer:
        // the threads have passed the barrier.
        assert_eq!(unsafe { libc::dlclose(handle) }, 0);
        closed.wait();
    });
}
