//! A request over HTTP.

use std::io::Write;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use prost::Message;
use ureq::http::{HeaderMap, StatusCode};
use ureq::{Agent, Body};

use super::{ANSWER_MAX, Client, Outcome, Target, USER_AGENT, accepted, plain, remedy};
use crate::builder::Builder;
use crate::error::SettingError;

pub(super) struct Http {
    agent: Agent,
    target: Target,
    headers: HeaderMap,
    gzip: bool,
}

impl Http {
    pub(super) fn new(
        target: Target,
        headers: HeaderMap,
        settings: &Builder,
    ) -> Result<Http, SettingError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(settings.timeout))
            // A redirect that sends data elsewhere would be a surprise.
            .max_redirects(0)
            .max_redirects_will_error(false)
            // If the receiver has closed an idle connection since the last export, that looks like
            // a failure in which it is unknown whether the request was read.
            .max_idle_connections(0)
            .user_agent(USER_AGENT);
        let config = if target.is_here { config.proxy(None) } else { config };
        #[cfg(feature = "tls")]
        let config = match target.uri.scheme_str() {
            Some("https") => config.tls_config(super::tls::Files::read(settings)?.http()?),
            _ => config,
        };
        Ok(Http { agent: config.build().into(), target, headers, gzip: settings.gzip })
    }
}

impl Client for Http {
    fn body(&self, request: &ExportMetricsServiceRequest) -> Vec<u8> {
        let bytes = request.encode_to_vec();
        if !self.gzip {
            return bytes;
        }
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to a vector cannot fail.
        match gzip.write_all(&bytes).and_then(|()| gzip.finish()) {
            Ok(bytes) => bytes,
            Err(error) => unreachable!("a vector takes all: {error}"),
        }
    }

    fn send(&self, body: &[u8]) -> Outcome {
        let mut request =
            self.agent.post(&self.target.uri).header("content-type", "application/x-protobuf");
        if self.gzip {
            request = request.header("content-encoding", "gzip");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut answer = match request.send(body) {
            Ok(answer) => answer,
            Err(error) => return self.again(&error),
        };
        let status = answer.status();
        let after = retry_after(answer.headers(), SystemTime::now());
        let kind = answer.body().mime_type();
        let json = kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
        let body = read(answer.body_mut());
        if status.is_success() {
            return self.answered(body, json);
        }
        let says = body.ok().and_then(|body| said(&body));
        let says = says.map(|text| format!(": {text}")).unwrap_or_default();
        let why = format!("{} answered {status}{says}", self.place());
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Outcome::Again { why, after },
            _ => Outcome::Refused(why),
        }
    }
}

impl Http {
    fn answered(&self, body: Result<Vec<u8>, ureq::Error>, json: bool) -> Outcome {
        let body = match body {
            Ok(body) => body,
            Err(ureq::Error::BodyExceedsLimit(_)) => {
                return Outcome::Refused(format!(
                    "{} answered too much: not a receiver",
                    self.place()
                ));
            }
            Err(error) => return self.again(&error),
        };
        // It violates the specification, but it is an answer of a receiver.
        if json {
            return Outcome::Accepted { rejected: 0, why: String::new() };
        }
        let Ok(answer) = ExportMetricsServiceResponse::decode(&body[..]) else {
            let text = "does not answer like a receiver: specify its exact URL, with /v1/metrics";
            return Outcome::Refused(format!("{} {text}", self.place()));
        };
        accepted(answer)
    }

    fn place(&self) -> &str {
        &self.target.place
    }

    fn again(&self, error: &ureq::Error) -> Outcome {
        Outcome::Again {
            why: remedy::explain(&self.target.place, error, self.target.guess),
            after: None,
        }
    }
}

fn read(body: &mut Body) -> Result<Vec<u8>, ureq::Error> {
    body.with_config().limit(ANSWER_MAX as u64).read_to_vec()
}

/// Returns how long an answer asks to wait: `Retry-After` in either of its forms, which are seconds
/// and a date, by RFC 9110, 10.2.3.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let after = text("retry-after")?;
    if !after.is_empty() && after.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number too large to parse is long enough.
        return Some(Duration::from_secs(after.parse().unwrap_or(u64::MAX)));
    }
    // By the clock of the sender, which may be wrong, as may this one.
    let now = text("date").and_then(date).unwrap_or(now);
    Some(date(after)?.duration_since(now).unwrap_or_default())
}

/// What the specification has a receiver answer with if it does not accept a request, as far as it
/// is read: `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "2")]
    message: String,
}

/// Returns what an answer says, in a `Status` or as plain text, if people can read it.
fn said(body: &[u8]) -> Option<String> {
    let status = Status::decode(body).ok().map(|status| status.message);
    let status = status.filter(|message| !message.is_empty());
    plain(status.as_deref().or_else(|| str::from_utf8(body).ok())?)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// The time to retry is a number or a date in any of its forms.
    #[test]
    fn when_to_try_again_is_a_number_or_a_date() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (says, at, waits) in [
            ("7", None, Some(7)),
            ("0", None, Some(0)),
            ("99999999999999999999999", None, Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:44 GMT", None, Some(7)),
            ("Sunday, 06-Nov-94 08:49:44 GMT", None, Some(7)),
            ("Sun Nov  6 08:49:44 1994", None, Some(7)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None, Some(0)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", None, Some(0)),
            ("Mon, 06 Nov 2000 08:49:44 GMT", Some("Mon, 06 Nov 2000 08:49:37 GMT"), Some(7)),
            ("Sun, 06 Nov 1994 08:49:44 GMT", Some("yesterday"), Some(7)),
            ("7", Some("Mon, 06 Nov 2000 08:49:37 GMT"), Some(7)),
            ("Mon, 06 Nov 1994 08:49:44 GMT", None, None),
            ("Sun, 06 Nov 1994 08:49:44 CET", None, None),
            ("Sun, 31 Feb 1994 08:49:44 GMT", None, None),
            ("+7", None, None),
            ("-7", None, None),
            ("7.5", None, None),
            ("soon", None, None),
            ("", None, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", says.parse().expect("a value"));
            if let Some(at) = at {
                headers.insert("date", at.parse().expect("a value"));
            }
            let waits = waits.map(Duration::from_secs);
            assert_eq!(retry_after(&headers, now), waits, "{says} at {at:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
