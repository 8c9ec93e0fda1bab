//! `--otlp`: exports the cache's metrics to an OpenTelemetry receiver.

use submeter_address::Address;
use submeter_cache::Cache;
use submeter_terminal::Failure;

#[cfg(feature = "otlp")]
use std::time::Duration;
#[cfg(feature = "otlp")]
use submeter_address::Url;
#[cfg(feature = "otlp")]
use submeter_otlp::{ExportError, Protocol};

#[cfg(feature = "otlp")]
pub(super) type Exporter = submeter_otlp::Exporter;
#[cfg(not(feature = "otlp"))]
pub(super) type Exporter = std::convert::Infallible;

/// Where metrics go, and how.
pub(super) struct Plan {
    pub(super) receiver: Address,
    pub(super) protocol: Option<String>,
}

/// Starts to export.
pub(super) fn start(plan: &Plan, cache: &Cache, member: &str) -> Result<Exporter, Failure> {
    let Plan { receiver, protocol } = plan;
    #[cfg(feature = "otlp")]
    return to(receiver, protocol.as_deref(), cache, member);
    #[cfg(not(feature = "otlp"))]
    {
        let _ = (protocol, cache, member);
        Err(Failure::new(format_args!(
            "cannot send to {receiver}: this build has no OTLP: build it with `cargo install submeter-cli \
             --features otlp`"
        )))
    }
}

#[cfg(feature = "otlp")]
fn to(
    address: &Address,
    protocol: Option<&str>,
    cache: &Cache,
    member: &str,
) -> Result<Exporter, Failure> {
    let exporter = Exporter::builder(cache.tree()).service("submeter").prefix("submeter.cache");
    // The same name as in bills, so that a restart is a new start of the same series.
    let exporter = exporter.resource("service.instance.id", member);
    let mut exporter = exporter.environment().map_err(Failure::new)?.report(tell);
    if let Some(protocol) = protocol {
        let grpc = protocol == "grpc";
        exporter = exporter.protocol(if grpc { Protocol::Grpc } else { Protocol::Http });
    }
    // Treated like the variable OTEL_EXPORTER_OTLP_ENDPOINT, which it replaces, except that the
    // path of HTTP may already be part of it.
    let is_whole = |url: Url| url.path().trim_end_matches('/').ends_with("/v1/metrics");
    let has_path = address.url().is_ok_and(is_whole);
    let url = address.secret();
    let whole = || url.trim_end_matches('/');
    let exporter = if has_path { exporter.endpoint(whole()) } else { exporter.receiver(url) };
    exporter.start().map_err(|e| Failure::new(format_args!("--otlp: {e}")))
}

#[cfg(feature = "otlp")]
fn tell(error: Option<&ExportError>) {
    match error {
        Some(error) => log::warn!("cannot send metrics, keeping them: {error}"),
        None => log::info!("metrics are sent again"),
    }
}

/// How long the last export may take before a message says what the end waits for, and how long it
/// may take at all. A service manager that is to stop the server has patience for more.
#[cfg(feature = "otlp")]
const PATIENCE: Duration = Duration::from_millis(500);
#[cfg(feature = "otlp")]
const LAST_EXPORT: Duration = Duration::from_secs(5);

/// Sends what is new since the last export, and warns if that does not arrive in time. A second
/// signal ends the process in the meantime.
pub(super) async fn finish(exporter: Option<Exporter>) {
    let Some(exporter) = exporter else { return };
    #[cfg(feature = "otlp")]
    {
        let sent_until = exporter.stats().sent_until;
        let mut sent = tokio::task::spawn_blocking(|| exporter.shutdown_within(LAST_EXPORT));
        let sent = match tokio::time::timeout(PATIENCE, &mut sent).await {
            Ok(sent) => sent,
            Err(_) => {
                log::warn!(
                    "the receiver of --otlp has not accepted the last export yet: waiting for at \
                     most {LAST_EXPORT:?}; Ctrl-C loses it"
                );
                sent.await
            }
        };
        if let Ok(Err(e)) = sent {
            let lost = match sent_until {
                Some(at) => {
                    format!("what was counted since {}", humantime::format_rfc3339_seconds(at))
                }
                None => "all that was counted".to_owned(),
            };
            log::warn!("the last export failed: {e}: {lost} may be lost to the receiver");
        }
    }
    #[cfg(not(feature = "otlp"))]
    match exporter {}
}
