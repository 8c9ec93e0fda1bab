//! Reads tenants' limits from a file: lines of a group's path and a size, `#` starts a comment.

use std::path::Path;

use crate::cli::TenantLimit;

/// Reads a file. The error is one line that names file, line and remedy.
pub(super) fn read(path: &Path) -> Result<Vec<TenantLimit>, String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        format!("cannot read {name}: {e}; give --limits a file of lines \"/PATH SIZE\"")
    })?;
    parse(&text, &name)
}

/// As [`read`], of text that is there.
pub(super) fn parse(text: &str, name: &str) -> Result<Vec<TenantLimit>, String> {
    let mut limits = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // At the last blank: a tenant's name may contain some.
        let limit = match line.rsplit_once(char::is_whitespace) {
            Some((path, size)) => TenantLimit::new(path.trim_end(), size),
            None => Err(format!("{line:?} has no size")),
        };
        limits.push(limit.map_err(|e| {
            format!(
                "{name} line {}: {e} (a line is \"/PATH SIZE\", such as \"/acme 64m\")",
                index + 1
            )
        })?);
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_path_and_size() {
        let text = "# limits\n\n/acme 64m\n  /acme/web team\t1k  \n";
        let limits = parse(text, "l").expect("well-formed");
        let expected = [("/acme", 64 << 20), ("/acme/web team", 1024)];
        let expected = expected.map(|(path, bytes)| TenantLimit { path: path.to_owned(), bytes });
        assert_eq!(limits, expected);
    }

    #[test]
    fn an_error_names_file_line_and_remedy() {
        for (line, named) in [("/acme", "no size"), ("acme 1k", "acme"), ("/acme 1x", "1x")] {
            let error = parse(&format!("/ok 1k\n{line}\n"), "l.txt").expect_err(line);
            assert!(error.starts_with("l.txt line 2: "), "{error}");
            assert!(error.contains(named) && error.contains("/PATH SIZE"), "{error}");
        }
    }
}
