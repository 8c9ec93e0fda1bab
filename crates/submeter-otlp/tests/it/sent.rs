//! The contents of a request.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::mpsc;
use std::time::Duration;

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyOf;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, Metric};
use submeter::{Buckets, Bytes, Count, Gauge, Nanoseconds};
use submeter_otlp::{Exporter, Temporality};

use super::receiver::{Receiver, Reply, decode, group, metrics};
use super::{to, tree, with_gauge};

/// The integers of one metric by group; empty if the metric was not sent.
pub(super) fn numbers(metrics: &[Metric], name: &str) -> BTreeMap<String, i64> {
    let Some(metric) = metrics.iter().find(|metric| metric.name == name) else {
        return BTreeMap::new();
    };
    let points = match metric.data.as_ref().expect("data") {
        Data::Sum(sum) => &sum.data_points,
        Data::Gauge(gauge) => &gauge.data_points,
        other => panic!("numbers, not {other:?}"),
    };
    points
        .iter()
        .map(|point| match point.value {
            Some(Value::AsInt(n)) => (group(&point.attributes), n),
            other => panic!("an integer, not {other:?}"),
        })
        .collect()
}

pub(super) fn map<const N: usize>(pairs: [(&str, i64); N]) -> BTreeMap<String, i64> {
    pairs.into_iter().map(|(path, n)| (path.to_owned(), n)).collect()
}

/// Names, units and kinds, in the order of the schema.
const KINDS: [(&str, &str, &str); 9] = [
    ("requests", "", "counter"),
    ("cpu", "ns", "counter"),
    ("open", "", "level"),
    ("wait", "ns", "histogram"),
    ("memory", "By", "level"),
    ("memory.refused", "", "counter"),
    ("memory.subtree", "By", "gauge"),
    ("memory.limit", "By", "gauge"),
    ("memory.peak", "By", "gauge"),
];

/// Each kind is sent with its unit and with what the group itself counted.
#[test]
fn each_kind_is_sent_with_its_unit() {
    let (mut keys, mut waits) = (None, None);
    let tree = tree(|schema| {
        let requests = schema.counter::<Count>("requests", "Requests");
        let cpu = schema.counter::<Nanoseconds>("cpu", "CPU");
        let open = schema.gauge::<Count>("open", "Open");
        waits = Some(schema.histogram::<Nanoseconds>("wait", "Wait", Buckets::powers(8, 12)));
        keys = Some((requests, cpu, open, schema.quota::<Bytes>("memory", "Memory")));
    });
    let ((requests, cpu, open, memory), wait) = keys.zip(waits).expect("declared");
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree)
        .service("shop")
        .prefix("app")
        .header("X-Key", "k")
        .start()
        .expect("valid");
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = tree.get("/acme").expect("made above");
    web.add(requests, 3);
    acme.add(requests, 4);
    web.add(cpu, 1_000_000_007);
    web.adjust(open, -2);
    acme.adjust(open, 5);
    web.record(wait, 1);
    acme.set_limit(memory, Some(100));
    let held = (web.try_charge(memory, 60).expect("within"), acme.try_charge(memory, 7));
    assert!(web.try_charge(memory, 60).is_err());
    exporter.export().expect("accepted");

    let request = &receiver.requests()[0];
    assert!(request.head.starts_with("post /v1/metrics http/1.1"), "{}", request.head);
    for line in ["content-type: application/x-protobuf", "x-key: k"] {
        assert!(request.head.contains(line), "{}", request.head);
    }
    let sent = metrics(&request.body);
    assert_eq!(numbers(&sent, "app.requests"), map([("/acme/web", 3), ("/acme", 4)]));
    assert_eq!(numbers(&sent, "app.cpu"), map([("/acme/web", 1_000_000_007)]));
    assert_eq!(numbers(&sent, "app.open"), map([("/acme/web", -2), ("/acme", 5)]));
    assert_eq!(numbers(&sent, "app.memory"), map([("/acme/web", 60), ("/acme", 7)]));
    assert_eq!(numbers(&sent, "app.memory.subtree"), map([("/acme", 67)]));
    assert_eq!(numbers(&sent, "app.memory.limit"), map([("/acme", 100)]));
    assert_eq!(numbers(&sent, "app.memory.refused"), map([("/acme", 1)]));
    // Far from limits it is an upper bound.
    let root = tree.root().usage(memory).peak.cast_signed();
    assert_eq!(
        numbers(&sent, "app.memory.peak"),
        map([("/", root), ("/acme", 67), ("/acme/web", 60)])
    );
    let kinds: Vec<_> = sent
        .iter()
        .map(|metric| match metric.data.as_ref().expect("data") {
            Data::Sum(sum) if sum.is_monotonic => (&metric.name[4..], &metric.unit[..], "counter"),
            Data::Sum(_) => (&metric.name[4..], &metric.unit[..], "level"),
            Data::Gauge(_) => (&metric.name[4..], &metric.unit[..], "gauge"),
            _ => (&metric.name[4..], &metric.unit[..], "histogram"),
        })
        .collect();
    assert_eq!(kinds, KINDS);
    drop(held);
}

#[test]
fn a_count_has_no_unit_and_is_no_ratio() {
    let mut keys = None;
    let tree = tree(|schema| {
        let (open, size) = (schema.gauge("open", ""), Buckets::powers(2, 4));
        let size = schema.histogram::<Count>("size", "", size);
        keys = Some((open, size, schema.quota::<Count>("streams", "Streams")));
    });
    let (open, size, streams): (Gauge<Count>, _, _) = keys.expect("declared");
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree).start().expect("valid");
    let root = tree.root();
    root.adjust(open, 1);
    root.record(size, 3);
    root.set_limit(streams, Some(1));
    let _held = root.try_charge(streams, 1).expect("within");
    root.try_charge(streams, 1).expect_err("beyond");
    exporter.export().expect("accepted");
    let sent = metrics(&receiver.requests()[0].body);
    let counts: Vec<_> = sent.iter().filter(|m| m.unit != "ns").collect();
    let has = |name: &str| counts.iter().any(|m| m.name == name);
    assert!(["open", "size", "streams.limit", "streams.refused"].into_iter().all(has), "{sent:?}");
    for metric in counts {
        assert_eq!(metric.unit, "", "{}", metric.name);
    }
}

/// A process is identified by its configured name, or else by its epoch.
#[test]
fn a_process_is_known_by_its_name_or_epoch() {
    let sent = |instance: Option<&str>| {
        let mut requests = None;
        let tree = tree(|schema| {
            requests = Some(schema.counter::<Count>("requests", "Requests"));
        });
        tree.root().add(requests.expect("declared"), 1);
        let receiver = Receiver::start(|_| Reply::Accept);
        let mut exporter = to(&receiver, &tree).service("shop");
        if let Some(instance) = instance {
            exporter = exporter.resource("service.instance.id", instance);
        }
        exporter.start().expect("valid").export().expect("accepted");
        let body = &receiver.requests()[0].body;
        let resource = decode(body).resource_metrics[0].resource.clone().expect("known");
        let attributes = resource.attributes.iter().map(|attribute| {
            let Some(AnyOf::StringValue(value)) = &attribute.value.as_ref().expect("set").value
            else {
                panic!("a string: {attribute:?}");
            };
            (attribute.key.clone(), value.clone())
        });
        let epoch = format!("{:016x}", tree.snapshot().epoch());
        (attributes.collect::<BTreeMap<_, _>>(), epoch)
    };
    let attributes = |instance: &str, epoch: &str| {
        [
            ("service.name", "shop"),
            ("service.instance.id", instance),
            ("submeter.epoch", epoch),
            ("telemetry.sdk.language", "rust"),
            ("telemetry.sdk.name", "submeter-otlp"),
            ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    };
    let (anonymous, epoch) = sent(None);
    assert_eq!(anonymous, attributes(&epoch, &epoch));
    let (named, epoch) = sent(Some("a:1"));
    assert_eq!(named, attributes("a:1", &epoch));
}

/// The bound of a bucket is the largest value in it.
#[test]
fn a_bound_is_the_largest_value_of_its_bucket() {
    let mut key = None;
    let tree = tree(|schema| {
        key = Some(schema.histogram::<Nanoseconds>("wait", "", Buckets::powers(8, 12)));
    });
    let wait = key.expect("declared");
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree).start().expect("valid");
    // Both ends of a bucket, the first bucket, and the last.
    for value in [0, 256, 257, 512, 513, 1 << 40] {
        tree.root().record(wait, value);
    }
    exporter.export().expect("accepted");
    let Some(Data::Histogram(sent)) = receiver.taken()[0][0].data.clone() else {
        panic!("not explicit")
    };
    let point = &sent.data_points[0];
    assert_eq!(point.explicit_bounds, [256.0, 512.0, 1024.0, 2048.0, 4096.0]);
    assert_eq!(point.bucket_counts, [2, 2, 1, 0, 0, 1]);
    assert_eq!((point.count, point.sum), (6, Some((1538 + (1u64 << 40)) as f64)));
}

/// An exponential histogram is within its limits at the borders of all values.
#[test]
fn exponential_histograms_hold_all_values() {
    let mut key = None;
    let tree = tree(|schema| {
        key = Some(schema.histogram::<Count>("size", "", Buckets::powers(2, 62)));
    });
    let size = key.expect("declared");
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree).exponential(true).start().expect("valid");
    let values = [0, 1, 3, 4, 5, 7, 8, (1 << 53) + 1, (1 << 62) - 1, 1 << 62, i64::MAX as u64];
    for value in values {
        tree.root().record(size, value);
    }
    exporter.export().expect("accepted");
    let Some(Data::ExponentialHistogram(sent)) = receiver.taken()[0][0].data.clone() else {
        panic!("not exponential")
    };
    let point = &sent.data_points[0];
    let positive = point.positive.clone().expect("some");
    assert!(positive.bucket_counts.len() <= 160, "the size at which others merge buckets");
    let mut expected = vec![0; positive.bucket_counts.len()];
    for value in values.into_iter().filter(|value| *value as f64 > point.zero_threshold) {
        // A bucket is for values above its lower bound, up to the upper one.
        let power = (value - 1).ilog2().cast_signed();
        expected[usize::try_from(power - positive.offset).expect("its")] += 1;
    }
    assert_eq!((point.scale, point.zero_count, point.zero_threshold), (0, 4, 4.0));
    assert_eq!((positive.offset, &positive.bucket_counts), (2, &expected));
    assert_eq!(point.negative, None, "values are whole numbers from 0");
    assert_eq!(point.count, values.len() as u64);
    assert_eq!(point.sum, Some(values.iter().fold(0u64, |sum, n| sum.wrapping_add(*n)) as f64));
    assert_eq!((point.min, point.max), (None, None), "which nobody counts");
}

#[test]
fn an_exponential_histogram_has_the_same_counts() {
    let mut key = None;
    let tree = tree(|schema| {
        key = Some(schema.histogram::<Count>("size", "", Buckets::powers(3, 6)));
    });
    let size = key.expect("declared");
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree).exponential(true).start().expect("valid");
    for value in [1, 8, 9, 16, 17, 100] {
        tree.root().record(size, value);
    }
    exporter.export().expect("accepted");
    let Some(Data::ExponentialHistogram(sent)) = receiver.taken()[0][0].data.clone() else {
        panic!("not exponential")
    };
    let point = &sent.data_points[0];
    assert_eq!((point.scale, point.zero_count, point.zero_threshold), (0, 2, 8.0));
    let positive = point.positive.clone().expect("some");
    // Above 8 to 16, to 32, to 64, and everything above.
    assert_eq!((positive.offset, positive.bucket_counts), (3, vec![2, 1, 0, 1]));
    assert_eq!((point.count, point.sum), (6, Some(151.0)));
}

/// A delta has what is new since the last one, and nothing of idle groups.
#[test]
fn delta_has_only_what_is_new() {
    let (tree, n, open) = with_gauge();
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree).temporality(Temporality::Delta).start().expect("valid");
    let (a, b) = (tree.create("/a").expect("room"), tree.create("/b").expect("room"));
    a.add(n, 3);
    b.add(n, 5);
    a.set(open, 1);
    exporter.export().expect("accepted");
    b.add(n, 2);
    a.set(open, 0);
    exporter.export().expect("accepted");
    b.add(n, 1);
    exporter.export().expect("accepted");
    exporter.export().expect("nothing to send");
    let taken = receiver.taken();
    assert_eq!(taken.len(), 3, "an export of nothing is none");
    assert_eq!(numbers(&taken[0], "n"), map([("/a", 3), ("/b", 5)]));
    assert_eq!(numbers(&taken[1], "n"), map([("/b", 2)]));
    assert_eq!(numbers(&taken[1], "open"), map([("/a", 0)]), "zero is news there");
    assert_eq!(numbers(&taken[2], "open"), map([]), "and no more");
    let times: Vec<_> = taken
        .iter()
        .map(|metrics| match &metrics[0].data {
            Some(Data::Sum(sum)) => {
                let delta = AggregationTemporality::Delta;
                assert_eq!(sum.aggregation_temporality, i32::from(delta));
                (sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano)
            }
            other => panic!("a sum, not {other:?}"),
        })
        .collect();
    assert!(times[0].0 < times[0].1 && times[1].0 == times[0].1 && times[2].0 == times[1].1);
}

#[test]
fn what_is_too_deep_is_in_the_group_above() {
    let mut keys = None;
    let tree = tree(|schema| {
        keys = Some((schema.counter::<Count>("n", ""), schema.quota::<Bytes>("memory", "")));
    });
    let (n, memory) = keys.expect("declared");
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree).depth(1).start().expect("valid");
    let web = tree.get_or_create("/acme/web/1").expect("room");
    web.add(n, 3);
    tree.root().add(n, 1);
    let held = web.try_charge(memory, 9).expect("no limit");
    exporter.export().expect("accepted");
    let sent = &receiver.taken()[0];
    assert_eq!(numbers(sent, "n"), map([("/", 1), ("/acme", 3)]));
    assert_eq!(numbers(sent, "memory"), map([("/acme", 9)]));
    drop(held);
}

/// It exports at each interval and when it is dropped, compressed.
#[test]
fn it_exports_at_intervals_and_at_the_drop() {
    let mut key = None;
    let tree = tree(|schema| key = Some(schema.counter::<Count>("n", "")));
    let n = key.expect("declared");
    tree.root().add(n, 1);
    let (send, arrived) = mpsc::channel();
    let receiver = Receiver::start(move |number| {
        send.send(number).expect("the test waits");
        Reply::Accept
    });
    let soon = to(&receiver, &tree).interval(Duration::from_millis(1)).gzip(true);
    let exporter = soon.start().expect("valid");
    for expected in 0..3 {
        assert_eq!(arrived.recv_timeout(Duration::from_secs(60)), Ok(expected));
    }
    drop(exporter);
    let seen = receiver.requests().len();
    tree.root().add(n, 1);
    drop(to(&receiver, &tree).start().expect("valid"));
    let requests = receiver.requests();
    assert_eq!(requests.len(), seen + 1, "dropped once");
    assert!(requests[0].head.contains("content-encoding: gzip"));
    let mut plain = Vec::new();
    GzDecoder::new(&requests[0].body[..]).read_to_end(&mut plain).expect("gzip");
    assert_eq!(numbers(&metrics(&plain), "n"), map([("/", 1)]));
    assert_eq!(numbers(&metrics(&requests[seen].body), "n"), map([("/", 2)]));
}

#[test]
fn unusable_settings_are_named_with_a_remedy() {
    let tree = tree(|_| {});
    let builder = || Exporter::builder(&tree);
    for (settings, named) in [
        (builder().endpoint("localhost:4318"), "http://host:4318/v1/metrics"),
        (builder().endpoint(""), "http://host:4318/v1/metrics"),
        (builder().endpoint("http://"), "http://host:4318/v1/metrics"),
        (builder().header("a b", "c"), "a b"),
        (builder().header("a", "secret\n"), "\"a\""),
        (builder().header("Content-Length", "3"), "\"Content-Length\": set by each request itself"),
        (builder().header("transfer-encoding", "chunked"), "leave it out"),
        (builder().interval(Duration::ZERO), "interval"),
        (builder().timeout(Duration::ZERO), "timeout"),
    ] {
        let error = settings.start().expect_err(named).to_string();
        assert!(error.contains(named) && !error.contains("secret"), "{error}");
    }
}

/// Events at a limit are sent for the group that owns the limit.
#[test]
fn events_of_a_limit_are_of_its_group() {
    let mut keys = None;
    let tree = tree(|schema| keys = Some(schema.quota::<Bytes>("memory", "Memory")));
    let memory = keys.expect("declared");
    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree).temporality(Temporality::Delta).start().expect("valid");
    let web = tree.get_or_create("/acme/web").expect("room");
    let acme = tree.get("/acme").expect("made above");
    let held = web.try_charge(memory, 60).expect("no limit");
    acme.set_limit(memory, Some(50));
    let beyond = web.charge_forced(memory, 1);
    let late = web.charge_blocking(memory, 1, std::time::Duration::from_millis(1));
    late.expect_err("no room");
    exporter.export().expect("accepted");
    exporter.export().expect("nothing is new but what rises and falls");

    let requests = receiver.requests();
    let sent = metrics(&requests[0].body);
    assert_eq!(numbers(&sent, "memory.overdrafts"), map([("/acme", 1)]));
    assert_eq!(numbers(&sent, "memory.refused"), map([("/acme", 1)]));
    let waited = |path: &str| {
        let group = tree.get(path).expect("it lives");
        i64::try_from(group.pressure(memory).some.total.as_nanos()).expect("short")
    };
    let expected = ["/", "/acme", "/acme/web"].map(|path| (path, waited(path)));
    assert_eq!(numbers(&sent, "memory.pressure_some"), map(expected));
    // Less than the timeout where the thread was off its CPU before it began to wait.
    assert!(expected[2].1 > 0, "{expected:?}");
    assert!(sent.iter().all(|m| m.name != "memory.pressure_full"), "all held something: {sent:?}");
    let unit = |name| sent.iter().find(|m| m.name == name).map(|m| m.unit.as_str());
    assert_eq!(["memory.pressure_some", "memory.overdrafts"].map(unit), [Some("ns"), Some("")]);
    let again = requests.get(1).map(|request| metrics(&request.body)).unwrap_or_default();
    let flows = again.iter().filter(|m| matches!(m.data, Some(Data::Sum(ref s)) if s.is_monotonic));
    assert_eq!(flows.count(), 0, "each is sent once: {again:?}");
    drop((held, beyond));
}
