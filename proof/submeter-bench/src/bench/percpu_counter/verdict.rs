//! The conclusion from the figures.

use crate::row::{Param, Params, Row};

/// The locks of the design before the patch.
const LOCKED: [&str; 2] = ["lock_fold", "lock_fold_mutex"];

/// Returns the document's ratios, measured here against the faster lock, next to the document's own
/// figures.
pub(crate) fn conclusion(rows: &[Row]) -> Option<String> {
    let found: Vec<String> = [
        (1, "slow", "yes", "mapping and unmapping", "7× on 24 CPUs"),
        (2, "slow", "no", "an add that reaches the batch", "1.53×"),
        (3, "fast", "no", "a sum under adds below the batch", "0.8×"),
        (3, "slow", "no", "a sum under adds that reach it", "9×"),
    ]
    .into_iter()
    .filter_map(|(test, path, mmap, what, document)| {
        let ratio = ratio(rows, test, path, mmap)?;
        Some(format!("{what} {ratio:.2}× (the document: {document})"))
    })
    .collect();
    (!found.is_empty()).then(|| format!("rates against the faster lock: {}", found.join(", ")))
}

fn ratio(rows: &[Row], test: u64, path: &'static str, mmap: &'static str) -> Option<f64> {
    let wanted: Params =
        [("test", Param::number(test)), ("path", Param::word(path)), ("mmap", Param::word(mmap))]
            .into();
    let value = |variant: &str| {
        let is_it = |row: &&Row| row.variant == variant && row.params.has(&wanted);
        rows.iter().find(is_it).map(|row| row.value)
    };
    let locked = LOCKED.into_iter().filter_map(value).max_by(f64::total_cmp)?;
    Some(value("submeter")? / locked)
}
