//! Environments in which something is missing, refused or forbidden. Each test runs in a process of
//! its own, because the probe and the clock decide once per process.
#![cfg(all(target_os = "linux", not(any(miri, submeter_portable))))]
#![expect(unsafe_code, reason = "fork, system call filters, limits, and the sequences")]

mod again;
mod broken;
mod clock;
mod registration;
#[path = "../it/rows.rs"]
mod rows;
mod seccomp;
mod unload;
