//! Splices the tables of records into BENCHMARKS.md, so that no figure in it is typed by hand.
//!
//! The text between `<!-- record: PATH -->` and `<!-- end of record -->` is the output of
//! `submeter-bench --from PATH --markdown -`. To use a newer record, change the path there and run
//! this. `PATH beside OTHER` stands for the ratios of two records side by side.

use std::path::Path;

const BEGIN: &str = "<!-- record: ";
const CLOSE: &str = " -->";
const BESIDE: &str = " beside ";
const END: &str = "<!-- end of record -->";
/// The document, in the root of the repository.
pub(crate) const FILE: &str = "BENCHMARKS.md";

/// Returns `document` with the output of `write` for each record that it names.
///
/// # Errors
/// One line that says which mark is wrong, or the error of `write`.
pub(crate) fn spliced(
    document: &str,
    write: &dyn Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = document;
    while let Some(begin) = rest.find(BEGIN) {
        let (before, marked) = rest.split_at(begin);
        let (record, after) = marked[BEGIN.len()..]
            .split_once(CLOSE)
            .ok_or_else(|| format!("{FILE}: a mark does not end with {CLOSE:?}"))?;
        let (_, after) = after
            .split_once(END)
            .ok_or_else(|| format!("{FILE}: no {END:?} after the mark of {record}"))?;
        text.push_str(before);
        text.push_str(&format!("{BEGIN}{record}{CLOSE}\n\n{}\n{END}", write(record)?));
        rest = after;
    }
    if text.is_empty() {
        return Err(format!("{FILE}: no mark {BEGIN:?}: name a record to splice"));
    }
    Ok(text + rest)
}

/// Returns the path of the record that the document shows first.
///
/// # Errors
/// One line: the document cannot be read, or names none.
pub(crate) fn first_record(root: &Path) -> Result<String, String> {
    let text =
        std::fs::read_to_string(root.join(FILE)).map_err(|error| format!("{FILE}: {error}"))?;
    let found = text.lines().find_map(|line| line.strip_prefix(BEGIN)?.strip_suffix(CLOSE));
    let record = found.ok_or_else(|| format!("{FILE}: no mark {BEGIN:?}: name a record"))?;
    Ok(record.to_owned())
}

/// Makes the tables of a record with the command itself, which knows the definitions.
///
/// # Errors
/// One line: the command's error, or why it cannot be run.
pub(crate) fn tables(root: &Path, record: &str) -> Result<String, String> {
    let (record, beside) =
        record.split_once(BESIDE).map_or((record, None), |(one, other)| (one, Some(other)));
    let args = ["run", "--quiet", "-p", "submeter-bench", "--", "--from", record];
    let output = crate::cargo()
        .current_dir(root)
        .args(args)
        .args(beside.iter().flat_map(|other| ["--beside", other]))
        .args(["--markdown", "-"])
        .output()
        .map_err(|error| format!("cannot run cargo: {error}: install Rust"))?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|error| error.to_string());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(record: &str) -> Result<String, String> {
        match record {
            "a.json" => Ok("| 1 |\n".to_owned()),
            other => Err(format!("{other}: none")),
        }
    }

    #[test]
    fn text_between_marks_is_replaced_and_the_rest_kept() {
        let document = "# B\n\n<!-- record: a.json -->\nold\n<!-- end of record -->\n\nend\n";
        let expected = "# B\n\n<!-- record: a.json -->\n\n| 1 |\n\n<!-- end of record -->\n\nend\n";
        let once = spliced(document, &write).expect("marks");
        assert_eq!(once, expected);
        assert_eq!(spliced(&once, &write).expect("marks"), once, "a second run changes nothing");
    }

    #[test]
    fn wrong_marks_are_reported() {
        for (document, said) in [
            ("# B\n", "no mark"),
            ("<!-- record: a.json -->\n", "end of record"),
            ("<!-- record: a.json", "does not end"),
            ("<!-- record: b.json -->\n<!-- end of record -->", "b.json: none"),
        ] {
            let error = spliced(document, &write).expect_err(document);
            assert!(error.contains(said), "{error}");
        }
    }
}
