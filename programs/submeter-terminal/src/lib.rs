//! Terminal output that submeter's programs share: figures and tables, one-line errors, and
//! signals.
//!
//! [`time`], [`bytes`], [`count`], [`rate`] and [`ratio`] write figures, [`table`] lays them out,
//! [`print()`] prints them, [`plain`] shows foreign text, [`displayed`] a name,
//! [`Failure`] ends a command with an error, [`Destination`] stores a result, and [`signals`]
//! reports that the command should stop.

#![forbid(unsafe_code)]

mod failure;
mod figures;
mod file;
mod names;
mod output;
pub mod signals;

pub use failure::{Failure, one_line, refuse, short};
pub use file::{Destination, read_file, read_open_file, try_file, without_mark, write_file};

pub use figures::{
    BOLD, DIM, bytes, count, end, paragraph, rate, ratio, seconds, table, table_within,
    three_digits, time, wrap,
};
pub use names::{displayed, isolated, shortened, width};
pub use output::{plain, print, shell_word, stream, tell};

/// The version, with the commit in parentheses if the build knew it: from git, or from an archive
/// of crates.io.
pub const VERSION: &str = env!("SUBMETER_VERSION");

/// The commit that was built, with `-dirty` if files differed from it; `None` if it is unknown.
///
/// For sources without git, set `SUBMETER_COMMIT` in the environment of the build.
pub const COMMIT: Option<&str> = option_env!("SUBMETER_COMMIT");

/// The day of that commit, as in `2026-11-28`; `None` if it is unknown.
///
/// For sources without git, set `SUBMETER_DATE` in the environment of the build.
pub const DATE: Option<&str> = option_env!("SUBMETER_DATE");
