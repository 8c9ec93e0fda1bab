//! Tests that share a process.
//!
//! Some need a process of their own: `sessions`, whose observers follow every thread, and those
//! that measure the whole process: `killed_memory` its memory, `session_leaks` its descriptors and
//! mappings, `switch_balance` its CPU time. Tests that fork, handle signals or set limits are in
//! `proof/submeter-testkit`.

mod aggregator;
mod aggregator_isolation;
mod auto_traits;
mod budgets;
mod callbacks;
mod checkpoint;
mod checkpoint_misuse;
mod creation;
mod data;
mod declared;
mod derive;
mod export;
mod export_choice;
mod export_exact;
mod export_stalls;
mod guards;
mod high;
mod hostile;
#[path = "../../../submeter-percpu/tests/it/met.rs"]
mod met;
mod naive;
mod one_number;
mod openmetrics;
mod own_values;
mod perf_linux;
mod prometheus;
mod protect;
mod rates;
mod reclaim;
mod reclaim_model;
mod reclaim_stress;
mod replacing;
mod rstat_flusher;
mod rstat_reads;
mod slices;
mod stop;
mod subsystems;
mod surface;
mod switch;
mod switch_runtimes;
mod switch_travels;
mod test_clock;
mod thread_counts;
mod tree;
mod until;
mod waits;
#[path = "../../../submeter-percpu/tests/it/witness.rs"]
mod witness;
mod work;
