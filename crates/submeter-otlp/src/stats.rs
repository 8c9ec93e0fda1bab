//! Statistics of an exporter: what was sent, and what was not.

use std::time::SystemTime;

use crate::error::ExportError;

/// The work of an [`Exporter`](crate::Exporter) so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Requests that have arrived.
    pub exports: u64,
    /// Points in them.
    pub points: u64,
    /// Points in them that the receiver rejected.
    pub points_rejected: u64,
    /// Attempts after which the same request is sent again: no connection, no answer in time, or an
    /// overloaded receiver.
    pub retries: u64,
    /// Requests that were refused, or answered by something that is no receiver.
    pub refused: u64,
    /// What the receiver said when it last accepted a whole request, if anything: a warning, which
    /// is logged when it changes.
    pub warning: String,
    /// Everything that was counted until then has arrived, including points that the receiver
    /// rejected; `None` if nothing has.
    pub sent_until: Option<SystemTime>,
    /// Why the latest attempt failed, if it did.
    pub last_error: Option<ExportError>,
}
