//! What a bill keeps of each reading.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use submeter_http::wire::totals::ReadingDoc;

/// A reading, and what is known about its member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) member: String,
    pub(super) units: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(super) reading: ReadingDoc,
}
