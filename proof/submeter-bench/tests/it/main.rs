//! The program as a process: what it measures, writes and refuses.

mod alloc;
mod end_to_end;
mod perf;
mod report;
mod rstat;
mod tables;
mod worlds;

const BENCH: submeter_program::Program =
    submeter_program::Program::new(env!("CARGO_BIN_EXE_submeter-bench"));
