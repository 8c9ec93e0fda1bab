//! The text of a refusal.

use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::MemoryReservation;
use submeter::{Group, LimitError};

use crate::consumers::{Queries, size};
use crate::levels::Tightest;

/// A limit refused it.
#[cold]
pub(crate) fn beyond_limit(
    reservation: &MemoryReservation,
    refused: &LimitError,
    queries: &Queries,
) -> DataFusionError {
    let (group, limiting) = (refused.group().path(), refused.limiting().path());
    let mut text = format!(
        "{group}: {} more of {} for {} would exceed the limit of {limiting}: {} of {} held",
        size(refused.requested()),
        refused.metric().name(),
        reservation.consumer().name(),
        size(refused.current()),
        size(refused.limit()),
    );
    // The limiting group itself where it is a query: it has nobody below.
    let holders = refused.holders();
    let holder = |(group, current): &(Group, u64)| {
        let operators = parenthesised(queries.most(group.path()));
        format!("{} {}{operators}", group.path(), size(*current))
    };
    let most = match holders.is_empty() {
        true => queries.most(limiting),
        false => holders.iter().map(holder).collect::<Vec<_>>().join(", "),
    };
    if !most.is_empty() {
        text.push_str("; most by ");
        text.push_str(&most);
    }
    DataFusionError::ResourcesExhausted(text)
}

/// It fits, but is refused so that the operator spills.
#[cold]
pub(crate) fn to_spill(
    group: &Group,
    reservation: &MemoryReservation,
    more: u64,
    tightest: &Tightest<'_>,
) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!(
        "{}: {} more for {}, which can spill the {} that it holds, would leave too little for \
         others below {}: {} of {} held",
        group.path(),
        size(more),
        reservation.consumer().name(),
        size(reservation.size() as u64),
        tightest.group.path(),
        size(tightest.current),
        size(tightest.ceiling),
    ))
}

fn parenthesised(text: String) -> String {
    if text.is_empty() { text } else { format!(" ({text})") }
}
