//! Structs of keys that declare their metrics.

use submeter::{
    Buckets, Bytes, Count, Counter, Gauge, Histogram, MetricKind, Metrics, Nanoseconds, Quota,
    RateLimit, Schema, SchemaBuilder, Tree, Unit,
};

/// Of every kind, with every option of a field.
#[derive(Metrics)]
struct Keys {
    /// Requests answered.
    ///
    /// Not those that were refused.
    requests: Counter<Count>,
    /// Requests in the queue,
    /// and those that are read
    waiting: Gauge<Count>,
    #[metric(buckets = Buckets::powers(10, 20))]
    /// Size of answers
    size: Histogram<Bytes>,
    #[metric(name = "memory_held")]
    memory: Quota<Bytes>,
    /** CPU time used */
    #[metric(cpu_time)]
    cpu: Counter<Nanoseconds>,
    #[metric(off_cpu)]
    off_cpu: Counter<Nanoseconds>,
    #[metric(cpu_error)]
    cpu_error: Counter<Nanoseconds>,
    r#type: Counter<Count>,
    _unused: Counter<Count>,
    /// Bytes sent
    sent: RateLimit<Bytes>,
    #[metric(all)]
    io: Io<Bytes>,
    #[metric(all)]
    http: Http,
}

/// A set that a library might bring, in a section of its own.
#[derive(Metrics)]
#[metrics(prefix = "io_", section = "io")]
struct Io<U>
where
    U: Unit,
{
    /// Written
    written: Counter<U>,
    /// Read
    read: Counter<U>,
}

/// A set that declares itself.
struct Http {
    requests: Counter<Count>,
}

impl Metrics for Http {
    fn declare(schema: &mut SchemaBuilder) -> Http {
        Http { requests: schema.counter("http_requests", "Requests received") }
    }
}

/// Fields become metrics with their names, in their order.
#[test]
fn fields_become_metrics_in_their_order() {
    let mut schema = Schema::builder();
    let keys: Keys = schema.declare();
    let schema = schema.build().expect("valid");
    let found: Vec<_> = schema.metrics().iter().map(|m| (m.name(), m.kind(), m.help())).collect();
    let (counter, gauge) = (MetricKind::Counter, MetricKind::Gauge);
    let own = [
        ("requests", counter, "Requests answered"),
        ("waiting", gauge, "Requests in the queue, and those that are read"),
        ("size", MetricKind::Histogram, "Size of answers"),
        ("memory_held", MetricKind::Quota, ""),
        ("cpu", counter, "CPU time used"),
        ("off_cpu", counter, ""),
        ("cpu_error", counter, ""),
        ("type", counter, ""),
        ("unused", counter, ""),
        ("sent_throttled", counter, "Bytes sent: how often a rate refused"),
        ("sent_throttled_time", counter, "Bytes sent: how long a rate refused"),
        ("sent_overdrafts", counter, "Bytes sent: refusals that a soft rate did not enforce"),
        ("io_written", counter, "Written"),
        ("io_read", counter, "Read"),
    ];
    assert_eq!(found[..own.len()], own);
    assert_eq!(found[own.len()].0, "http_requests");
    assert_eq!(schema.metric("size").expect("declared").buckets(), Some(Buckets::powers(10, 20)));
    assert_eq!(schema.cpu_time(), Some(keys.cpu));
    assert_eq!(schema.off_cpu(), Some(keys.off_cpu));
    assert_eq!(schema.cpu_error(), Some(keys.cpu_error));
    let io = schema.section("io").expect("declared");
    assert_eq!(schema.metric("io_read").expect("declared").section(), io);
    assert_ne!(schema.metric("requests").expect("declared").section(), io);

    let tree = Tree::new(schema).expect("address space");
    let root = tree.root();
    root.inc(keys.requests);
    root.inc(keys.waiting);
    root.record(keys.size, 5_000);
    root.inc(keys.r#type);
    root.add(keys.io.written, 7);
    root.add(keys.io.read, 8);
    root.inc(keys.http.requests);
    let _held = root.try_charge(keys.memory, 9).expect("no limit");
    let sums = [keys.requests, keys.r#type, keys.http.requests].map(|key| root.sum(key));
    assert_eq!((sums, root.sum(keys.waiting)), ([1, 1, 1], 1));
    assert_eq!([keys.io.written, keys.io.read].map(|key| root.sum(key)), [7, 8]);
    assert_eq!(root.sum_histogram(keys.size).count(), 1);
    assert_eq!(root.usage(keys.memory).current, 9);
    root.try_take(keys.sent, 10).expect("no rate");
}

#[test]
fn two_sets_of_one_name_are_refused() {
    let mut schema = Schema::builder();
    let _: [Io<Count>; 2] = [schema.declare(), schema.declare()];
    let error = schema.build().expect_err("each name twice");
    assert!(error.to_string().contains("io_written"), "{error}");
}
