//! Trees, limits and events against their oracles. One program, because none of these tests changes
//! what belongs to the process.

mod differential;
mod events;
mod fuzz;
mod limit_soak;
