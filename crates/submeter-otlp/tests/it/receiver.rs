//! A receiver that answers as it is told.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use prost::Message;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// An answer of the receiver.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// It accepts the request.
    Accept,
    /// It accepts the request, and the connection ends before the answer.
    AcceptAndBreak,
    /// It does not accept the request, and answers with these bytes.
    Answer(Vec<u8>),
    /// It never answers, and finally closes the connection.
    Silence,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) taken: bool,
}

/// A connection, encrypted or not.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

pub(crate) struct Receiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn status(line: &str) -> Reply {
    Reply::Answer(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\n\r\n").into_bytes())
}

impl Receiver {
    /// Starts one that answers the n-th request, counting from 0, with `reply`.
    pub(crate) fn start(reply: impl FnMut(usize) -> Reply + Send + 'static) -> Receiver {
        Receiver::at("127.0.0.1:0".parse().expect("an address"), reply)
    }

    /// Starts one that speaks TLS and accepts everything.
    pub(crate) fn encrypted(config: Arc<ServerConfig>) -> Receiver {
        let free = "127.0.0.1:0".parse().expect("an address");
        Receiver::with(free, Some(config), |_| Reply::Accept)
    }

    pub(crate) fn at(
        address: SocketAddr,
        reply: impl FnMut(usize) -> Reply + Send + 'static,
    ) -> Receiver {
        Receiver::with(address, None, reply)
    }

    fn with(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        mut reply: impl FnMut(usize) -> Reply + Send + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (requests, stop) =
            (Arc::<Mutex<Vec<Request>>>::default(), Arc::new(AtomicBool::new(false)));
        let (seen, stopped) = (Arc::clone(&requests), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                // Acquire: pairs with the Release in `drop`; whether to stop is all that matters.
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let long = Some(Duration::from_secs(10));
                stream.set_read_timeout(long).expect("a socket");
                let mut stream: Box<dyn Stream> = match &tls {
                    Some(config) => {
                        let server = ServerConnection::new(Arc::clone(config)).expect("a server");
                        Box::new(StreamOwned::new(server, stream))
                    }
                    None => Box::new(stream),
                };
                let Ok((head, body)) = read(&mut stream) else { continue };
                let number = seen.lock().expect("no panic").len();
                let reply = reply(number);
                let taken = matches!(reply, Reply::Accept | Reply::AcceptAndBreak);
                seen.lock().expect("no panic").push(Request { head, body, taken });
                let _ = match reply {
                    Reply::Accept => {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                    }
                    Reply::Answer(bytes) => stream.write_all(&bytes),
                    Reply::AcceptAndBreak => Ok(()),
                    Reply::Silence => stream.read(&mut [0]).map(drop),
                };
            }
        });
        Receiver { address, requests, stop, thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/metrics", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }

    /// Returns the metrics of each request that it accepted; a repeated request counts once.
    pub(crate) fn taken(&self) -> Vec<Vec<Metric>> {
        let mut requests: Vec<_> = self.requests().into_iter().filter(|r| r.taken).collect();
        requests.dedup_by(|a, b| a.body == b.body);
        requests.iter().map(|request| metrics(&request.body)).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the thread.
        self.stop.store(true, Ordering::Release);
        // Wakes the thread.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

pub(crate) fn decode(body: &[u8]) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest::decode(body).expect("protobuf")
}

pub(crate) fn metrics(body: &[u8]) -> Vec<Metric> {
    let [resource] = &decode(body).resource_metrics[..] else { panic!("one resource") };
    let [scope] = &resource.scope_metrics[..] else { panic!("one scope") };
    scope.metrics.clone()
}

pub(crate) fn group(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue]) -> String {
    let [group] = attributes else { panic!("one attribute, not {attributes:?}") };
    assert_eq!(group.key, "group");
    match group.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(path)) => path.clone(),
        other => panic!("a path, not {other:?}"),
    }
}

fn read(stream: &mut dyn Stream) -> io::Result<(String, Vec<u8>)> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(n) = line.strip_prefix("content-length:") {
            length = n.trim().parse().expect("a length");
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((head, body))
}
