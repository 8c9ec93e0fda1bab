//! Measures what `MeterLayer` costs a request beside the same service without it, interleaved in
//! one thread.
//!
//! Run with `cargo run --release -p submeter --features http --example layer_cost`; it takes some
//! seconds.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use submeter::http::{HttpMetrics, MeterLayer};
use submeter::{Schema, Tree};
use tower::{Layer, Service, service_fn};

const ROUNDS: usize = 300;
const REQUESTS: u32 = 1_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (time, without) = (tree(true)?, tree(false)?);
    let mut plain = service_fn(hello::<Full<Bytes>>);
    let mut cases: [(&str, Case); 3] = [
        ("no layer", Box::new(move || ask(&mut plain))),
        ("the layer", metered(&without)),
        ("the layer, with CPU time", metered(&time)),
    ];
    let mut samples = cases.each_ref().map(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for ((_, ask), samples) in cases.iter_mut().zip(&mut samples) {
            let start = Instant::now();
            (0..REQUESTS).for_each(|_| ask());
            samples.push(start.elapsed().as_nanos() as f64 / f64::from(REQUESTS));
        }
    }
    for ((name, _), mut samples) in cases.iter().zip(samples) {
        samples.sort_by(f64::total_cmp);
        let [least, quarter, median] = [0, ROUNDS / 4, ROUNDS / 2].map(|at| samples[at]);
        println!(
            "{name:<26} {least:>7.1} {quarter:>7.1} {median:>7.1} ns (least, quarter, median)"
        );
    }
    Ok(())
}

type Case = Box<dyn FnMut()>;
type Metered = (Tree, HttpMetrics);

fn tree(with_cpu_time: bool) -> Result<Metered, Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    let metrics: HttpMetrics = schema.declare();
    if with_cpu_time {
        schema.cpu_time("cpu", "CPU time used");
    }
    Ok((Tree::new(schema.build()?)?, metrics))
}

/// The group is known, so that finding it is not measured.
fn metered((tree, metrics): &Metered) -> Case {
    let group = tree.get_or_create("/acme/web").expect("room");
    let layer = MeterLayer::new(*metrics, move |_: &Request<Full<Bytes>>| Some(group.clone()));
    let mut service = layer.layer(service_fn(hello));
    Box::new(move || ask(&mut service))
}

fn hello<B>(request: Request<B>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    drop(black_box(request));
    ready(Ok(Response::new(Full::new(Bytes::from_static(b"hello")))))
}

/// Sends a request and reads the answer, as a server does.
fn ask<S, B>(service: &mut S)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut request = Request::new(Full::new(Bytes::new()));
    // Servers have put something there, so that the layer is not the first.
    request.extensions_mut().insert(());
    let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut context) else {
        panic!("the answer is there at once");
    };
    let mut body = pin!(response.into_body());
    while !body.is_end_stream() {
        _ = black_box(body.as_mut().poll_frame(&mut context));
    }
}
