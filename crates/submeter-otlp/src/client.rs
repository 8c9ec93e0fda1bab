//! One request over HTTP, and what its answer means.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use ureq::http::{HeaderName, HeaderValue, StatusCode, Uri};
use ureq::{Agent, Body};

use crate::builder::Builder;
use crate::error::SettingError;

/// The most that is read of an answer.
const ANSWER_MAX: u64 = 64 << 10;

/// What became of a request.
pub(crate) enum Outcome {
    /// The receiver has it, but for so many points, and says why.
    Accepted { rejected: u64, why: String },
    /// It must not be repeated.
    Refused(String),
    /// It is unknown, or the receiver has no time: the same may be sent again.
    Again { why: String, after: Option<Duration> },
}

pub(crate) struct Client {
    agent: Agent,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    gzip: bool,
}

impl Client {
    pub(crate) fn new(settings: &Builder) -> Result<Client, SettingError> {
        let endpoint = &settings.endpoint;
        let wrong = |what: &str| SettingError::new(format!("endpoint {endpoint:?}: {what}"));
        let uri: Uri =
            endpoint.parse().map_err(|_| wrong("not a URL: write http://host:4318/v1/metrics"))?;
        match uri.scheme_str() {
            Some("http") if uri.host().is_some_and(|host| !host.is_empty()) => {}
            Some("https") => {
                return Err(wrong("there is no TLS here: send to a collector beside by http"));
            }
            _ => return Err(wrong("write http://host:4318/v1/metrics")),
        }
        let mut headers = Vec::new();
        for (name, value) in &settings.headers {
            // The value is not shown: it may be a password.
            let header = name.parse().ok().zip(value.parse().ok());
            headers.push(header.ok_or_else(|| {
                SettingError::new(format!("header {name:?}: HTTP has no such name or value"))
            })?);
        }
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(settings.timeout))
            // What is sent elsewhere by a redirect would be a surprise.
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A connection that the receiver has closed since the last export looks like a failure
            // of which nobody knows whether the request was read.
            .max_idle_connections(0)
            .user_agent(concat!("OTel-OTLP-Exporter-submeter/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Client { agent, uri, headers, gzip: settings.gzip })
    }

    /// Makes the bytes that are sent of a request.
    pub(crate) fn body(&self, request: &impl Message) -> Vec<u8> {
        let bytes = request.encode_to_vec();
        if !self.gzip {
            return bytes;
        }
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        // A vector takes all.
        match gzip.write_all(&bytes).and_then(|()| gzip.finish()) {
            Ok(bytes) => bytes,
            Err(error) => unreachable!("a vector takes all: {error}"),
        }
    }

    pub(crate) fn send(&self, body: &[u8]) -> Outcome {
        let mut request =
            self.agent.post(&self.uri).header("content-type", "application/x-protobuf");
        if self.gzip {
            request = request.header("content-encoding", "gzip");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut answer = match request.send(body) {
            Ok(answer) => answer,
            Err(error) => {
                return Outcome::Again { why: format!("{}: {error}", self.uri), after: None };
            }
        };
        let status = answer.status();
        let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let after = after.and_then(|value| value.parse().ok()).map(Duration::from_secs);
        let json = answer
            .headers()
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.starts_with("application/json"));
        let body = read(answer.body_mut());
        match status {
            status if status.is_success() => self.accepted(body, json),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                Outcome::Again { why: format!("{} answered {status}", self.uri), after }
            }
            status => Outcome::Refused(format!("{} answered {status}", self.uri)),
        }
    }

    fn accepted(&self, body: Result<Vec<u8>, ureq::Error>, json: bool) -> Outcome {
        let body = match body {
            Ok(body) => body,
            Err(ureq::Error::BodyExceedsLimit(_)) => {
                return Outcome::Refused(format!("{} answers too much: no receiver", self.uri));
            }
            Err(error) => {
                return Outcome::Again { why: format!("{}: {error}", self.uri), after: None };
            }
        };
        // Against the specification, and yet an answer of a receiver.
        if json {
            return Outcome::Accepted { rejected: 0, why: String::new() };
        }
        let Ok(answer) = ExportMetricsServiceResponse::decode(&body[..]) else {
            let text = "answers what no receiver does: give its own URL, with /v1/metrics";
            return Outcome::Refused(format!("{} {text}", self.uri));
        };
        let partial = answer.partial_success.unwrap_or_default();
        let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0);
        Outcome::Accepted { rejected, why: partial.error_message }
    }
}

fn read(body: &mut Body) -> Result<Vec<u8>, ureq::Error> {
    body.with_config().limit(ANSWER_MAX).read_to_vec()
}
