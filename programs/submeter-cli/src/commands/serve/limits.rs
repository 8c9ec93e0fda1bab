//! The file of tenants' limits.

use std::path::Path;

use submeter::limits::{GroupLimits, parse_lines};
use submeter_terminal::{read_file, short};

/// Reads a file, and returns each limit with its line. The error is one line that names file, line
/// and remedy.
pub(super) fn read(path: &Path) -> Result<Vec<(usize, GroupLimits)>, String> {
    let name = path.display().to_string();
    let name = short(&name);
    let text = read_file(path).map_err(|e| {
        format!(
            "cannot read {name}: {e}; use a file for --limits with lines \"/PATH SIZE,rate=N/s\""
        )
    })?;
    parse(&text, &name)
}

/// The same as [`read`], for a text.
pub(super) fn parse(text: &str, name: &str) -> Result<Vec<(usize, GroupLimits)>, String> {
    parse_lines(text).map_err(|error| format!("{name} {error}"))
}
