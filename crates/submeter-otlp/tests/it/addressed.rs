//! Which parts of an address are sent, and which are shown.

use submeter::{Count, Tree};
use submeter_otlp::{Builder, Exporter, Protocol};

use super::receiver::{Receiver, Reply};
use super::tree;

fn counted() -> Tree {
    let mut key = None;
    let tree = tree(|schema| key = Some(schema.counter::<Count>("n", "")));
    tree.root().add(key.expect("declared"), 1);
    tree
}

/// The first line of the only request, and its `authorization` header, in lower case as the
/// receiver keeps them.
fn asked(receiver: &Receiver, to: impl Fn(Builder) -> Builder) -> (String, Option<String>) {
    let exporter = to(Exporter::builder(&counted())).start().expect("valid");
    exporter.export().expect("accepted");
    let requests = receiver.requests();
    let head = &requests.last().expect("a request").head;
    let mut lines = head.lines();
    let first = lines.next().expect("a line").to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let mut authorization: Vec<_> =
        headers.filter(|(name, _)| name.eq_ignore_ascii_case("authorization")).collect();
    assert!(authorization.len() < 2, "{head}");
    (first, authorization.pop().map(|(_, value)| value.to_owned()))
}

/// User and password are sent decoded; the path is appended before the query.
#[test]
fn user_and_path_of_an_address_are_sent() {
    let receiver = Receiver::start(|_| Reply::Accept);
    let at =
        |rest: &str| format!("http://{rest}").replace('@', &format!("@{}", receiver.address()));
    let plain = |path: &str| format!("http://{}{path}", receiver.address());
    let basic = Some("Basic YmFuazpwQHNz".to_lowercase());
    for (url, line, sent) in [
        (plain(""), "POST /v1/metrics HTTP/1.1", &None),
        (plain("/"), "POST /v1/metrics HTTP/1.1", &None),
        (plain("/base?token=abc"), "POST /base/v1/metrics?token=abc HTTP/1.1", &None),
        (plain("/base/?a=b/c"), "POST /base/v1/metrics?a=b/c HTTP/1.1", &None),
        (plain("/base#part"), "POST /base/v1/metrics HTTP/1.1", &None),
        (at("bank:p%40ss@"), "POST /v1/metrics HTTP/1.1", &basic),
        (at("bank:p%40ss@/x?y=z"), "POST /x/v1/metrics?y=z HTTP/1.1", &basic),
    ] {
        let expected = (line.to_lowercase(), sent.clone());
        assert_eq!(asked(&receiver, |to| to.receiver(&url)), expected, "{url}");
    }
    for (exact, line) in [("/as?it=is", "post /as?it=is http/1.1"), ("", "post / http/1.1")] {
        let expected = (line.to_owned(), None);
        assert_eq!(asked(&receiver, |to| to.endpoint(&plain(exact))), expected);
    }
    let own = |to: Builder| to.receiver(&at("bank:p%40ss@")).header("Authorization", "Bearer x");
    assert_eq!(asked(&receiver, own).1.as_deref(), Some("bearer x"), "one header, the program's");
}

#[test]
fn a_request_names_its_sender_or_a_headers() {
    let receiver = Receiver::start(|_| Reply::Accept);
    let url = format!("http://{}", receiver.address());
    let own = concat!("otel-otlp-exporter-submeter/", env!("CARGO_PKG_VERSION"));
    for (header, sent) in [(None, own), (Some("shop/7"), "shop/7")] {
        asked(&receiver, |to| {
            header.into_iter().fold(to.receiver(&url), |to, header| to.header("User-Agent", header))
        });
        let head = receiver.requests().pop().expect("a request").head;
        let agents: Vec<_> =
            head.lines().filter_map(|line| line.strip_prefix("user-agent: ")).collect();
        assert_eq!(agents, [sent], "{head}");
    }
}

#[test]
fn a_bad_address_is_said_without_its_secrets() {
    for (protocol, url, says) in [
        (Protocol::Http, "http://u:s3cret%@h:1", "\"http://h:1\": invalid percent escape"),
        (Protocol::Http, "http://u:s3cret%ff@h:1", "UTF-8"),
        (Protocol::Http, "http://u:s3/cret@h:1", "\"http://…\""),
        (Protocol::Http, "u:s3cret@h:1", "\"…\": not a URL"),
        (Protocol::Http, "ftp://u:s3cret@h:1?key=s3cret", "\"ftp://h:1\": write http://"),
        (Protocol::Http, "http://u:s3cret@", "write http://host:4318/v1/metrics"),
        (Protocol::Http, "http://u:s3cret@h:port", "write http://"),
        (Protocol::Http, "http://u:s3cret@a:1,b:1", "write http://"),
        (Protocol::Grpc, "http://u:s3cret@h:1/v1/metrics", "gRPC takes no path"),
        (Protocol::Grpc, "http://h:1?key=s3cret", "no query"),
    ] {
        let tree = counted();
        let builder = Exporter::builder(&tree).protocol(protocol).endpoint(url);
        assert!(!format!("{builder:?}").contains("s3cret"), "{builder:?}");
        let error = builder.header("key", "s3cret").start().expect_err("refused").to_string();
        assert!(error.contains(says) && !error.contains("cret"), "{url}: {error}");
    }
    let tree = counted();
    let builder = Exporter::builder(&tree).receiver("http://u:s3cret@127.0.0.1:1/?key=s3cret");
    let builder = builder.header("api-key", "s3cret");
    assert!(!format!("{builder:?}").contains("s3cret"), "{builder:?}");
    let error = builder.start().expect("valid").export().expect_err("nobody listens").to_string();
    assert!(error.starts_with("http://127.0.0.1:1/v1/metrics: "), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}
