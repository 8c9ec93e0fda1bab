//! `--otlp`: the cache's metrics at a receiver of OpenTelemetry.

use submeter_cache::Cache;
use submeter_terminal::Failure;

use crate::cli::ServeArgs;

#[cfg(feature = "otlp")]
pub(super) type Exporter = submeter_otlp::Exporter;
#[cfg(not(feature = "otlp"))]
pub(super) type Exporter = std::convert::Infallible;

/// Starts to export, if that is asked for.
pub(super) fn start(args: &ServeArgs, cache: &Cache) -> Result<Option<Exporter>, Failure> {
    let Some(url) = &args.otlp else { return Ok(None) };
    #[cfg(feature = "otlp")]
    return to(url, cache).map(Some);
    #[cfg(not(feature = "otlp"))]
    {
        let _ = cache;
        Err(Failure::new(format_args!(
            "cannot send to {url}: this build has no OTLP: build it with `cargo install submeter-cli \
             --features otlp`"
        )))
    }
}

#[cfg(feature = "otlp")]
fn to(url: &str, cache: &Cache) -> Result<Exporter, Failure> {
    // As the variable OTEL_EXPORTER_OTLP_ENDPOINT, of which it takes the place: a receiver has a
    // path for each signal.
    let base = url.trim_end_matches('/');
    let endpoint = if base.ends_with("/v1/metrics") { base } else { &format!("{base}/v1/metrics") };
    let exporter = Exporter::builder(cache.tree()).service("submeter").prefix("submeter.cache");
    let exporter = exporter.environment().map_err(Failure::new)?.endpoint(endpoint);
    exporter.start().map_err(|e| Failure::new(format_args!("--otlp: {e}")))
}

/// Sends what is new since the last export, and warns if that does not arrive.
pub(super) async fn finish(exporter: Option<Exporter>) {
    let Some(exporter) = exporter else { return };
    #[cfg(feature = "otlp")]
    if let Ok(Err(e)) = tokio::task::spawn_blocking(|| exporter.shutdown()).await {
        tracing::warn!("the last export has not arrived: {e}");
    }
    #[cfg(not(feature = "otlp"))]
    match exporter {}
}
