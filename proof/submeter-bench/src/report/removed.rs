//! What a record contains and the bench no longer measures.
//!
//! This is separate from the record, which other programs read without any definition.

use std::collections::BTreeSet;

use super::definition::definitions;
use super::record::Record;

impl Record {
    /// Removes the measurements of variants and parameters that no longer exist: their definitions
    /// are gone too, so that no report could say what the figures mean. The file keeps them.
    pub(crate) fn without_removed(mut self) -> Record {
        let of = |table: &str| definitions().iter().find(|definition| definition.table == table);
        let (mut variants, mut params) = (BTreeSet::new(), BTreeSet::new());
        self.rows.retain(|row| {
            let Some(known) = of(&row.table) else { return true };
            let named = known.variants.contains_key(&*row.variant);
            if !named {
                variants.insert(row.variant.to_string());
            }
            let unknown: Vec<String> = row
                .params
                .names()
                .filter(|name| !known.params.contains_key(*name))
                .map(str::to_owned)
                .collect();
            let keep = named && unknown.is_empty();
            params.extend(unknown);
            keep
        });
        self.absent.retain(|absent| !variants.contains(&absent.variant));
        self.machine.warnings.retain(|line| !variants.iter().any(|name| line.contains(&**name)));
        // As in "limits: callbacks: a charge of 64 bytes".
        let tells = |note: &str| note.split(": ").nth(1).is_some_and(|part| params.contains(part));
        self.notes.retain(|note| !tells(note));
        self
    }
}
