//! Where metrics are sent to, and how.

use std::time::Duration;

use submeter::Tree;

/// Whether values count from the start of a series or from the last export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Temporality {
    /// From the start: a request that is lost, or arrives twice, does no harm.
    #[default]
    Cumulative,
    /// From the last export that arrived: groups in which nothing happened are not sent.
    Delta,
}

/// The settings of an [`Exporter`](crate::Exporter), which
/// [`builder`](crate::Exporter::builder) begins.
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
    pub(crate) endpoint: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) gzip: bool,
    pub(crate) timeout: Duration,
    pub(crate) interval: Duration,
    pub(crate) temporality: Temporality,
    pub(crate) exponential: bool,
    pub(crate) depth: usize,
    pub(crate) prefix: String,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) disabled: bool,
}

impl Builder {
    pub(crate) fn new(tree: &Tree) -> Builder {
        Builder {
            tree: tree.clone(),
            endpoint: "http://localhost:4318/v1/metrics".into(),
            headers: Vec::new(),
            gzip: false,
            timeout: Duration::from_secs(10),
            interval: Duration::from_secs(60),
            temporality: Temporality::Cumulative,
            exponential: false,
            depth: usize::MAX,
            prefix: String::new(),
            resource: vec![("service.name".into(), "unknown_service".into())],
            disabled: false,
        }
    }

    /// Sends to this URL, which is used as it is: `http://localhost:4318/v1/metrics` unless this is
    /// called.
    pub fn endpoint(mut self, url: &str) -> Builder {
        self.endpoint = url.into();
        self
    }

    /// Adds a header to each request, as receivers want them to know who sends.
    pub fn header(mut self, name: &str, value: &str) -> Builder {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Compresses requests, to about a tenth. Costs CPU time at each export.
    pub fn gzip(mut self, gzip: bool) -> Builder {
        self.gzip = gzip;
        self
    }

    /// Gives the receiver so long to answer, 10 s unless this is called.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.timeout = timeout;
        self
    }

    /// Exports so often, each minute unless this is called.
    pub fn interval(mut self, interval: Duration) -> Builder {
        self.interval = interval;
        self
    }

    /// Counts from the start of series, unless this is called, or from the last export.
    pub fn temporality(mut self, temporality: Temporality) -> Builder {
        self.temporality = temporality;
        self
    }

    /// Sends histograms as exponential ones, of scale 0, which need no bounds on the wire.
    ///
    /// Their buckets contain their upper bound and not the lower one, submeter's the lower and not
    /// the upper: of the values that are powers of two each is one bucket too high. What is below
    /// the first bound is in the zero bucket, and the last bucket, which has no end, has one there.
    pub fn exponential(mut self, exponential: bool) -> Builder {
        self.exponential = exponential;
        self
    }

    /// Sends no group deeper than `depth`, the root being at 0: what is below is in the values of
    /// the group at that depth.
    pub fn depth(mut self, depth: usize) -> Builder {
        self.depth = depth;
        self
    }

    /// Begins the names of all metrics with `prefix` and a dot.
    pub fn prefix(mut self, prefix: &str) -> Builder {
        self.prefix = format!("{prefix}.");
        self
    }

    /// Names the service, `unknown_service` unless this is called.
    pub fn service(self, name: &str) -> Builder {
        self.resource("service.name", name)
    }

    /// Sets an attribute of the process, such as `service.instance.id`, which tells apart several
    /// of one service.
    pub fn resource(mut self, key: &str, value: &str) -> Builder {
        self.resource.retain(|(known, _)| known != key);
        self.resource.push((key.into(), value.into()));
        self
    }
}
