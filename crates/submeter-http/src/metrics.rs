//! The metrics of requests.

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, Metrics, Nanoseconds, SchemaBuilder,
};

/// The keys of the metrics that [`MeterLayer`](super::MeterLayer) counts in the group of each
/// request.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HttpMetrics {
    /// `http_requests`: requests received.
    pub requests: Counter<Count>,
    /// `http_active_requests`: requests received whose responses have not ended.
    pub active: Gauge<Count>,
    /// `http_errors`: responses with a status of 500 or more; services, bodies and handlers that
    /// failed or panicked; bodies that ended before they had the bytes of their `Content-Length`.
    pub errors: Counter<Count>,
    /// `http_aborted`: requests that were given up before their responses ended, as when a client
    /// goes away. A response has ended once everything that its head promises was handed over: the
    /// bytes of its `Content-Length`, or none, as for `HEAD` and for the statuses 204 and 304.
    pub aborted: Counter<Count>,
    /// `http_request_bytes`: bytes of request bodies that were read.
    pub request_bytes: Counter<Bytes>,
    /// `http_response_bytes`: bytes of response bodies, up to the `Content-Length` if there is one.
    pub response_bytes: Counter<Bytes>,
    /// `http_duration`: from the call of the service to the last byte of the response's body.
    pub duration: Histogram<Nanoseconds>,
}

/// Takes some 120 of a section's 512 words.
///
/// # Examples
/// ```
/// use submeter::Schema;
/// use submeter_http::HttpMetrics;
///
/// let mut schema = Schema::builder();
/// let metrics: HttpMetrics = schema.declare();
/// assert!(schema.build()?.metric("http_requests").is_some());
/// # let _ = metrics;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Metrics for HttpMetrics {
    fn declare(schema: &mut SchemaBuilder) -> HttpMetrics {
        HttpMetrics {
            requests: schema.counter("http_requests", "Requests received"),
            active: schema.gauge("http_active_requests", "Requests whose responses have not ended"),
            errors: schema.counter("http_errors", "Responses that failed"),
            aborted: schema.counter("http_aborted", "Requests abandoned before the response ended"),
            request_bytes: schema.counter("http_request_bytes", "Bytes of request bodies read"),
            response_bytes: schema.counter("http_response_bytes", "Bytes of response bodies"),
            duration: schema.histogram(
                "http_duration",
                "Time from the request to the last byte of the response",
                Buckets::LATENCY_NS,
            ),
        }
    }
}
