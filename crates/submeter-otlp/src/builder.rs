//! Where metrics are sent, and how.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use submeter::Tree;
use submeter_address::Address;

use crate::error::ExportError;

/// By default, gRPC servers accept 4 MiB, and collectors' HTTP servers 20 MiB.
const REQUEST_MAX: usize = 3 << 20;

/// Whether values count from the start of a series or from the last export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Temporality {
    /// From the start: a request that is lost, or arrives twice, does no harm.
    #[default]
    Cumulative,
    /// From the last export that arrived: groups in which nothing happened are not sent.
    Delta,
}

/// The protocol by which requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// Protobuf over HTTP/1.1, usually to port 4318.
    #[default]
    Http,
    /// gRPC, usually to port 4317; in builds with the feature `grpc`.
    Grpc,
}

/// The URL that requests are sent to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Endpoint {
    /// A receiver on this machine, at the protocol's default port.
    #[default]
    Local,
    /// A receiver's URL, as the protocol interprets it.
    Receiver(Address),
    /// The URL as it is.
    Exact(Address),
}

/// Headers of each request, whose values may be secrets.
#[derive(Clone, Default)]
pub(crate) struct Headers(pub(crate) Vec<(String, String)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

type Tell = dyn Fn(Option<&ExportError>) + Send + Sync;

/// The function to call when exports begin to fail.
#[derive(Clone)]
pub(crate) struct Report(pub(crate) Arc<Tell>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// The settings of an [`Exporter`](crate::Exporter), started by
/// [`builder`](crate::Exporter::builder).
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use submeter::{Schema, Tree};
/// use submeter_otlp::{Exporter, Temporality};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let exporter = Exporter::builder(&tree)
///     .service("shop")
///     .endpoint("http://127.0.0.1:4318/v1/metrics")
///     .temporality(Temporality::Delta)
///     .interval(Duration::from_secs(10))
///     .timeout(Duration::from_millis(100))
///     .start()?;
/// # drop(exporter);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    pub(crate) tree: Tree,
    pub(crate) protocol: Protocol,
    pub(crate) endpoint: Endpoint,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) client_certificate: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
    pub(crate) report: Option<Report>,
    pub(crate) headers: Headers,
    pub(crate) gzip: bool,
    pub(crate) timeout: Duration,
    pub(crate) interval: Duration,
    pub(crate) temporality: Temporality,
    pub(crate) exponential: bool,
    pub(crate) depth: usize,
    pub(crate) request_max: usize,
    pub(crate) prefix: String,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) disabled: bool,
}

impl Builder {
    pub(crate) fn new(tree: &Tree) -> Builder {
        Builder {
            tree: tree.clone(),
            protocol: Protocol::Http,
            endpoint: Endpoint::Local,
            certificate: None,
            client_certificate: None,
            client_key: None,
            report: None,
            headers: Headers::default(),
            gzip: false,
            timeout: Duration::from_secs(10),
            interval: Duration::from_secs(60),
            temporality: Temporality::Cumulative,
            exponential: false,
            depth: usize::MAX,
            request_max: REQUEST_MAX,
            prefix: String::new(),
            resource: known_of_the_process(),
            disabled: false,
        }
    }

    /// Sets the protocol. The default is HTTP.
    pub fn protocol(mut self, protocol: Protocol) -> Builder {
        self.protocol = protocol;
        self
    }

    /// Sends to exactly this URL. The default, unless [`receiver`](Builder::receiver) is called, is
    /// `http://localhost:4318/v1/metrics`, or `http://localhost:4317` with gRPC. `https` uses TLS,
    /// in builds with the feature `tls`. A percent-encoded user and password in it are sent as
    /// `authorization`, unless there is such a [header](Builder::header).
    pub fn endpoint(mut self, url: &str) -> Builder {
        self.endpoint = Endpoint::Exact(Address::new(url));
        self
    }

    /// Sends to the receiver at this URL. HTTP adds `/v1/metrics` to its path, as it does for
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn receiver(mut self, url: &str) -> Builder {
        self.endpoint = Endpoint::Receiver(Address::new(url));
        self
    }

    /// Trusts only the authorities in this PEM file instead of those of the system. It is read when
    /// the exporter starts, and again after a failed export: it may have been renewed.
    pub fn certificate(mut self, file: impl Into<PathBuf>) -> Builder {
        self.certificate = Some(file.into());
        self
    }

    /// Shows the receiver a certificate, followed by its chain, with its key, both files in PEM.
    /// They are read when that of [`certificate`](Builder::certificate) is.
    pub fn client_certificate(
        mut self,
        file: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Builder {
        self.client_certificate = Some(file.into());
        self.client_key = Some(key.into());
        self
    }

    /// Calls `tell` on the exporter's thread when exports at intervals begin to fail, or fail for
    /// another reason, and with `None` once they arrive again. Errors returned by
    /// [`export`](crate::Exporter::export) and [`shutdown`](crate::Exporter::shutdown) are not
    /// reported again.
    pub fn report(
        mut self,
        tell: impl Fn(Option<&ExportError>) + Send + Sync + 'static,
    ) -> Builder {
        self.report = Some(Report(Arc::new(tell)));
        self
    }

    /// Adds a header to each request, such as one that identifies the sender to the receiver.
    pub fn header(mut self, name: &str, value: &str) -> Builder {
        self.headers.0.push((name.into(), value.into()));
        self
    }

    /// Compresses requests, to about a tenth. Costs CPU time at each export.
    pub fn gzip(mut self, gzip: bool) -> Builder {
        self.gzip = gzip;
        self
    }

    /// Sets how long the receiver may take to answer. The default is 10 s.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.timeout = timeout;
        self
    }

    /// Sets the time between exports. The default is a minute.
    pub fn interval(mut self, interval: Duration) -> Builder {
        self.interval = interval;
        self
    }

    /// Sets whether values count from the start of their series, the default, or from the last
    /// export.
    pub fn temporality(mut self, temporality: Temporality) -> Builder {
        self.temporality = temporality;
        self
    }

    /// Sends histograms as exponential ones, of scale 0, which need no bounds on the wire.
    ///
    /// Values up to the first bound are in the zero bucket. The last bucket is open here, and gets
    /// a bound there.
    pub fn exponential(mut self, exponential: bool) -> Builder {
        self.exponential = exponential;
        self
    }

    /// Sends no group deeper than `depth`, where the root is at 0: the values of a group at that
    /// depth include all groups below it.
    pub fn depth(mut self, depth: usize) -> Builder {
        self.depth = depth;
        self
    }

    /// Bounds the bytes of a request before compression. The default is 3 MiB, because gRPC servers
    /// accept 4 MiB by default. A larger export is sent in several requests, one after the other. A
    /// single group is never divided.
    pub fn request_max(mut self, bytes: usize) -> Builder {
        self.request_max = bytes;
        self
    }

    /// Makes the names of all metrics begin with `prefix` and a dot.
    pub fn prefix(mut self, prefix: &str) -> Builder {
        self.prefix = format!("{prefix}.");
        self
    }

    /// Names the service. The default is `unknown_service:` followed by the program's file name.
    pub fn service(self, name: &str) -> Builder {
        self.resource("service.name", name)
    }

    /// Sets an attribute of the process.
    ///
    /// `service.instance.id` distinguishes several processes of one service. The default is the
    /// [epoch](submeter::Snapshot::epoch), which changes with each restart.
    pub fn resource(mut self, key: &str, value: &str) -> Builder {
        self.attribute(key, value);
        self
    }

    pub(crate) fn attribute(&mut self, key: &str, value: &str) {
        self.resource.retain(|(known, _)| known != key);
        self.resource.push((key.into(), value.into()));
    }
}

/// Returns the attributes that every resource has by OpenTelemetry's specification.
fn known_of_the_process() -> Vec<(String, String)> {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).map(OsStr::to_string_lossy);
    let service =
        program.map_or("unknown_service".into(), |name| format!("unknown_service:{name}"));
    [
        ("service.name", &*service),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.name", env!("CARGO_PKG_NAME")),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ]
    .map(|(key, value)| (key.into(), value.into()))
    .into()
}
