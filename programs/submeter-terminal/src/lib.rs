//! What submeter's programs share on a terminal: figures and tables, failures of one line, and
//! signals.
//!
//! [`time`], [`bytes`], [`count`], [`rate`] and [`ratio`] write figures, [`table`] lays them out,
//! [`Failure`] ends a command, and [`signals`] tells it to stop.

#![forbid(unsafe_code)]

mod failure;
mod figures;
pub mod signals;

pub use failure::{Failure, refuse};
pub use figures::{
    BOLD, DIM, bytes, count, paragraph, print, rate, ratio, seconds, table, three_digits, time,
};

/// The version, with the commit in parentheses where the build knew it: from git, or from the
/// archive that crates.io has.
pub const VERSION: &str = env!("SUBMETER_VERSION");

/// The commit that was built, with `-dirty` if files differed from it; `None` where nothing tells.
///
/// `SUBMETER_COMMIT` in the environment of the build names it for sources without git.
pub const COMMIT: Option<&str> = option_env!("SUBMETER_COMMIT");
