//! The program as a process: what it measures, writes and refuses.

mod end_to_end;
mod perf;
mod report;
mod rstat;
mod support;
mod tables;
