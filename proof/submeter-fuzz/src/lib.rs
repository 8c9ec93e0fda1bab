//! The parsers of bytes from outside, each wrapped in a function of bytes that panics if a property
//! does not hold.
//!
//! `tests/corpus.rs` runs them on the kept corpus. To fuzz them, with a nightly compiler:
//!
//! ```text
//! cargo install cargo-fuzz
//! proof/submeter-fuzz/run 600 protocol
//! ```
//!
//! Where a parser is private to its crate, its file is included here: fuzzing is no reason to make
//! an interface public.

#![forbid(unsafe_code)]

#[path = "../../submeter-bench/src/row.rs"]
#[allow(dead_code, reason = "the file is of another crate, which uses the rest")]
mod row;

#[path = "../../submeter-bench/src/report/record.rs"]
#[allow(dead_code, reason = "the file is of another crate, which uses the rest")]
mod bench_record;

use std::iter;

use submeter::limits::{self, GroupLimits, Limits};
use submeter::{DEPTH_MAX, Schema, Tree, WEIGHTS};
use submeter_cache::outcomes;

/// Parses a connection's bytes whole and in pieces: both must find the same requests, and each step
/// must make progress or say how much is missing. The first byte gives the length of the pieces.
pub fn protocol(bytes: &[u8]) {
    let Some((&piece, bytes)) = bytes.split_first() else { return };
    let whole = outcomes(bytes, iter::empty());
    assert_eq!(outcomes(bytes, iter::repeat_n(1 + usize::from(piece), bytes.len())), whole);
}

/// Creates the groups of a path: refused with a reason, or found again by the path that it reports.
pub fn path(bytes: &[u8]) {
    let Ok(path) = std::str::from_utf8(bytes) else { return };
    let tree = Tree::new(Schema::builder().build().expect("empty")).expect("address space");
    match tree.get_or_create(path) {
        Ok(group) => {
            assert!(group.depth() <= DEPTH_MAX);
            assert_eq!(tree.get(group.path()).as_ref(), Some(&group));
            assert_eq!(tree.get(path).as_ref(), Some(&group));
            assert_eq!(tree.group_count(), 1 + group.depth(), "only what the path names");
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && !said.contains('\n'), "{said:?}");
            assert_eq!(tree.get(path), None);
        }
    }
}

/// Parses a file of tenants' limits: the result is lines, paths with sizes of at least a byte and
/// rates that can be kept, or an error of one line that names the line.
pub fn limits(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match limits::parse_lines(text) {
        Ok(limits) => {
            let lines = text.lines().count();
            assert!(limits.len() <= lines);
            let sound = |(line, limit): &(usize, GroupLimits)| {
                let Limits { memory, high, low, min, rate, cpu, weight, .. } = limit.limits;
                let sizes = [memory, high, low, min];
                (1..=lines).contains(line)
                    && limit.path.starts_with('/')
                    && limit.limits != Limits::default()
                    && !sizes.contains(&Some(0))
                    && weight.is_none_or(|weight| WEIGHTS.contains(&weight))
                    && [rate, cpu].into_iter().flatten().all(|rate| rate.check().is_ok())
            };
            assert!(limits.iter().all(sound), "{limits:?}");
        }
        Err(error) => {
            let (said, lines) = (error.to_string(), text.lines().count());
            assert!(error.line().is_some_and(|line| (1..=lines).contains(&line)), "{said}");
            assert!(said.starts_with("line ") && !said.contains('\n'), "{said}");
        }
    }
}

/// Reads a record of the bench and calls what reports call on its rows: none of it may panic.
pub fn record(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let record = match bench_record::Record::parse(text) {
        Ok(record) => record,
        Err(said) => {
            assert!(said.contains("--json") && !said.contains('\n'), "{said}");
            return;
        }
    };
    for row in &record.rows {
        let found = record.find(&row.table, &row.variant, &row.params).expect("it is one");
        assert!(found.table == row.table && found.variant == row.variant);
        let sorted = row.sorted();
        assert!(sorted.len() <= row.samples.len() && sorted.is_sorted());
        assert!(row.figure().is_none_or(f64::is_finite));
        let _ = (row.spread(), row.is_median(), row.quartiles(), record.notes(&row.table));
    }
}
