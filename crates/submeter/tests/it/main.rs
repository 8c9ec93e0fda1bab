//! Tests that share a process.
//!
//! Apart are `sessions`, whose observers follow every thread of the process, and those that look at
//! the whole process: `killed_memory` at its memory, `session_leaks` at its descriptors and
//! mappings, `switch_balance` at its CPU time. Tests that fork, handle signals or set limits are in
//! `proof/submeter-testkit`.

mod aggregator;
mod aggregator_isolation;
mod auto_traits;
mod bound_metric;
mod callbacks;
mod guards;
mod hostile;
mod openmetrics;
mod perf_linux;
mod perf_scheduler;
mod rstat_flusher;
mod rstat_reads;
mod stop;
mod subsystems;
mod surface;
mod switch;
mod switch_runtimes;
mod tree;
mod work;
