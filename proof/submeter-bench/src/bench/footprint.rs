//! Weighs what a fresh process of this program holds: in a used one, freed memory would be reused
//! and look like no growth.

use std::process::Command;

/// Runs this program with `--weigh GROUPS` and `more`, and returns the numbers that it prints.
///
/// # Errors
/// When the process fails, or prints something else.
pub(super) fn weigh<const N: usize>(groups: usize, more: &[&str]) -> Result<[f64; N], String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program).args(["--weigh", &groups.to_string()]).args(more).output();
    let output = output.map_err(|error| error.to_string())?;
    parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{}: {}", output.status, said.lines().next().unwrap_or("no answer"))
    })
}

/// Reads the numbers of a line, if there are that many.
pub(super) fn parse<const N: usize>(text: &str) -> Option<[f64; N]> {
    let numbers = text.split_whitespace().map(|word| word.parse().ok());
    numbers.collect::<Option<Vec<f64>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_reports_as_many_numbers_or_none() {
        assert_eq!(parse("1.5 2\n"), Some([1.5, 2.0]));
        for text in ["", "1", "1 x", "1 2 3", "running 0 tests\n"] {
            assert_eq!(parse::<2>(text), None, "{text:?}");
        }
    }
}
