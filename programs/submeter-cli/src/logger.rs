//! The log of a server: its actions and warnings, on standard error.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use serde_json::{Map, json};
use submeter_terminal::{self as show, Failure};

use crate::cli::{LogArgs, LogForm};

/// Starts the log of the process. Without flags it has only warnings, each on one line.
pub(crate) fn start(args: LogArgs) {
    let log = match args.log {
        LogForm::Plain => &Logger(plain),
        LogForm::Json => &Logger(json),
    };
    // This fails if a log was started before; that log then stays.
    if log::set_logger(log).is_ok() {
        log::set_max_level(if args.verbose { LevelFilter::Info } else { LevelFilter::Warn });
    }
}

/// Reports a failure in the log's format: a program that reads JSON reads nothing else.
pub(crate) fn report(args: LogArgs, failure: Failure) -> Result<ExitCode, Failure> {
    match args.log {
        LogForm::Plain => Err(failure),
        LogForm::Json => {
            log::error!("{}", failure.line());
            Ok(ExitCode::from(2))
        }
    }
}

/// A logger that writes each record in one format and as a whole.
struct Logger(fn(&Record<'_>) -> String);

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Records of dependencies are of no use to an operator.
        metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            show::tell(&(self.0)(record));
        }
    }

    fn flush(&self) {}
}

/// Formats a record as every command does: `warning: text`, followed by the fields.
fn plain(record: &Record<'_>) -> String {
    let (word, style) = match record.level() {
        Level::Error => ("error", AnsiColor::Red.on_default().bold()),
        Level::Warn => ("warning", AnsiColor::Yellow.on_default().bold()),
        _ => ("info", Style::new().bold()),
    };
    let mut line = record.args().to_string();
    each_field(record, |name, value| {
        // A text may come from a client and contain line breaks.
        let _ = match value.to_borrowed_str() {
            Some(text) => write!(line, " {name}={text:?}"),
            None => write!(line, " {name}={value}"),
        };
    });
    // The line contains names that clients choose.
    format!("{style}{word}:{style:#} {}\n", show::plain(&line))
}

/// Formats a record as an object, with fields beside the message.
fn json(record: &Record<'_>) -> String {
    let mut object = Map::new();
    let at = humantime::format_rfc3339_micros(SystemTime::now());
    object.insert("timestamp".to_owned(), json!(at.to_string()));
    object.insert("level".to_owned(), json!(record.level().as_str()));
    object.insert("message".to_owned(), json!(record.args().to_string()));
    each_field(record, |name, value| {
        let number = value.to_u64().map(|number| json!(number));
        object.insert(name.to_owned(), number.unwrap_or_else(|| json!(value.to_string())));
    });
    object.insert("target".to_owned(), json!(record.target()));
    json!(object).to_string() + "\n"
}

fn each_field(record: &Record<'_>, each: impl FnMut(&str, &Value<'_>)) {
    // This fails only if the visitor does.
    let _ = record.key_values().visit(&mut Each(each));
}

struct Each<F>(F);

impl<'kvs, F: FnMut(&str, &Value<'_>)> VisitSource<'kvs> for Each<F> {
    fn visit_pair(&mut self, name: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        (self.0)(name.as_str(), &value);
        Ok(())
    }
}
