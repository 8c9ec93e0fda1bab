//! Sessions and observers, which follow every thread of the process.

mod hostile;
mod observers;
mod random;
mod sessions;
#[path = "../it/stop.rs"]
mod stop;
mod support;
#[path = "../it/work.rs"]
#[expect(dead_code, reason = "shared with tests that also need page faults")]
mod work;
