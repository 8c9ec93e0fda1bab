//! Per-CPU storage, counters and reference counts.
