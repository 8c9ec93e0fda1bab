//! Receivers that are down, slow or strange.

use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
};
use prost::Message;
use submeter::{Count, Counter, Tree};
use submeter_otlp::{Builder, Exporter, Stats, Temporality};

use super::receiver::{Receiver, Reply, status};
use super::sums::total;
use super::{to, tree};

fn counted() -> (Tree, Counter<Count>) {
    let mut key = None;
    let tree = tree(|schema| key = Some(schema.counter::<Count>("n", "")));
    (tree, key.expect("declared"))
}

fn delta(receiver: &Receiver, tree: &Tree) -> Builder {
    to(receiver, tree).temporality(Temporality::Delta)
}

/// While a receiver is down one request is kept, and nothing is lost.
#[test]
fn one_request_is_kept_while_down() {
    let (tree, n) = counted();
    let first = Receiver::start(|_| Reply::Accept);
    let exporter = delta(&first, &tree).start().expect("valid");
    tree.root().add(n, 1);
    exporter.export().expect("accepted");
    let (before, address) = (first.taken(), first.address());
    drop(first);
    for _ in 0..10 {
        tree.root().add(n, 2);
        let error = exporter.export().expect_err("nobody listens");
        assert!(!error.is_refused(), "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
    let stats = exporter.stats();
    assert_eq!((stats.exports, stats.retries, stats.refused), (1, 10, 0));
    assert!(stats.last_error.is_some());
    let again = Receiver::at(address, |_| Reply::Accept);
    exporter.shutdown().expect("accepted");
    // The request that was kept, and everything that came later.
    let after = again.taken();
    assert_eq!(
        after.iter().map(|m| total(std::slice::from_ref(m), "n")).collect::<Vec<_>>(),
        [2, 18]
    );
    assert_eq!(total(&before, "n") + total(&after, "n"), 21);
}

/// The same bytes are sent again if it is unknown whether they were read.
#[test]
fn unconfirmed_bytes_are_sent_again() {
    let replies = [
        Reply::AcceptAndBreak,
        status("503 Busy"),
        status("429 Slow"),
        Reply::Answer(b"HTTP/1.1 502 Bad Gateway\r\nretry-after: 99999999\r\n\r\n".to_vec()),
        Reply::Answer(b"what?".to_vec()),
        Reply::Answer(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n".to_vec()),
    ];
    let count = replies.len();
    let (tree, n) = counted();
    let receiver = Receiver::start(move |at| replies.get(at).cloned().unwrap_or(Reply::Accept));
    let exporter = delta(&receiver, &tree).start().expect("valid");
    for at in 0..count {
        tree.root().add(n, 1);
        let error = exporter.export().expect_err("not accepted");
        assert!(!error.is_refused(), "{at}: {error}");
    }
    exporter.export().expect("accepted");
    let requests = receiver.requests();
    assert_eq!(requests.len(), count + 2);
    assert!(requests[..=count].iter().all(|request| request.body == requests[0].body));
    assert_eq!(total(&receiver.taken(), "n"), count as u64);
    let stats = exporter.stats();
    assert_eq!((stats.exports, stats.retries, stats.last_error), (2, count as u64, None));
}

#[test]
fn the_new_of_a_refused_request_is_in_the_next() {
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 6\r\n\r\n<html>";
    let mut endless = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    endless.resize(5 << 20, b'x');
    let moved = "HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n";
    let replies = [
        (status("400 Bad Request"), "400"),
        (status("404 Not Found"), "404"),
        (Reply::Answer(b"HTTP/1.1 400 No\r\n\r\nSend it elsewhere.\n".into()), "elsewhere."),
        (
            Reply::Answer(b"HTTP/1.1 400 No\r\n\r\n\x08\x03\x12\x08bad unit".into()),
            "Request: bad unit",
        ),
        (Reply::Answer(b"HTTP/1.1 400 No\r\n\r\n\x12\x05a\x1b[2J".into()), "400"),
        (Reply::Answer(page.into()), "/v1/metrics"),
        (Reply::Answer(endless), "too much"),
        (Reply::Answer(moved.into()), "307"),
    ];
    let says = replies.clone().map(|(_, says)| says);
    let (tree, n) = counted();
    let receiver = Receiver::start(move |at| {
        replies.get(at).map_or(Reply::Accept, |(reply, _)| reply.clone())
    });
    let exporter = delta(&receiver, &tree).start().expect("valid");
    for says in says {
        tree.root().add(n, 1);
        let error = exporter.export().expect_err("not accepted");
        assert!(error.is_refused() && error.to_string().contains(says), "{says}: {error}");
    }
    exporter.export().expect("accepted");
    assert_eq!(receiver.requests().len(), says.len() + 1);
    assert_eq!(total(&receiver.taken(), "n"), says.len() as u64);
    assert_eq!(exporter.stats().refused, says.len() as u64);
}

#[test]
fn a_mute_receiver_costs_the_timeout() {
    let (tree, n) = counted();
    let receiver = Receiver::start(|_| Reply::Silence);
    let soon = to(&receiver, &tree).timeout(Duration::from_millis(20));
    let exporter = soon.start().expect("valid");
    tree.root().add(n, 1);
    let error = exporter.export().expect_err("no answer");
    assert!(!error.is_refused() && error.to_string().contains("timeout"), "{error}");
    exporter.shutdown().expect_err("no answer");
}

/// An end with a bound waits no longer than that for a receiver, however long a request may take.
#[test]
fn an_end_with_a_bound_waits_no_longer() {
    let (tree, n) = counted();
    let receiver = Receiver::start(|at| if at == 0 { Reply::Accept } else { Reply::Silence });
    let begun = SystemTime::now();
    // The receiver of the test waits for the end of the request.
    let exporter = to(&receiver, &tree).timeout(Duration::from_secs(3)).start().expect("valid");
    assert_eq!(exporter.stats().sent_until, None);
    tree.root().add(n, 1);
    exporter.export().expect("accepted");
    let until = exporter.stats().sent_until.expect("all of it");
    assert!((begun..=SystemTime::now()).contains(&until));
    tree.root().add(n, 1);
    let error = exporter.shutdown_within(Duration::from_millis(20)).expect_err("no answer");
    assert_eq!(error.to_string(), "the receiver has not accepted it within 20ms");
    assert!(!error.is_refused());

    let receiver = Receiver::start(|_| Reply::Accept);
    let exporter = to(&receiver, &tree).start().expect("valid");
    exporter.shutdown_within(Duration::from_secs(3600)).expect("accepted");
    assert_eq!(total(&receiver.taken(), "n"), 2);
}

/// A receiver that accepts the metrics, except for some points, and says something.
fn saying(error_message: &str, rejected_data_points: i64) -> Reply {
    let error_message = error_message.to_owned();
    let partial = ExportMetricsPartialSuccess { rejected_data_points, error_message };
    let body = ExportMetricsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    Reply::Answer([head.as_bytes(), &body].concat())
}

/// A warning in an answer that accepts everything is kept until another answer has none.
#[test]
fn a_warning_is_no_error() {
    let (tree, n) = counted();
    let replies = [saying("delta is better", 0), Reply::Accept, saying("\x1b[2Jdelta", 0)];
    let receiver = Receiver::start(move |at| replies.get(at).cloned().unwrap_or(Reply::Accept));
    let exporter = to(&receiver, &tree).start().expect("valid");
    for warning in ["delta is better", "", ""] {
        tree.root().add(n, 1);
        exporter.export().expect("accepted");
        let stats = exporter.stats();
        assert_eq!((&*stats.warning, stats.points_rejected, stats.last_error), (warning, 0, None));
        assert!(stats.sent_until.is_some());
    }
}

/// The program's logger may ask for the statistics of the exporter that logs.
#[test]
fn a_logger_may_ask_for_statistics() {
    const WARNING: &str = "a warning of this test alone";
    struct Asking;
    static EXPORTER: OnceLock<Exporter> = OnceLock::new();
    static ASKED: OnceLock<Stats> = OnceLock::new();
    impl log::Log for Asking {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            if record.args().to_string().contains(WARNING) {
                drop(ASKED.set(EXPORTER.get().expect("set before").stats()));
            }
        }

        fn flush(&self) {}
    }
    log::set_logger(&Asking).expect("the only one of this program");
    log::set_max_level(log::LevelFilter::Warn);
    let (tree, n) = counted();
    let receiver = Receiver::start(|_| saying(WARNING, 0));
    let exporter = EXPORTER.get_or_init(|| to(&receiver, &tree).start().expect("valid"));
    tree.root().add(n, 1);
    let (send, sent) = mpsc::channel();
    thread::spawn(move || send.send(exporter.export()));
    sent.recv_timeout(Duration::from_secs(60)).expect("the logger got them").expect("accepted");
    assert_eq!(ASKED.get().map(|stats| &*stats.warning), Some(WARNING));
}

#[test]
fn rejected_points_are_counted_and_not_resent() {
    // As much as a receiver may say, and more than a buffer has room for.
    let why = "no ".repeat(1 << 20);
    let (tree, n) = counted();
    let receiver = Receiver::start(move |_| saying(&why, 1));
    let exporter = delta(&receiver, &tree).start().expect("valid");
    tree.root().add(n, 1);
    exporter.export().expect("accepted in part");
    exporter.export().expect("nothing to send");
    let stats = exporter.stats();
    assert_eq!((stats.exports, stats.points, stats.points_rejected), (1, 1, 1));
    let error = stats.last_error.expect("one was rejected").to_string();
    assert!(error.contains(": no no ") && error.len() < 300, "{error}");
    assert!(stats.sent_until.is_some(), "the receiver has decided on all of it");
    assert_eq!(receiver.requests().len(), 1);
}
