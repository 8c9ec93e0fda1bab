//! The group in each line of a log.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use submeter_tracing::{GroupPrefix, TenantLayer};
use tracing::{info, info_span};
use tracing_subscriber::layer::SubscriberExt;

use super::tree;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line has the current group, and no name looks like two fields.
#[test]
fn a_line_has_the_current_group_as_one_field() {
    let tree = tree();
    let log = Log::default();
    let to = log.clone();
    let format = tracing_subscriber::fmt::format().without_time().with_target(false);
    let lines = tracing_subscriber::fmt::layer()
        .event_format(GroupPrefix(format.with_ansi(false)))
        .with_writer(move || to.clone());
    let layer = TenantLayer::new(tree.root());
    tracing::subscriber::with_default(
        tracing_subscriber::registry().with(layer).with(lines),
        || {
            info!("outside");
            info_span!("request", tenant = "acme").in_scope(|| info!("inside"));
            info_span!("request", tenant = "a\" group=\"beta").in_scope(|| info!("hostile"));
        },
    );
    let text = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(lines[0].trim_start(), "INFO outside");
    assert!(lines[1].starts_with("group=\"/acme\" ") && lines[1].contains("inside"), "{text}");
    let forged = r#"group="/a\" group=\"beta" "#;
    assert!(lines[2].starts_with(forged) && lines[2].contains("hostile"), "{text}");
}
