//! gRPC: the meaning of each answer, and receivers that speak something else.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use submeter::{Count, Counter, Tree};
use submeter_otlp::{Builder, Exporter, Protocol, Temporality};
use tokio::sync::oneshot;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::receiver::{Receiver, Reply};
use super::sums::total;
use super::tls::{AUTHORITY, CERTIFICATE, KEY, files};
use super::tree;

/// An answer that is not a plain yes.
enum Answer {
    No(Status),
    Partly(i64, &'static str),
    /// It gets the request, but answers too late.
    Late,
}

#[derive(Default)]
struct Seen {
    answers: VecDeque<Answer>,
    requests: Vec<(MetadataMap, ExportMetricsServiceRequest)>,
}

#[derive(Clone, Default)]
struct Service(Arc<Mutex<Seen>>);

#[tonic::async_trait]
impl MetricsService for Service {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let answer = {
            let mut seen = self.0.lock().expect("no panic");
            let (metadata, _, message) = request.into_parts();
            seen.requests.push((metadata, message));
            seen.answers.pop_front()
        };
        let mut response = ExportMetricsServiceResponse::default();
        match answer {
            None => {}
            Some(Answer::No(status)) => return Err(status),
            Some(Answer::Late) => tokio::time::sleep(Duration::from_secs(60)).await,
            Some(Answer::Partly(points, why)) => {
                response.partial_success = Some(ExportMetricsPartialSuccess {
                    rejected_data_points: points,
                    error_message: why.into(),
                });
            }
        }
        Ok(Response::new(response))
    }
}

/// A gRPC receiver that gives the answers it was told, and then accepts everything.
struct Told {
    address: SocketAddr,
    service: Service,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Told {
    fn start(answers: impl IntoIterator<Item = Answer>) -> Told {
        Told::with(answers, None)
    }

    fn with(answers: impl IntoIterator<Item = Answer>, tls: Option<ServerTlsConfig>) -> Told {
        let service = Service::default();
        service.0.lock().expect("no panic").answers.extend(answers);
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = socket.local_addr().expect("bound");
        socket.set_nonblocking(true).expect("a socket");
        let (end, ended) = oneshot::channel();
        let server =
            MetricsServiceServer::new(service.clone()).accept_compressed(CompressionEncoding::Gzip);
        let thread = thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().expect("a runtime").block_on(async {
                let socket = tokio::net::TcpListener::from_std(socket).expect("a socket");
                let incoming = tonic::transport::server::TcpIncoming::from(socket);
                let mut builder = Server::builder();
                if let Some(tls) = tls {
                    builder = builder.tls_config(tls).expect("valid");
                }
                let serving = pin!(builder.add_service(server).serve_with_incoming(incoming));
                tokio::select! {
                    served = serving => served.expect("a server"),
                    _ = ended => {}
                }
            });
        });
        Told { address, service, end: Some(end), thread: Some(thread) }
    }

    fn exporter(&self, tree: &Tree) -> Builder {
        to(&format!("http://{}", self.address), tree)
    }

    fn requests(&self) -> Vec<(MetadataMap, ExportMetricsServiceRequest)> {
        self.service.0.lock().expect("no panic").requests.clone()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        drop(self.end.take());
        self.thread.take().expect("ends once").join().expect("no panic");
    }
}

/// A gRPC exporter that sends only on request.
fn to(url: &str, tree: &Tree) -> Builder {
    let hour = Duration::from_secs(3600);
    Exporter::builder(tree)
        .protocol(Protocol::Grpc)
        .endpoint(url)
        .temporality(Temporality::Delta)
        .interval(hour)
        .timeout(hour)
}

fn counted() -> (Tree, Counter<Count>) {
    let mut key = None;
    let tree = tree(|schema| key = Some(schema.counter::<Count>("n", "")));
    (tree, key.expect("declared"))
}

fn sum(requests: &[(MetadataMap, ExportMetricsServiceRequest)]) -> u64 {
    let scopes = requests.iter().flat_map(|(_, request)| &request.resource_metrics);
    let metrics = scopes.flat_map(|resource| &resource.scope_metrics);
    total(&metrics.map(|scope| scope.metrics.clone()).collect::<Vec<_>>(), "n")
}

/// A request arrives with its headers, its timeout and its compression.
#[test]
fn a_request_arrives_with_its_settings() {
    for gzip in [false, true] {
        let (tree, n) = counted();
        let receiver = Told::start([]);
        let exporter = receiver.exporter(&tree).header("X-Key", "k").gzip(gzip);
        let exporter = exporter.timeout(Duration::from_secs(77)).start().expect("valid");
        tree.root().add(n, 3);
        exporter.export().expect("accepted");
        let requests = receiver.requests();
        let [(metadata, _)] = &requests[..] else { panic!("one request") };
        let value = |name: &str| metadata.get(name).map(|value| value.to_str().expect("text"));
        assert_eq!(value("x-key"), Some("k"));
        assert_eq!(value("grpc-encoding"), gzip.then_some("gzip"));
        assert!(value("user-agent").is_some_and(|agent| agent.starts_with("OTel-OTLP-Exporter")));
        assert_eq!(value("grpc-timeout"), Some("77000000u"));
        assert_eq!(sum(&requests), 3);
    }
}

#[test]
fn retryable_codes_keep_a_request_others_refuse() {
    let again = [
        Code::Cancelled,
        Code::DeadlineExceeded,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unavailable,
        Code::DataLoss,
    ];
    let never = [
        Code::Unknown,
        Code::InvalidArgument,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::Unauthenticated,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Unimplemented,
        Code::Internal,
    ];
    for (code, refused) in
        again.map(|code| (code, false)).into_iter().chain(never.map(|code| (code, true)))
    {
        let (tree, n) = counted();
        let receiver = Told::start([Answer::No(Status::new(code, "as told"))]);
        let exporter = receiver.exporter(&tree).start().expect("valid");
        tree.root().add(n, 1);
        let error = exporter.export().expect_err("not accepted");
        assert_eq!(error.is_refused(), refused, "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("{code:?}: as told")), "{text}");
        assert!(text.contains(&receiver.address.to_string()), "{text}");
        tree.root().add(n, 1);
        exporter.export().expect("accepted");
        let requests = receiver.requests();
        // Either what was kept arrives unchanged, followed by what is new, or everything new
        // arrives at once.
        assert_eq!(requests.len(), if refused { 2 } else { 3 }, "{code:?}");
        assert_eq!(requests[0].1 == requests[1].1, !refused, "{code:?}");
        assert_eq!(sum(&requests[1..]), 2, "{code:?}");
    }
}

#[test]
fn a_receiver_says_when_to_come_again() {
    let soon = ErrorDetails::with_retry_info(Some(Duration::from_millis(1)));
    let answers = [Code::Unavailable, Code::ResourceExhausted]
        .map(|code| Answer::No(Status::with_error_details(code, "busy", soon.clone())));
    let (tree, n) = counted();
    let receiver = Told::start(answers);
    let wait = Duration::from_millis(200);
    let exporter = receiver.exporter(&tree).interval(wait).start().expect("valid");
    tree.root().add(n, 1);
    for _ in 0..1000 {
        if exporter.stats().exports > 0 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // Without the hint a retry would come half a second later, or after the interval.
    let stats = exporter.stats();
    assert_eq!((stats.exports, stats.retries, stats.refused), (1, 2, 0));
    let requests = receiver.requests();
    assert!(requests.windows(2).all(|pair| pair[0].1 == pair[1].1));
}

/// What a receiver says is shown as far as people can read it.
#[test]
fn a_receivers_text_is_short_and_plain() {
    let long = "no ".repeat(1000);
    for (says, shown) in [(&*long, ": no no "), ("a\x1b[2J", "Internal"), ("one\ntwo", ": one")] {
        let (tree, n) = counted();
        let receiver = Told::start([Answer::No(Status::new(Code::Internal, says))]);
        let exporter = receiver.exporter(&tree).start().expect("valid");
        tree.root().add(n, 1);
        let error = exporter.export().expect_err("not accepted").to_string();
        assert!(error.contains(shown) && error.len() < 300, "{error}");
        assert!(!error.contains(['\u{1b}', '\u{fffd}']) && !error.contains("two"), "{error}");
    }
}

/// A gRPC receiver that accepts only a part, or takes too long, is reported as such.
#[test]
fn partial_success_and_timeouts_are_told_apart() {
    let (tree, n) = counted();
    let receiver = Told::start([Answer::Partly(1, "no"), Answer::Late]);
    let soon = receiver.exporter(&tree).timeout(Duration::from_millis(300));
    let exporter = soon.start().expect("valid");
    tree.root().add(n, 1);
    exporter.export().expect("accepted in part");
    let stats = exporter.stats();
    assert_eq!((stats.exports, stats.points, stats.points_rejected), (1, 1, 1));
    assert!(stats.last_error.is_some_and(|error| error.to_string().contains("no")));
    tree.root().add(n, 1);
    let error = exporter.export().expect_err("late");
    assert!(!error.is_refused(), "{error}");
    assert!(error.to_string().contains("OTEL_EXPORTER_OTLP_TIMEOUT"), "{error}");
}

/// A receiver that speaks the other protocol is named with the remedy.
#[test]
fn the_wrong_protocol_is_named_with_the_remedy() {
    let (tree, n) = counted();
    tree.root().add(n, 1);
    let http = Receiver::start(|_| Reply::Accept);
    let exporter = to(&format!("http://{}", http.address()), &tree).start().expect("valid");
    let error = exporter.export().expect_err("no HTTP/2").to_string();
    assert!(error.contains("OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"), "{error}");
    assert!(error.contains(&http.address().to_string()), "{error}");
    drop(http);
    let error = exporter.shutdown().expect_err("nobody listens").to_string();
    assert!(error.contains("start a receiver there"), "{error}");

    let grpc = Told::start([]);
    let url = format!("http://{}/v1/metrics", grpc.address);
    let exporter = to(&url, &tree).protocol(Protocol::Http).start().expect("valid");
    let error = exporter.export().expect_err("no HTTP/1.1").to_string();
    assert!(error.contains("OTEL_EXPORTER_OTLP_PROTOCOL=grpc"), "{error}");
    assert!(error.contains(&url), "{error}");
    let error = to(&url, &tree).start().expect_err("a path").to_string();
    assert!(error.contains(&url) && error.contains("http://host:4317"), "{error}");
}

#[test]
fn grpc_over_tls_trusts_as_told_and_shows_itself() {
    let identity = Identity::from_pem(CERTIFICATE, KEY);
    let files = files("grpc");
    let (tree, n) = counted();
    let tls = || ServerTlsConfig::new().identity(identity.clone());
    let open = Told::with([], Some(tls()));
    let closed = Told::with([], Some(tls().client_ca_root(Certificate::from_pem(AUTHORITY))));
    let to = |told: &Told, ca: &str| {
        let url = format!("https://localhost:{}", told.address.port());
        to(&url, &tree).certificate(files.path(ca))
    };
    tree.root().add(n, 1);
    let exporter = to(&open, "authority.pem").start().expect("valid");
    exporter.export().expect("accepted");
    tree.root().add(n, 1);
    let exporter = to(&closed, "authority.pem")
        .client_certificate(files.path("server.pem"), files.path("server.key"));
    exporter.start().expect("valid").export().expect("accepted");
    assert_eq!((sum(&open.requests()), sum(&closed.requests())), (1, 2));

    let unknown = to(&open, "stranger.pem").start().expect("valid");
    let error = unknown.export().expect_err("nobody vouches for it").to_string();
    assert!(error.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{error}");
    assert!(error.contains(&open.address.port().to_string()), "{error}");
    let nobody = to(&closed, "authority.pem").start().expect("valid");
    let error = nobody.export().expect_err("it wants to know who").to_string();
    assert!(error.contains("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"), "{error}");
}
