//! One request, whatever the protocol, and the meaning of its answer.

#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod remedy;
#[cfg(feature = "tls")]
mod tls;

use std::net::IpAddr;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use submeter_address::{Address, AddressError, Url};
use ureq::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::builder::{Builder, Endpoint, Protocol};
use crate::error::SettingError;

/// How many bytes of an answer are read at most, as in the specification. A receiver that has much
/// to say about rejected points has accepted the others.
const ANSWER_MAX: usize = 4 << 20;

const USER_AGENT: &str = concat!("OTel-OTLP-Exporter-submeter/", env!("CARGO_PKG_VERSION"));

/// The outcome of a request.
pub(crate) enum Outcome {
    /// The receiver has it, except for this many points, and says why.
    Accepted { rejected: u64, why: String },
    /// It must not be repeated.
    Refused(String),
    /// Its outcome is unknown, or the receiver is overloaded: the same request may be sent again.
    Again { why: String, after: Option<Duration> },
}

/// A protocol.
pub(crate) trait Client: Send {
    /// Makes the bytes of a request that are kept until it has arrived.
    fn body(&self, request: &ExportMetricsServiceRequest) -> Vec<u8>;

    fn send(&self, body: &[u8]) -> Outcome;
}

pub(crate) fn client(settings: &Builder) -> Result<Box<dyn Client>, SettingError> {
    let url = settings.url().map_err(|(address, error)| {
        let like = like(settings.protocol);
        SettingError::new(format!("endpoint \"{address}\": {error}: {like}"))
    })?;
    let target = Target::new(&url, settings)?;
    let headers = headers(settings, &url)?;
    match settings.protocol {
        Protocol::Http => Ok(Box::new(http::Http::new(target, headers, settings)?)),
        #[cfg(feature = "grpc")]
        Protocol::Grpc => Ok(Box::new(grpc::Grpc::new(target, headers, settings)?)),
        #[cfg(not(feature = "grpc"))]
        Protocol::Grpc => Err(SettingError::new(
            "this build has no gRPC: enable the feature `grpc`, or use http/protobuf".into(),
        )),
    }
}

impl Builder {
    /// Returns the URL to send to, or the address that is not a URL, and why.
    pub(crate) fn url(&self) -> Result<Url, (Address, AddressError)> {
        let (address, path) = match (&self.endpoint, self.protocol) {
            (Endpoint::Local, Protocol::Http) => {
                (&Address::new("http://localhost:4318"), Some("/v1/metrics"))
            }
            (Endpoint::Local, Protocol::Grpc) => (&Address::new("http://localhost:4317"), None),
            (Endpoint::Receiver(address), Protocol::Http) => (address, Some("/v1/metrics")),
            (Endpoint::Receiver(address), Protocol::Grpc) | (Endpoint::Exact(address), _) => {
                (address, None)
            }
        };
        let url = address.url().map_err(|error| (address.clone(), error))?;
        Ok(match path {
            Some(path) => url.join(path),
            None => url,
        })
    }
}

/// Where requests go.
struct Target {
    uri: Uri,
    /// The place as it may be shown.
    place: String,
    /// Whether it is this machine, which a proxy elsewhere cannot reach by that name.
    is_here: bool,
    /// The likely faults if a connection ends without a reason.
    guess: &'static str,
}

impl Target {
    fn new(url: &Url, settings: &Builder) -> Result<Target, SettingError> {
        let like = like(settings.protocol);
        let wrong = |what: &str| SettingError::new(format!("endpoint \"{url}\": {what}"));
        let uri: Uri = url.target().parse().map_err(|_| wrong(&format!("not a URL: {like}")))?;
        let hosts = url.hosts().unwrap_or_default();
        let [(host, _)] = hosts[..] else { return Err(wrong(like)) };
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_here = host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.to_canonical().is_loopback());
        if settings.protocol == Protocol::Grpc && !url.is_bare() {
            return Err(wrong(&format!("gRPC takes no path and no query: {like}")));
        }
        match url.scheme() {
            "http" => {}
            "https" if cfg!(feature = "tls") => {}
            "https" => {
                return Err(wrong(
                    "this build has no TLS: enable the feature `tls`, or send to a local collector \
                     over http",
                ));
            }
            _ => return Err(wrong(like)),
        }
        let guess = remedy::guess(&uri, settings);
        Ok(Target { uri, place: url.to_string(), is_here, guess })
    }
}

fn like(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Http => "write http://host:4318/v1/metrics",
        Protocol::Grpc => "write http://host:4317",
    }
}

/// Headers that each request sets itself: another value would be wrong, or cut the request short.
const OWN: [HeaderName; 9] = [
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

fn headers(settings: &Builder, url: &Url) -> Result<HeaderMap, SettingError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers.0 {
        // The value is not shown: it may be a password.
        let header = name.parse::<HeaderName>().ok().zip(value.parse::<HeaderValue>().ok());
        let (known, value) = header
            .ok_or_else(|| SettingError::new(format!("header {name:?}: invalid name or value")))?;
        if OWN.contains(&known) {
            let why = format!("header {name:?}: set by each request itself: leave it out");
            return Err(SettingError::new(why));
        }
        headers.append(known, value);
    }
    if let Some(authorization) = url.authorization()
        && !headers.contains_key(AUTHORIZATION)
    {
        headers.insert(AUTHORIZATION, authorization.try_into().expect("base64"));
    }
    Ok(headers)
}

fn accepted(answer: ExportMetricsServiceResponse) -> Outcome {
    let partial = answer.partial_success.unwrap_or_default();
    let rejected = u64::try_from(partial.rejected_data_points).unwrap_or(0);
    Outcome::Accepted { rejected, why: plain(&partial.error_message).unwrap_or_default() }
}

/// Maximum number of characters of a receiver's text that are shown.
const SHOWN_MAX: usize = 200;

/// Returns the first line of a receiver's text, up to a bound, if people can read it: no page, and
/// nothing that would control the terminal that shows the log.
fn plain(text: &str) -> Option<String> {
    let line: String = text.lines().next()?.trim().chars().take(SHOWN_MAX).collect();
    let is_plain = !line.starts_with(['<', '{']) && !line.contains(char::is_control);
    (is_plain && !line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use submeter::{Schema, Tree};

    use super::*;

    #[test]
    fn a_local_receiver_is_asked_without_a_proxy() {
        let tree = Tree::new(Schema::builder().build().expect("valid")).expect("room");
        for (host, is_here) in [
            ("localhost", true),
            ("LOCALHOST", true),
            ("127.0.0.1", true),
            ("127.7.7.7", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost.example", false),
            ("10.0.0.1", false),
            ("[::2]", false),
        ] {
            let settings = Builder::new(&tree).receiver(&format!("http://{host}:4318"));
            let url = settings.url().unwrap_or_else(|_| panic!("{host} is a host"));
            let target = Target::new(&url, &settings).unwrap_or_else(|_| panic!("{host}"));
            assert_eq!(target.is_here, is_here, "{host}");
        }
    }
}
