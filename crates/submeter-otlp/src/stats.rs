//! Figures of an exporter: what was sent, and what was not.

use crate::error::ExportError;

/// The work of an [`Exporter`](crate::Exporter) so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that have arrived.
    pub exports: u64,
    /// Points in them.
    pub points: u64,
    /// Points in them that the receiver did not take.
    pub points_rejected: u64,
    /// Attempts after which the same request is sent again: no connection, no answer in time, or
    /// a receiver without time.
    pub retries: u64,
    /// Requests that were refused, or answered by what is no receiver.
    pub refused: u64,
    /// Why the latest attempt was in vain, if it was.
    pub last_error: Option<ExportError>,
}
