//! The reverse: the group in each line of a log.

use std::fmt;

use submeter::switch;
use tracing_core::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A format of events that writes `group="/acme/web" ` before the line of another format, while the
/// thread works for a group.
///
/// It is for text. Before a line of JSON it would make a line that no parser reads. Costs a handle
/// for each line.
///
/// # Examples
/// ```
/// use submeter_tracing::GroupPrefix;
///
/// let format = GroupPrefix(tracing_subscriber::fmt::format());
/// let subscriber = tracing_subscriber::fmt().event_format(format);
/// # drop(subscriber);
/// ```
#[derive(Clone, Debug)]
pub struct GroupPrefix<F>(
    /// The format of the rest of the line.
    pub F,
);

impl<S, N, F> FormatEvent<S, N> for GroupPrefix<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if let Some(group) = switch::current() {
            // Quoted: names come from outside, and one may look like a field.
            write!(writer, "group={:?} ", group.path())?;
        }
        self.0.format_event(context, writer, event)
    }
}
