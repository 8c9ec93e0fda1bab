//! Exports what readers of thread contexts look for, as a program's own build script would.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let set = |name| std::env::var_os(name).is_some();
    let linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    if linux && set("CARGO_FEATURE_THREAD_CONTEXT") {
        println!("cargo::rustc-link-arg-tests=-Wl,--export-dynamic-symbol=otel_thread_ctx_v1");
    }
}
