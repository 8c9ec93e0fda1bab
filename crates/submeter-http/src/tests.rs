//! Requests and their bodies, counted in groups.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use submeter::{Bytes as InBytes, Count, Counter, Group, Nanoseconds, Rate, Schema, Tree, switch};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::{GroupLayer, HttpMetrics, MeterLayer, MeteredBody, RateLayer, refused};

/// Computes until the thread has used `time` on a CPU.
fn burn(time: Duration) {
    let start = switch::clock::thread_cpu_ns();
    while switch::clock::thread_cpu_ns() - start < time.as_nanos() as u64 {
        std::hint::black_box((0..100u64).sum::<u64>());
    }
}

type Data = &'static [u8];

struct Fixture {
    tree: Tree,
    metrics: HttpMetrics,
    cpu: Counter<Nanoseconds>,
    web: Group,
}

impl Fixture {
    fn new() -> Fixture {
        let mut schema = Schema::builder();
        let metrics: HttpMetrics = schema.declare();
        let cpu = schema.cpu_time("cpu", "CPU time");
        let tree = Tree::new(schema.build().expect("valid")).expect("address space");
        let web = tree.create("/web").expect("new");
        Fixture { tree, metrics, cpu, web }
    }

    /// Returns requests, errors, aborted, active, durations.
    fn counts(&self) -> [u64; 5] {
        let HttpMetrics { requests, errors, aborted, active, duration, .. } = self.metrics;
        let [requests, errors, aborted] = [requests, errors, aborted].map(|key| self.web.sum(key));
        let active = self.web.sum(active).cast_unsigned();
        [requests, errors, aborted, active, self.web.sum_histogram(duration).count()]
    }

    fn bytes(&self) -> [u64; 2] {
        let keys: [Counter<InBytes>; 2] = [self.metrics.request_bytes, self.metrics.response_bytes];
        keys.map(|key| self.web.sum(key))
    }

    /// Serves one request, whose path is that of a tenant.
    fn serve<B, A, E, F>(
        &self,
        request: Request<B>,
        mut handler: impl FnMut(Request<MeteredBody<B>>) -> F,
    ) -> Result<Response<MeteredBody<A>>, E>
    where
        B: Body,
        A: Body,
        F: Future<Output = Result<Response<A>, E>>,
    {
        let names = self.tree.clone();
        let layer = MeterLayer::new(self.metrics, move |request: &Request<B>| {
            names.get(request.uri().path())
        });
        let service = ServiceBuilder::new().layer(layer).service(service_fn(&mut handler));
        block_on(service.oneshot(request))
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a thread");
    runtime.block_on(future)
}

fn request<B>(path: &str, body: B) -> Request<B> {
    Request::post(path).body(body).expect("valid")
}

/// A body of unknown length, whose frames are made by `frame`.
fn frames<E>(
    n: usize,
    mut frame: impl FnMut(usize) -> Result<Data, E>,
) -> impl Body<Data = Data, Error = E> {
    StreamBody::new(stream::iter(0..n).map(move |index| frame(index).map(Frame::data)))
}

/// Both bodies are in the group, and counted to the last byte.
#[test]
fn both_bodies_are_counted_to_the_last_byte() {
    let fixture = Fixture::new();
    let web = fixture.web.clone();
    let here = |web: &Group| assert_eq!(switch::current().as_ref(), Some(web));
    let upload = {
        let web = web.clone();
        frames(3, move |_| {
            here(&web);
            Ok::<_, Infallible>(b"upload")
        })
    };
    let response = fixture.serve(request("/web", upload), |request| {
        here(&web);
        assert_eq!(request.extensions().get::<Group>(), Some(&web));
        let web = web.clone();
        async move {
            here(&web);
            let got = request.into_body().collect().await.expect("infallible").to_bytes();
            assert_eq!(got.len(), 18);
            let answer = frames(4, move |_| {
                here(&web);
                burn(Duration::from_millis(2));
                Ok::<_, Infallible>(b"answer!")
            });
            Ok::<_, Infallible>(Response::new(answer))
        }
    });
    let body = response.expect("infallible").into_body();
    assert_eq!(fixture.counts(), [1, 0, 0, 1, 0], "the response has not ended");
    let before = fixture.web.sum(fixture.cpu);
    assert_eq!(block_on(body.collect()).expect("infallible").to_bytes().len(), 28);
    assert_eq!(switch::current(), None);
    assert_eq!(fixture.bytes(), [18, 28]);
    assert_eq!(fixture.counts(), [1, 0, 0, 0, 1]);
    // Frames of the body used most of 8 ms, while no handler was running.
    assert!(fixture.web.sum(fixture.cpu) - before > 4_000_000);
    let took = fixture.web.sum_histogram(fixture.metrics.duration).sum();
    assert!(took > 4_000_000, "{took} ns end with the last byte");
}

#[test]
fn a_body_of_known_length_ends_without_a_poll() {
    let fixture = Fixture::new();
    let full = Full::<Data>::new(b"hello");
    let handler = |_| std::future::ready(Ok::<_, Infallible>(Response::new(full)));
    let response = fixture.serve(request("/web", Empty::<Data>::new()), handler);
    let mut body = pin!(response.expect("infallible").into_body());
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(body.as_mut().poll_frame(&mut context), Poll::Ready(Some(Ok(_)))));
    assert_eq!(fixture.counts(), [1, 0, 0, 0, 1], "as servers leave it");

    let none = |_| std::future::ready(Ok::<_, Infallible>(Response::new(Empty::<Data>::new())));
    drop(fixture.serve(request("/web", Empty::<Data>::new()), none));
    assert_eq!(fixture.counts(), [2, 0, 0, 0, 2]);
}

/// Frames of data, then trailers; the length of the data is known. Reports where it is dropped.
struct WithTrailers {
    data: usize,
    trailers: bool,
    dropped_in: Arc<Mutex<Vec<Option<Group>>>>,
}

impl Body for WithTrailers {
    type Data = Data;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, Infallible>>> {
        if self.data > 0 {
            self.data -= 1;
            return Poll::Ready(Some(Ok(Frame::data(b"data"))));
        }
        let trailers = std::mem::take(&mut self.trailers);
        Poll::Ready(trailers.then(|| Ok(Frame::trailers(HeaderMap::new()))))
    }

    fn is_end_stream(&self) -> bool {
        self.data == 0 && !self.trailers
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(4 * self.data as u64)
    }
}

impl Drop for WithTrailers {
    fn drop(&mut self) {
        self.dropped_in.lock().expect("no panic").push(switch::current());
    }
}

/// Trailers come after the last byte, and a body is dropped in its group when it ends.
#[test]
fn bodies_are_dropped_in_their_group() {
    let fixture = Fixture::new();
    let dropped_in = Arc::default();
    let answer = || {
        let body = WithTrailers { data: 2, trailers: true, dropped_in: Arc::clone(&dropped_in) };
        let mut body = Some(body);
        let handler = |_| {
            let body = body.take().expect("one request");
            std::future::ready(Ok::<_, Infallible>(Response::new(body)))
        };
        fixture.serve(request("/web", Empty::<Data>::new()), handler).expect("infallible")
    };
    let dropped = || dropped_in.lock().expect("no panic").clone();
    let mut context = Context::from_waker(Waker::noop());
    let mut next = |mut body: Pin<&mut MeteredBody<WithTrailers>>| {
        let Poll::Ready(frame) = body.as_mut().poll_frame(&mut context) else {
            panic!("all frames are there");
        };
        frame.map(|frame| frame.expect("infallible").is_trailers())
    };

    let mut body = pin!(answer().into_body());
    assert_eq!((next(body.as_mut()), next(body.as_mut())), (Some(false), Some(false)));
    assert_eq!(fixture.counts(), [1, 0, 0, 0, 1], "as servers may leave it");
    assert_eq!((body.is_end_stream(), dropped()), (false, vec![]));
    assert_eq!(next(body.as_mut()), Some(true));
    assert_eq!(dropped(), [Some(fixture.web.clone())], "at its end");
    assert_eq!((body.is_end_stream(), body.size_hint().exact()), (true, Some(0)));
    assert_eq!(next(body.as_mut()), None);
    assert_eq!(fixture.bytes(), [0, 8]);

    drop(answer());
    assert_eq!(dropped().len(), 2);
    assert_eq!(dropped()[1], Some(fixture.web.clone()), "before its end");
    assert_eq!(fixture.counts(), [2, 0, 1, 0, 2]);
    assert_eq!(switch::current(), None);
}

/// Returns how a response is counted when a server polls it for `polls` frames: errors, aborted,
/// bytes. Its frames are `d`ata of four bytes, `0` of none, `t`railers, and errors.
fn counted(method: &Method, head: http::response::Builder, frames: &str, polls: usize) -> [u64; 3] {
    let fixture = Fixture::new();
    let frames: Vec<_> = frames.chars().collect();
    // A body that neither knows its length nor foresees its end, like bodies made of streams.
    let body = StreamBody::new(stream::iter(frames).map(|frame| match frame {
        'd' => Ok(Frame::data(&b"data"[..])),
        't' => Ok(Frame::trailers(HeaderMap::new())),
        '0' => Ok(Frame::data(&b""[..])),
        _ => Err(io::Error::other("!")),
    }));
    let mut request = request("/web", Empty::<Data>::new());
    request.method_mut().clone_from(method);
    let mut response = Some(head.body(body).expect("valid"));
    let handler = |_| std::future::ready(Ok::<_, Infallible>(response.take().expect("one")));
    let mut body = Box::pin(fixture.serve(request, handler).expect("infallible").into_body());
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        assert!(body.as_mut().poll_frame(&mut context).is_ready());
    }
    let before = fixture.counts();
    drop(body);
    let [requests, errors, aborted, active, ended] = fixture.counts();
    assert_eq!((requests, active, ended), (1, 0, 1), "once");
    // Not when the server drops the body, which may be later.
    assert_eq!(before[4], u64::from(aborted == 0), "as of the last byte");
    [errors, aborted, fixture.bytes()[1]]
}

/// A response is complete once everything that its head promises was handed over.
#[test]
fn a_response_is_complete_as_its_head_promises() {
    let head = |status: u16, headers: &[(&str, &str)]| {
        headers.iter().fold(Response::builder().status(status), |head, (k, v)| head.header(*k, *v))
    };
    let ok = |length: &str| head(200, &[("content-length", length)]);
    let (get, head_, connect) = (&Method::GET, &Method::HEAD, &Method::CONNECT);
    for (name, method, head, frames, polls, expected) in [
        ("the length is reached", get, ok("8"), "dd", 2, [0, 0, 8]),
        ("with empty frames", get, ok("8"), "0d0d", 4, [0, 0, 8]),
        ("an error after the last byte comes too late", get, ok("8"), "dd!", 3, [0, 0, 8]),
        ("trailers follow the last byte", get, ok("8"), "ddt", 2, [0, 0, 8]),
        ("more than the length", get, ok("6"), "ddd", 2, [0, 0, 6]),
        ("a length of 0", get, ok("0"), "", 0, [0, 0, 0]),
        ("a length of 0 with a body", get, ok("0"), "d", 0, [0, 0, 0]),
        (
            "an error's length is reached",
            get,
            head(503, &[("content-length", "4")]),
            "d",
            1,
            [1, 0, 4],
        ),
        ("without a length, the end is seen", get, head(200, &[]), "dd", 3, [0, 0, 8]),
        ("without a length, trailers are the end", get, head(200, &[]), "ddt", 3, [0, 0, 8]),
        ("without a length, before the end", get, head(200, &[]), "dd", 2, [0, 1, 8]),
        ("before the length", get, ok("8"), "dd", 1, [0, 1, 4]),
        ("before the first byte", get, ok("8"), "dd", 0, [0, 1, 0]),
        ("an error before the length", get, ok("8"), "d!", 2, [1, 0, 4]),
        ("an end before the length", get, ok("8"), "d", 2, [1, 0, 4]),
        ("trailers before the length", get, ok("8"), "dt", 2, [1, 0, 4]),
        ("no number", get, ok("eight"), "dd", 3, [0, 0, 8]),
        ("no number, before the end", get, ok("+8"), "dd", 2, [0, 1, 8]),
        ("no number of 64 bits", get, ok("18446744073709551616"), "dd", 2, [0, 1, 8]),
        (
            "the same length twice",
            get,
            head(200, &[("content-length", "4"), ("content-length", "4")]),
            "d",
            1,
            [0, 0, 4],
        ),
        (
            "two lengths",
            get,
            head(200, &[("content-length", "4"), ("content-length", "8")]),
            "dd",
            2,
            [0, 1, 8],
        ),
        (
            "chunks come before the length",
            get,
            head(200, &[("transfer-encoding", "chunked"), ("content-length", "4")]),
            "dd",
            2,
            [0, 1, 8],
        ),
        ("not modified", get, head(304, &[("content-length", "8")]), "dd", 0, [0, 0, 0]),
        ("no content", get, head(204, &[]), "dd", 0, [0, 0, 0]),
        ("another protocol", get, head(101, &[]), "dd", 0, [0, 0, 0]),
        ("a tunnel", connect, head(200, &[]), "dd", 0, [0, 0, 0]),
        ("a tunnel that is refused", connect, head(403, &[]), "dd", 0, [0, 1, 0]),
        ("the head alone", head_, ok("8"), "dd", 0, [0, 0, 0]),
        ("the head alone, of an error", head_, head(500, &[]), "dd", 0, [1, 0, 0]),
        ("what nobody is sent", head_, ok("8"), "dd", 2, [0, 0, 0]),
    ] {
        assert_eq!(counted(method, head, frames, polls), expected, "{name}");
    }
}

/// A body that declares its length, but not how much is left or that it is over.
struct Sized(usize);

impl Body for Sized {
    type Data = Data;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Data>, Infallible>>> {
        self.0 += 1;
        Poll::Ready((self.0 <= 2).then_some(Ok(Frame::data(b"data"))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(8)
    }
}

#[test]
fn a_bodys_own_length_is_as_good_as_the_heads() {
    for (polls, expected) in [(1, [1, 0, 1, 0, 1]), (2, [1, 0, 0, 0, 1])] {
        let fixture = Fixture::new();
        let handler = |_| std::future::ready(Ok::<_, Infallible>(Response::new(Sized(0))));
        let response = fixture.serve(request("/web", Empty::<Data>::new()), handler);
        let mut body = Box::pin(response.expect("infallible").into_body());
        for _ in 0..polls {
            assert!(body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())).is_ready());
        }
        drop(body);
        assert_eq!(fixture.counts(), expected);
    }
}

#[test]
fn an_empty_body_breaks_a_heads_promise() {
    for (length, errors) in [(None, 0), (Some("0"), 0), (Some("10"), 1)] {
        let fixture = Fixture::new();
        let head = length
            .into_iter()
            .fold(Response::builder(), |head, length| head.header("content-length", length));
        let mut response = Some(head.body(Empty::<Data>::new()).expect("valid"));
        let handler = |_| std::future::ready(Ok::<_, Infallible>(response.take().expect("one")));
        drop(fixture.serve(request("/web", Empty::<Data>::new()), handler).expect("infallible"));
        assert_eq!(fixture.counts(), [1, errors, 0, 0, 1], "{length:?}");
    }
}

#[test]
fn a_response_dropped_before_its_end_is_aborted() {
    let fixture = Fixture::new();
    let three =
        |_| async { Ok::<_, Infallible>(Response::new(frames(3, |_| Ok::<_, io::Error>(b"x")))) };
    let response = fixture.serve(request("/web", Empty::<Data>::new()), three);
    let mut body = Box::pin(response.expect("infallible").into_body());
    let mut context = Context::from_waker(Waker::noop());
    assert!(body.as_mut().poll_frame(&mut context).is_ready());
    drop(body);
    assert_eq!(fixture.counts(), [1, 0, 1, 0, 1]);
    assert_eq!(fixture.bytes(), [0, 1]);

    // A client that goes away before there is a response.
    let names = fixture.tree.clone();
    let layer = MeterLayer::new(fixture.metrics, move |request: &Request<Empty<Data>>| {
        names.get(request.uri().path())
    });
    let never = service_fn(|_| std::future::pending::<Result<Response<Empty<Data>>, Infallible>>());
    let service = ServiceBuilder::new().layer(layer).service(never);
    let mut future = Box::pin(service.oneshot(request("/web", Empty::new())));
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert_eq!(fixture.counts(), [2, 0, 1, 1, 1]);
    drop(future);
    assert_eq!(fixture.counts(), [2, 0, 2, 0, 2]);
}

#[test]
fn failures_of_every_kind_are_errors_once() {
    let fixture = Fixture::new();
    let post = || request("/web", Empty::<Data>::new());
    let with = |status: StatusCode| {
        move |_| {
            let mut response = Response::new(Full::<Data>::new(b"sorry"));
            *response.status_mut() = status;
            std::future::ready(Ok::<_, Infallible>(response))
        }
    };
    let response = fixture.serve(post(), with(StatusCode::INTERNAL_SERVER_ERROR));
    block_on(response.expect("infallible").into_body().collect()).expect("infallible");
    assert_eq!(fixture.counts(), [1, 1, 0, 0, 1]);
    let response = fixture.serve(post(), with(StatusCode::NOT_FOUND));
    block_on(response.expect("infallible").into_body().collect()).expect("infallible");
    assert_eq!(fixture.counts(), [2, 1, 0, 0, 2], "the client's error");

    let broken = |_| {
        let body =
            frames(2, |index| if index == 0 { Ok(&b"x"[..]) } else { Err(io::Error::other("!")) });
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    };
    let response = fixture.serve(post(), broken).expect("infallible");
    assert!(block_on(response.into_body().collect()).is_err());
    assert_eq!(fixture.counts(), [3, 2, 0, 0, 3]);

    let failing = |_| std::future::ready(Err::<Response<Full<Data>>, _>(io::Error::other("!")));
    assert!(fixture.serve(post(), failing).is_err());
    assert_eq!(fixture.counts(), [4, 3, 0, 0, 4]);

    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let handler = |_| async { panic!("on purpose") };
        let _: Result<Response<MeteredBody<Full<Data>>>, Infallible> =
            fixture.serve(post(), handler);
    }));
    assert!(panics.is_err());
    assert_eq!(fixture.counts(), [5, 4, 0, 0, 5]);
}

#[test]
fn a_request_of_no_group_is_served_uncounted() {
    let fixture = Fixture::new();
    let handler = |request: Request<MeteredBody<Full<Data>>>| async move {
        assert!(request.extensions().get::<Group>().is_none());
        let got = request.into_body().collect().await.expect("infallible").to_bytes();
        Ok::<_, Infallible>(Response::new(Full::new(got)))
    };
    let response = fixture.serve(request("/nobody", Full::new(&b"hello"[..])), handler);
    let got = block_on(response.expect("infallible").into_body().collect()).expect("infallible");
    assert_eq!(got.to_bytes(), "hello");
    assert_eq!((fixture.counts(), fixture.bytes()), ([0; 5], [0; 2]));
}

/// A refused charge becomes a status without the names of others.
#[test]
fn a_refusal_is_a_status_without_other_names() {
    let mut schema = Schema::builder();
    let memory = schema.quota::<InBytes>("memory", "Memory held");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    tree.root().set_limit(memory, Some(10));
    let [secret, web] = ["/secret", "/web"].map(|path| tree.create(path).expect("new"));
    let _held = secret.try_charge(memory, 8).expect("room");
    let refused = web.try_charge(memory, 8).expect_err("no room");
    assert!(refused.detail().to_string().contains("secret"), "what the operator reads");
    let response = crate::refused(refused);
    assert_eq!(response.status(), StatusCode::INSUFFICIENT_STORAGE);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(response.body(), "the limit of memory is reached: try again later\n");
    web.kill().expect("alive");
    let gone = web.charge_blocking(memory, 8, Duration::MAX).expect_err("nobody waits there");
    let response = crate::refused(gone);
    assert_eq!(
        (response.status(), response.body().as_str()),
        (StatusCode::GONE, "the tenant is gone\n")
    );
    assert!(!response.headers().contains_key("retry-after"), "it would be in vain");
}

#[test]
fn a_throttled_request_is_told_when_to_retry() {
    let mut schema = Schema::builder();
    let requests = schema.rate_limit::<Count>("requests", "Requests");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let web = tree.create("/web").expect("new");
    // One is earned per hour: the shortest wait that the test may see is a minute less.
    let rate = Rate { burst: 3, ..Rate::new(1, Duration::from_secs(3600)) };
    web.set_rate(requests, Some(rate)).expect("it can be kept");
    web.try_take(requests, 3).expect("a burst");

    let response = refused(web.try_take(requests, 1).expect_err("all taken"));
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let after: u64 = response.headers()["retry-after"].to_str().expect("text").parse().expect("s");
    assert!((3540..=3600).contains(&after), "{after}");
    assert_eq!(response.body(), "the rate of requests is reached: try again later\n");

    let never = refused(web.try_take(requests, 4).expect_err("over a burst"));
    assert_eq!(never.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(never.headers().get("retry-after"), None);
    assert_eq!(never.body(), "the rate of requests is reached: ask for less at once\n");

    // A fraction of a second counts as a whole one: an earlier try would be refused again.
    let rate = Rate { burst: 1, ..Rate::new(1, Duration::from_millis(3_599_500)) };
    tree.root().set_rate(requests, Some(rate)).expect("it can be kept");
    tree.root().try_take(requests, 1).expect("a burst");
    let error = tree.root().try_take(requests, 1).expect_err("all taken");
    let exact = error.retry_after().expect("some time");
    let said = refused(error).headers()["retry-after"].clone();
    let said: u64 = said.to_str().expect("text").parse().expect("s");
    assert_eq!(said, exact.as_secs() + 1, "{exact:?}");

    // A fleet's rate while nothing is leased.
    tree.root().set_rate(requests, Some(Rate::NOTHING)).expect("it can be kept");
    let nothing = refused(tree.root().try_take(requests, 1).expect_err("taken"));
    assert_eq!(nothing.headers().get("retry-after"), None);
    assert_eq!(nothing.body(), "the rate of requests is reached: try again later\n");

    web.kill().expect("alive");
    tree.root().set_rate(requests, None).expect("none");
    let gone =
        block_on(web.take(requests, 1, |_| pending::<()>())).expect_err("nobody waits there");
    assert_eq!(refused(gone).status(), StatusCode::GONE);
}

/// Requests over the rate are answered, counted and not served.
#[test]
fn requests_over_the_rate_are_not_served() {
    let mut schema = Schema::builder();
    let metrics: HttpMetrics = schema.declare();
    let limit = schema.rate_limit("requests", "Requests let in");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let web = tree.create("/web").expect("new");
    let rate = Rate { burst: 2, ..Rate::new(1, Duration::from_secs(3600)) };
    web.set_rate(limit, Some(rate)).expect("it can be kept");
    let (names, mut served) = (tree.clone(), 0);
    let tenant = move |request: &Request<_>| names.get(request.uri().path());
    let mut handler = |request: Request<MeteredBody<Empty<&[u8]>>>| {
        served += 1;
        drop(request);
        async { Ok::<_, Infallible>(Response::new(String::from("served"))) }
    };
    let mut service = ServiceBuilder::new()
        .layer(MeterLayer::new(metrics, tenant))
        .layer(RateLayer::new(limit))
        .service(service_fn(&mut handler));
    let mut call = |path| {
        let answer = block_on((&mut service).oneshot(request(path, Empty::new())));
        let (head, body) = answer.expect("infallible").into_parts();
        let body = block_on(body.collect()).expect("infallible").to_bytes();
        (head.status.as_u16(), head.headers.contains_key("retry-after"), body.len())
    };
    assert_eq!([call("/web"), call("/web")], [(200, false, 6); 2]);
    assert_eq!(call("/web"), (429, true, 49));
    assert_eq!(call("/none"), (200, false, 6), "in no group there is no rate");
    assert_eq!(served, 3);
    assert_eq!((web.sum(metrics.requests), web.sum(metrics.response_bytes)), (3, 61));
    assert_eq!(web.sum(limit.throttled()), 1);
}

#[test]
fn each_request_is_handled_in_its_group() {
    let Fixture { tree, cpu, web, .. } = Fixture::new();
    let names = tree.clone();
    let service = ServiceBuilder::new()
        .layer(GroupLayer::new(move |path: &&str| names.get(path)))
        .service(service_fn(|_: &str| {
            let at_call = switch::current();
            async move {
                burn(Duration::from_millis(2));
                tokio::task::yield_now().await;
                Ok::<_, Infallible>((at_call, switch::current()))
            }
        }));
    let seen = block_on(service.clone().oneshot("/web")).expect("infallible");
    assert_eq!(seen, (Some(web.clone()), Some(web.clone())));
    assert_eq!(block_on(service.oneshot("/none")).expect("infallible"), (None, None));
    assert!(web.sum(cpu) >= 1_000_000);
    assert_eq!(tree.root().sum(cpu), web.sum(cpu), "the other one is nobody's");
}
