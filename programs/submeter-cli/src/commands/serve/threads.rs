//! Threads of the server's own.

use submeter_terminal::Failure;
use tokio::runtime::{Builder, Runtime};

/// Makes a runtime with that many threads, or one for each CPU.
pub(super) fn runtime(threads: Option<usize>) -> Result<Runtime, Failure> {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().map_err(|e| no_threads(&e))
}

pub(super) fn no_threads(error: &std::io::Error) -> Failure {
    Failure::new(format_args!("cannot start threads: {error}"))
}
