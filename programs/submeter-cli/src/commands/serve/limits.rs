//! Reads tenants' limits from a file: lines of a group's path and its limits. `#` starts a comment,
//! at the beginning of a line or behind a blank. A path that would be read otherwise, as with
//! that or a blank at its end, stands in quotes, as in JSON: `"/a #1" 64m`.

use std::path::Path;

use submeter_terminal::{read_file, short};

use crate::cli::TenantLimit;

/// Reads a file, and returns each limit with its line. The error is one line that names file, line
/// and remedy.
pub(super) fn read(path: &Path) -> Result<Vec<(usize, TenantLimit)>, String> {
    let name = path.display().to_string();
    let name = short(&name);
    let text = read_file(path).map_err(|e| {
        format!("cannot read {name}: {e}; give --limits a file of lines \"/PATH SIZE,rate=N/s\"")
    })?;
    parse(&text, &name)
}

/// As [`read`], of text that is there.
pub(super) fn parse(text: &str, name: &str) -> Result<Vec<(usize, TenantLimit)>, String> {
    let mut limits: Vec<(usize, TenantLimit)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let limit = if line.starts_with('"') {
            quoted(line)
        } else {
            let line = without_comment(line);
            if line.is_empty() {
                continue;
            }
            // At the last blank: a tenant's name may contain some.
            match line.rsplit_once(char::is_whitespace) {
                Some((path, limits)) => TenantLimit::new(path.trim_end(), limits),
                None => Err(format!("{:?} has no limit", short(line))),
            }
        };
        let number = index + 1;
        let limit = limit.map_err(|e| {
            format!(
                "{name} line {number}: {e} (a line is \"/PATH SIZE,rate=N/s\", such as \"/acme 64m\" \
                 or \"/acme rate=20000/s\")"
            )
        })?;
        limits.push((number, limit));
    }
    Ok(limits)
}

fn without_comment(line: &str) -> &str {
    let mut marks = line.match_indices('#').map(|(at, _)| at);
    let begins = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = marks.find(|&at| begins(at));
    line[..comment.unwrap_or(line.len())].trim_end()
}

/// Parses a line that begins with a path in quotes.
fn quoted(line: &str) -> Result<TenantLimit, String> {
    let mut parts = serde_json::Deserializer::from_str(line).into_iter::<String>();
    let path = parts.next().and_then(Result::ok);
    let (path, rest) = path.map(|path| (path, &line[parts.byte_offset()..])).ok_or_else(|| {
        let line = short(line);
        format!("{line:?} begins with no path in quotes: write it as in JSON, such as \"/a #1\"")
    })?;
    match without_comment(rest).trim_start() {
        "" => Err(format!("{:?} has no limit", short(line))),
        limits => TenantLimit::new(&path, limits),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use submeter::Rate;
    use submeter_cache::TenantLimits;

    use super::*;

    #[test]
    fn lines_are_path_and_size() {
        let text = "# limits\n\n/acme 64m\n  /acme/web team\t1k  \n/a,b=c rate=5/s # few\n\
                    /d high=3k,low=2k,min=1k\n";
        let limits = parse(text, "l").expect("well-formed");
        let rate = Rate::new(5, Duration::from_secs(1));
        let rate = TenantLimits { requests: Some(rate), ..TenantLimits::default() };
        let [high, low, min] = [3072, 2048, 1024].map(Some);
        let expected = [
            (3, "/acme", (64 << 20).into()),
            (4, "/acme/web team", 1024.into()),
            (5, "/a,b=c", rate),
            (6, "/d", TenantLimits { high, low, min, ..TenantLimits::default() }),
        ];
        let limit = |path: &str, limits| TenantLimit { path: path.to_owned(), limits };
        let expected = expected.map(|(line, path, limits)| (line, limit(path, limits)));
        assert_eq!(limits, expected);
    }

    #[test]
    fn a_mark_within_a_name_is_no_comment() {
        let limits = parse("/a#b 1k#\n", "l").expect_err("no size");
        assert!(limits.contains("1k#"), "{limits}");
        assert_eq!(parse("/a#b 1k\t# c # d\n", "l").expect("well-formed")[0].1.path, "/a#b");
        let quoted = r##"  "/a\n #\u202e\"b " 1k # "c""##;
        let limits = parse(quoted, "l").expect("well-formed");
        assert_eq!(limits[0].1.path, "/a\n #\u{202e}\"b ");
    }

    #[test]
    fn an_error_names_file_line_and_remedy() {
        for (line, named) in [
            ("/acme", "no limit"),
            ("acme 1k", "acme"),
            ("/acme 1x", "1x"),
            ("/acme rate=5", "N/s"),
            (r#""/acme 1k"#, "no path in quotes"),
            (r#""/acme" # 1k"#, "no limit"),
            (r#""acme" 1k"#, "starts with '/'"),
        ] {
            let error = parse(&format!("/ok 1k\n{line}\n"), "l.txt").expect_err(line);
            assert!(error.starts_with("l.txt line 2: "), "{error}");
            assert!(error.contains(named) && error.contains("/PATH SIZE,rate=N/s"), "{error}");
        }
    }
}
