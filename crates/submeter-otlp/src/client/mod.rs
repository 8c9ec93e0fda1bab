//! One request, whatever the protocol, and what its answer means.

#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod remedy;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::builder::{Builder, Endpoint, Protocol};
use crate::error::SettingError;

/// The most that is read of an answer.
const ANSWER_MAX: usize = 64 << 10;

const USER_AGENT: &str = concat!("OTel-OTLP-Exporter-submeter/", env!("CARGO_PKG_VERSION"));

/// What became of a request.
pub(crate) enum Outcome {
    /// The receiver has it, but for so many points, and says why.
    Accepted { rejected: u64, why: String },
    /// It must not be repeated.
    Refused(String),
    /// It is unknown, or the receiver has no time: the same may be sent again.
    Again { why: String, after: Option<Duration> },
}

/// A protocol.
pub(crate) trait Client: Send {
    /// Makes the bytes that are kept of a request until it has arrived.
    fn body(&self, request: &ExportMetricsServiceRequest) -> Vec<u8>;

    fn send(&self, body: &[u8]) -> Outcome;
}

pub(crate) fn client(settings: &Builder) -> Result<Box<dyn Client>, SettingError> {
    let uri = uri(settings)?;
    let headers = headers(settings)?;
    match settings.protocol {
        Protocol::Http => Ok(Box::new(http::Http::new(uri, headers, settings)?)),
        #[cfg(feature = "grpc")]
        Protocol::Grpc => Ok(Box::new(grpc::Grpc::new(uri, headers, settings)?)),
        #[cfg(not(feature = "grpc"))]
        Protocol::Grpc => Err(SettingError::new(
            "there is no gRPC in this build: build it with the feature `grpc`, or send by \
             http/protobuf"
                .into(),
        )),
    }
}

impl Builder {
    pub(crate) fn url(&self) -> String {
        match (&self.endpoint, self.protocol) {
            (Endpoint::Local, Protocol::Http) => "http://localhost:4318/v1/metrics".into(),
            (Endpoint::Local, Protocol::Grpc) => "http://localhost:4317".into(),
            (Endpoint::Receiver(url), Protocol::Http) => {
                format!("{}/v1/metrics", url.trim_end_matches('/'))
            }
            (Endpoint::Receiver(url), Protocol::Grpc) | (Endpoint::Exact(url), _) => url.clone(),
        }
    }
}

fn uri(settings: &Builder) -> Result<Uri, SettingError> {
    let url = settings.url();
    let like = match settings.protocol {
        Protocol::Http => "write http://host:4318/v1/metrics",
        Protocol::Grpc => "write http://host:4317",
    };
    let wrong =
        |what: &str| SettingError::new(format!("endpoint {:?}: {what}", remedy::shown(&url)));
    let uri: Uri = url.parse().map_err(|_| wrong(&format!("not a URL: {like}")))?;
    if uri.host().is_none_or(str::is_empty) {
        return Err(wrong(like));
    }
    if settings.protocol == Protocol::Grpc && !["", "/"].contains(&uri.path()) {
        return Err(wrong(&format!("gRPC has paths of its own: {like}")));
    }
    match uri.scheme_str() {
        Some("http") => Ok(uri),
        Some("https") if cfg!(feature = "tls") => Ok(uri),
        Some("https") => Err(wrong(
            "there is no TLS in this build: build it with the feature `tls`, or send to a \
             collector beside by http",
        )),
        _ => Err(wrong(like)),
    }
}

fn headers(settings: &Builder) -> Result<HeaderMap, SettingError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        // The value is not shown: it may be a password.
        let header = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
        let (known, value) = header.ok_or_else(|| {
            SettingError::new(format!("header {name:?}: HTTP has no such name or value"))
        })?;
        headers.append(known, value);
    }
    Ok(headers)
}

fn accepted(answer: ExportMetricsServiceResponse) -> Outcome {
    let partial = answer.partial_success.unwrap_or_default();
    let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0);
    Outcome::Accepted { rejected, why: partial.error_message }
}
