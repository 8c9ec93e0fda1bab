//! The text of a refusal.
//!
//! The sender of the query gets to see it, and DataFusion's error has no second text for logs. It
//! therefore names whatever is the tenant's own, down to its operators. Of a limit above the tenant
//! it says that it is shared, but not whose it is, how much it is, or who holds it.

use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::MemoryReservation;
use submeter::{Group, LimitError};

use crate::consumers::{Queries, size};
use crate::levels::Tightest;

/// Makes the error for a request that a limit refused.
#[cold]
pub(crate) fn beyond_limit(
    reservation: &MemoryReservation,
    refused: &LimitError,
    tenant: &Group,
    queries: &Queries,
) -> DataFusionError {
    let (group, limiting) = (refused.group().path(), refused.limiting().path());
    let mut text = format!(
        "{group}: {} more of {} for {} would exceed ",
        size(refused.requested()),
        refused.metric().name(),
        reservation.consumer().name(),
    );
    if is_shared(refused.limiting(), tenant) {
        text.push_str("a limit shared with others");
        return DataFusionError::ResourcesExhausted(text);
    }
    let (held, limit) = (size(refused.current()), size(refused.limit()));
    text.push_str(&format!("the limit of {limiting}: {held} of {limit} held"));
    // The limiting group itself if it is a query's: it has no groups below.
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

/// Makes the error for a request that fits, but is refused so that the operator spills.
#[cold]
pub(crate) fn to_spill(
    group: &Group,
    reservation: &MemoryReservation,
    more: u64,
    tenant: &Group,
    tightest: &Tightest<'_>,
) -> DataFusionError {
    let Tightest { group: level, current, ceiling } = *tightest;
    let below = match is_shared(level, tenant) {
        true => "a limit shared with others".to_owned(),
        false => format!("{level}: {} of {} held", size(current), size(ceiling)),
    };
    DataFusionError::ResourcesExhausted(format!(
        "{group}: {} more for {}, which can spill the {} that it holds, would leave too little for \
         others below {below}",
        size(more),
        reservation.consumer().name(),
        size(reservation.size() as u64),
    ))
}

/// Whether a level on the way from a group of the tenant to the root is above the tenant's own.
fn is_shared(level: &Group, tenant: &Group) -> bool {
    level.depth() < tenant.depth()
}

fn parenthesised(text: String) -> String {
    if text.is_empty() { text } else { format!(" ({text})") }
}
