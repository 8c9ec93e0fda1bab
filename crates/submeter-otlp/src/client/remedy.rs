//! What an error that nobody has answered says, and what to do about it.

use std::error::Error;
use std::io;

use ureq::http::Uri;

use crate::builder::{Builder, Protocol};

const LATE: &str = "give it longer by OTEL_EXPORTER_OTLP_TIMEOUT";

/// Returns an address without user, password and query, which may have a key in it.
pub(super) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let place = match before.rsplit_once('@') {
        Some((_, place)) => place,
        // The `?` may be of a password that is not escaped.
        None if query.contains('@') => "…",
        None => before,
    };
    if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") }
}

/// Returns what may be wrong where a connection just ends. That is all that is seen of a receiver
/// of the other protocol, and in TLS 1.3 of one that wants a certificate.
pub(super) fn guess(uri: &Uri, settings: &Builder) -> &'static str {
    match (settings.protocol, uri.scheme_str() == Some("https")) {
        (Protocol::Http, false) => {
            "if it wants gRPC, set OTEL_EXPORTER_OTLP_PROTOCOL=grpc; if TLS, write https"
        }
        (Protocol::Http, true) => {
            "if it wants gRPC, set OTEL_EXPORTER_OTLP_PROTOCOL=grpc; if a client's certificate, \
             OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
        }
        (Protocol::Grpc, false) => {
            "if it wants HTTP, set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf; if TLS, write https"
        }
        (Protocol::Grpc, true) => {
            "if it wants HTTP, set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf; if a client's \
             certificate, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
        }
    }
}

/// Returns where a request was sent to, `error` with what caused it, and a remedy: the one that is
/// known, or else `guess`.
pub(super) fn explain(uri: &Uri, error: &(dyn Error + 'static), guess: &str) -> String {
    let mut text = shown(&uri.to_string());
    let mut remedy = None;
    let mut next = Some(error);
    while let Some(cause) = next {
        let says = cause.to_string();
        // Some repeat what caused them.
        if !text.contains(&says) {
            text = format!("{text}: {says}");
        }
        remedy = remedy.or_else(|| of(cause));
        next = cause.source();
    }
    format!("{text}: {}", remedy.unwrap_or(guess))
}

#[cfg(feature = "grpc")]
pub(super) fn late(uri: &Uri) -> String {
    format!("{}: timeout: {LATE}", shown(&uri.to_string()))
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
                Some("start a receiver there, or name another by OTEL_EXPORTER_OTLP_ENDPOINT")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_secrets() {
        for (url, place) in [
            ("http://collector:4318/v1/metrics", "http://collector:4318/v1/metrics"),
            ("http://u:s3cret@collector:4318", "http://collector:4318"),
            ("https://collector/v1?api_key=s3cret", "https://collector/v1"),
            ("https://u:s3?cret@collector", "https://…"),
            ("u:s3cret@collector", "collector"),
        ] {
            assert_eq!(shown(url), place);
        }
    }
}
