//! The log of a server: what it does and warns of, on standard error.

use std::fmt;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use submeter_terminal::Failure;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, fmt};
use tracing_subscriber::registry::LookupSpan;

use crate::cli::{LogArgs, LogForm};

/// Starts the log of the process. Without flags it has warnings alone, each on one line.
pub(crate) fn start(args: LogArgs) {
    let most = if args.verbose { Level::INFO } else { Level::WARN };
    let log = fmt().with_max_level(most).with_writer(anstream::stderr);
    // It fails where a log was started before, which then is the log.
    let _ = match args.log {
        LogForm::Plain => tracing::subscriber::set_global_default(log.event_format(Plain).finish()),
        LogForm::Json => {
            let log = log.json().flatten_event(true).with_current_span(false);
            tracing::subscriber::set_global_default(log.with_span_list(false).finish())
        }
    };
}

/// Reports a failure as the log's form wants it: a program that reads JSON reads nothing else.
pub(crate) fn report(args: LogArgs, failure: Failure) -> Result<ExitCode, Failure> {
    match args.log {
        LogForm::Plain => Err(failure),
        LogForm::Json => {
            tracing::error!("{}", failure.line());
            Ok(ExitCode::from(2))
        }
    }
}

/// Lines as every command writes them: `warning: text`, with fields behind.
struct Plain;

impl<S, N> FormatEvent<S, N> for Plain
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (word, style) = match *event.metadata().level() {
            Level::ERROR => ("error", AnsiColor::Red.on_default().bold()),
            Level::WARN => ("warning", AnsiColor::Yellow.on_default().bold()),
            _ => ("info", Style::new().bold()),
        };
        // The stream leaves the colours out where they do not belong.
        write!(writer, "{style}{word}:{style:#} ")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
