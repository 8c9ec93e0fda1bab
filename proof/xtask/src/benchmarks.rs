//! Splices figures into documents, so that none is typed by hand: README's claims into
//! BENCHMARKS.md, and the tables of records into the documents beside them and into README.md.
//!
//! The text between `<!-- claims -->` and `<!-- end of claims -->` is the output of
//! `submeter-bench --claims .`. The text between `<!-- record: PATH -->` and
//! `<!-- end of record -->` is that of `submeter-bench --from PATH --markdown -`. To use a newer
//! record, change the path there, or in the claims, and run this. `PATH beside OTHER` inserts the
//! ratios of two records side by side, and `PATH of TABLE` the figures of a single table.

use std::path::Path;

/// The marks at the beginning and the end of a table of claims.
const CLAIMS: [&str; 2] = ["<!-- claims -->\n", "\n<!-- end of claims -->"];
const BEGIN: &str = "<!-- record: ";
const CLOSE: &str = " -->";
/// Further words that a mark may contain, and the option of the bench that each stands for.
const MORE: [(&str, &str); 2] = [(" beside ", "--beside"), (" of ", "--brief")];
const END: &str = "<!-- end of record -->";
/// The documents that contain such marks.
pub(crate) const FILES: [&str; 9] = [
    "README.md",
    "BENCHMARKS.md",
    "proof/submeter-bench/record/x86_64-linux/2026-11-26-all.md",
    "proof/submeter-bench/record/x86_64-linux/2026-11-27-all.md",
    "proof/submeter-bench/record/x86_64-linux/2026-11-27-busy.md",
    "proof/submeter-bench/record/x86_64-linux/2026-11-28-worlds.md",
    "proof/submeter-bench/record/x86_64-linux/2026-11-30-admission.md",
    "proof/submeter-bench/record/x86_64-linux/2026-11-30-alloc.md",
    "proof/submeter-bench/record/x86_64-linux/2026-12-01-alloc.md",
];

/// Returns `document` with the table of claims that `write` makes, if it has a place for the table.
///
/// # Errors
/// The error of `write`.
pub(crate) fn claimed(
    document: &str,
    write: &dyn Fn() -> Result<String, String>,
) -> Result<Option<String>, String> {
    let [begin, end] = CLAIMS;
    let Some((before, rest)) = document.split_once(begin) else { return Ok(None) };
    let Some((_, after)) = rest.split_once(end) else { return Ok(None) };
    Ok(Some(format!("{before}{begin}\n{}{end}{after}", write()?)))
}

/// Returns `document`, the text of `file`, with the output of `write` for each record that it
/// names.
///
/// # Errors
/// One line that says which mark is wrong, or the error of `write`.
pub(crate) fn spliced(
    file: &str,
    document: &str,
    write: &dyn Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = document;
    while let Some(begin) = rest.find(BEGIN) {
        let (before, marked) = rest.split_at(begin);
        let (record, after) = marked[BEGIN.len()..]
            .split_once(CLOSE)
            .ok_or_else(|| format!("{file}: a mark does not end with {CLOSE:?}"))?;
        let (_, after) = after
            .split_once(END)
            .ok_or_else(|| format!("{file}: no {END:?} after the mark of {record}"))?;
        text.push_str(before);
        text.push_str(&format!("{BEGIN}{record}{CLOSE}\n\n{}\n{END}", write(record)?));
        rest = after;
    }
    if text.is_empty() {
        return Err(format!("{file}: no mark {BEGIN:?}: name a record to splice"));
    }
    Ok(text + rest)
}

/// Makes the table of claims by running the command itself, which knows how to read records.
///
/// # Errors
/// One line: the command's error, or why it cannot be run.
pub(crate) fn claims(root: &Path) -> Result<String, String> {
    bench(root, &["--claims", "."])
}

/// Makes the tables of a record in the same way.
///
/// # Errors
/// As [`claims`].
pub(crate) fn tables(root: &Path, record: &str) -> Result<String, String> {
    let (record, more) = asked(record);
    bench(root, &[&["--from", record, "--markdown", "-"], &more[..]].concat())
}

fn bench(root: &Path, args: &[&str]) -> Result<String, String> {
    let output = crate::cargo()
        .current_dir(root)
        .args(["run", "--quiet", "-p", "submeter-bench", "--"])
        .args(args)
        .output()
        .map_err(|error| format!("cannot run cargo: {error}: install Rust"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|error| error.to_string());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Returns the record that a mark names, and the arguments for the rest of the mark.
fn asked(mark: &str) -> (&str, Vec<&str>) {
    let asks = MORE.iter().find_map(|(word, option)| {
        mark.split_once(word).map(|(record, what)| (record, vec![*option, what]))
    });
    asks.unwrap_or((mark, Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark asks for a record, for its ratios beside another, or for one table.
    #[test]
    fn a_mark_asks_for_a_record_or_a_table() {
        assert_eq!(asked("a.json"), ("a.json", vec![]));
        assert_eq!(asked("a.json beside b.json"), ("a.json", vec!["--beside", "b.json"]));
        assert_eq!(asked("a.json of worlds"), ("a.json", vec!["--brief", "worlds"]));
    }

    #[test]
    fn the_claims_are_replaced_and_the_rest_kept() {
        let write = || Ok("| 1 |\n".to_owned());
        let document = "# B\n<!-- claims -->\nold\n<!-- end of claims -->\nend\n";
        let once = claimed(document, &write).expect("written").expect("marks");
        assert_eq!(once, "# B\n<!-- claims -->\n\n| 1 |\n\n<!-- end of claims -->\nend\n");
        assert_eq!(claimed(&once, &write), Ok(Some(once.clone())), "again, nothing changes");
        assert_eq!(claimed("# B\n", &write), Ok(None));
    }

    fn write(record: &str) -> Result<String, String> {
        match record {
            "a.json" => Ok("| 1 |\n".to_owned()),
            other => Err(format!("{other}: none")),
        }
    }

    #[test]
    fn marked_text_is_replaced_and_the_rest_kept() {
        let document = "# B\n\n<!-- record: a.json -->\nold\n<!-- end of record -->\n\nend\n";
        let expected = "# B\n\n<!-- record: a.json -->\n\n| 1 |\n\n<!-- end of record -->\n\nend\n";
        let once = spliced("A.md", document, &write).expect("marks");
        assert_eq!(once, expected);
        assert_eq!(
            spliced("A.md", &once, &write).expect("marks"),
            once,
            "a second run changes nothing"
        );
    }

    #[test]
    fn wrong_marks_are_reported() {
        for (document, said) in [
            ("# B\n", "no mark"),
            ("<!-- record: a.json -->\n", "end of record"),
            ("<!-- record: a.json", "does not end"),
            ("<!-- record: b.json -->\n<!-- end of record -->", "b.json: none"),
        ] {
            let error = spliced("A.md", document, &write).expect_err(document);
            assert!(error.contains(said), "{error}");
        }
    }
}
