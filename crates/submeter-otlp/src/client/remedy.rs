//! Texts of errors without an answer from the receiver, with their remedies.

use std::error::Error;
use std::io;

use ureq::http::Uri;

use crate::builder::{Builder, Protocol};

const LATE: &str = "raise OTEL_EXPORTER_OTLP_TIMEOUT";

/// Returns what may be wrong if a connection just ends. Nothing else is seen of a receiver of the
/// other protocol or, in TLS 1.3, of one that wants a certificate.
pub(super) fn guess(uri: &Uri, settings: &Builder) -> &'static str {
    match (settings.protocol, uri.scheme_str() == Some("https")) {
        (Protocol::Http, false) => {
            "if it expects gRPC, set OTEL_EXPORTER_OTLP_PROTOCOL=grpc; if TLS, use https"
        }
        (Protocol::Http, true) => {
            "if it expects gRPC, set OTEL_EXPORTER_OTLP_PROTOCOL=grpc; if a client certificate, \
             OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
        }
        (Protocol::Grpc, false) => {
            "if it expects HTTP, set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf; if TLS, use https"
        }
        (Protocol::Grpc, true) => {
            "if it expects HTTP, set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf; if a client \
             certificate, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
        }
    }
}

/// Returns the destination of a request, `error` with its causes, and a remedy: the known one, or
/// else `guess`.
pub(super) fn explain(place: &str, error: &(dyn Error + 'static), guess: &str) -> String {
    let mut text = place.to_owned();
    let mut remedy = None;
    let mut next = Some(error);
    while let Some(cause) = next {
        let says = cause.to_string();
        // Some errors repeat their cause.
        if !text.contains(&says) {
            text = format!("{text}: {says}");
        }
        remedy = remedy.or_else(|| of(cause));
        next = cause.source();
    }
    format!("{text}: {}", remedy.unwrap_or(guess))
}

#[cfg(feature = "grpc")]
pub(super) fn late(place: &str) -> String {
    format!("{place}: timeout: {LATE}")
}

fn of(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = cause.downcast_ref::<ureq::Error>() {
        return match error {
            ureq::Error::Timeout(_) => Some(LATE),
            ureq::Error::Io(error) => of(error),
            #[cfg(feature = "tls")]
            ureq::Error::Rustls(error) => of(error),
            _ => None,
        };
    }
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                Some("start a receiver there, or set another in OTEL_EXPORTER_OTLP_ENDPOINT")
            }
            _ => of(error.get_ref()?),
        };
    }
    #[cfg(feature = "grpc")]
    if cause.is::<tonic::TimeoutExpired>() {
        return Some(LATE);
    }
    #[cfg(feature = "tls")]
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return super::tls::remedy(error);
    }
    None
}
