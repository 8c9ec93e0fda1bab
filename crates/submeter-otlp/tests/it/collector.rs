//! Counts as an OpenTelemetry collector writes them, over restarts of either side.

use std::collections::{HashMap, HashSet};
use std::env;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use submeter::{Count, Tree};
use submeter_otlp::{Builder, Exporter, Protocol, Temporality};

use super::tls::{Files, files};
use super::{tree, with_histogram};

/// A collector that writes each point to a file, and is killed when it is dropped.
struct Collector(Child);

/// The way to talk to it.
#[derive(Clone, Copy, Debug)]
struct Way {
    protocol: Protocol,
    /// Mutual TLS.
    encrypted: bool,
}

impl Way {
    fn settings(self, at: SocketAddr, files: &Files) -> String {
        let name = match self.protocol {
            Protocol::Grpc => "grpc",
            _ => "http",
        };
        let tls = if self.encrypted {
            let [certificate, key, authority] = ["server.pem", "server.key", "authority.pem"]
                .map(|name| files.path(name).display().to_string());
            format!(
                ", tls: {{cert_file: '{certificate}', key_file: '{key}', \
                 client_ca_file: '{authority}'}}"
            )
        } else {
            String::new()
        };
        format!("{name}: {{endpoint: '{at}'{tls}}}")
    }

    fn exporter(self, tree: &Tree, at: SocketAddr, files: &Files) -> Builder {
        let url = match (self.encrypted, self.protocol) {
            (false, _) => format!("http://{at}"),
            (true, _) => format!("https://localhost:{}", at.port()),
        };
        let exporter = Exporter::builder(tree).protocol(self.protocol).receiver(&url);
        if !self.encrypted {
            return exporter;
        }
        exporter
            .certificate(files.path("authority.pem"))
            .client_certificate(files.path("server.pem"), files.path("server.key"))
    }
}

fn free() -> SocketAddr {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    port.local_addr().expect("bound")
}

impl Collector {
    fn start(
        program: &Path,
        directory: &Path,
        protocols: &str,
        at: SocketAddr,
        number: usize,
    ) -> Collector {
        let config = directory.join("config.yaml");
        let text = format!(
            "receivers: {{otlp: {{protocols: {{{protocols}}}}}}}
exporters: {{debug: {{verbosity: detailed, sampling_initial: 1000000, sampling_thereafter: 1}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [debug]}}}}
"
        );
        fs::write(&config, text).expect("a directory of the test");
        let log = File::create(directory.join(format!("{number}.log"))).expect("the same");
        let mut child = Command::new(program)
            .arg(format!("--config=file:{}", config.display()))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("SUBMETER_OTELCOL names a program");
        for _ in 0..600 {
            if TcpStream::connect(at).is_ok() {
                return Collector(child);
            }
            let ended = child.try_wait().expect("a child");
            assert!(ended.is_none(), "the collector ended: see {}", directory.display());
            thread::sleep(Duration::from_millis(100));
        }
        let _ = child.kill();
        panic!("no answer of a collector within a minute: see {}", directory.display());
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.0.kill().expect("alive until now");
        self.0.wait().expect("killed above");
    }
}

/// A point: metric, group, start, end. One that occurs twice is from the same request.
type Point = (String, String, String, String);

/// Adds up the counts of each metric in what collectors wrote.
fn totals(directory: &Path, temporality: Temporality) -> HashMap<String, u64> {
    let (mut seen, mut totals) = (HashSet::<Point>::new(), HashMap::<String, u64>::new());
    let mut series = HashMap::new();
    let mut logs: Vec<PathBuf> = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("one").path())
        .collect();
    logs.retain(|path| path.extension().is_some_and(|end| end == "log"));
    logs.sort();
    for log in logs {
        let (mut name, mut group, mut start, mut end) =
            (String::new(), String::new(), String::new(), String::new());
        for line in fs::read_to_string(log).expect("text").lines() {
            let Some((key, value)) = line.trim().trim_start_matches("-> ").split_once(": ") else {
                continue;
            };
            match key {
                "Name" => value.clone_into(&mut name),
                "group" => value.clone_into(&mut group),
                "StartTimestamp" => value.clone_into(&mut start),
                "Timestamp" => value.clone_into(&mut end),
                "Value" | "Count" => {
                    let n: u64 = value.parse().expect("a count");
                    let point = (name.clone(), group.clone(), start.clone(), end.clone());
                    if temporality == Temporality::Cumulative {
                        series.insert((name.clone(), group.clone(), start.clone()), n);
                    } else if seen.insert(point) {
                        *totals.entry(name.clone()).or_default() += n;
                    }
                }
                _ => {}
            }
        }
    }
    for ((name, ..), n) in series {
        *totals.entry(name).or_default() += n;
    }
    totals
}

/// A collector has exactly what was counted, over restarts of either side.
#[test]
fn counts_are_exact_over_restarts() {
    let Some(program) = env::var_os("SUBMETER_OTELCOL").map(PathBuf::from) else {
        println!("skipped: an OpenTelemetry collector: SUBMETER_OTELCOL=its program");
        return;
    };
    let way = |protocol, encrypted| Way { protocol, encrypted };
    for (temporality, exponential, way) in [
        (Temporality::Cumulative, true, way(Protocol::Http, false)),
        (Temporality::Delta, false, way(Protocol::Http, true)),
        (Temporality::Delta, true, way(Protocol::Grpc, false)),
        (Temporality::Cumulative, false, way(Protocol::Grpc, true)),
    ] {
        let files = files("collector");
        let directory = env::temp_dir().join(format!("submeter-otlp-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a place for files");
        let at = free();
        let start = |number| {
            Some(Collector::start(&program, &directory, &way.settings(at, &files), at, number))
        };
        let mut counted = 0;
        let mut collector = start(0);
        let mut number = 0;
        for _process in 0..3 {
            // As in a new process.
            let (tree, n, size) = with_histogram(8);
            let exporter = way
                .exporter(&tree, at, &files)
                .temporality(temporality)
                .exponential(exponential)
                .gzip(exponential)
                .interval(Duration::from_millis(5))
                .start()
                .expect("valid");
            for step in 0..60u64 {
                let path = format!("/{}/{}", step % 3, step % 5);
                let group = tree.get_or_create(&path).expect("room");
                group.add(n, step);
                group.record_many(size, step * 7, step);
                counted += step;
                if step % 7 == 0 {
                    drop(group);
                    tree.get(&path).expect("live").kill().expect("no children");
                }
                if step % 20 == 9 {
                    // While it is busy.
                    collector = None;
                }
                if step % 20 == 14 {
                    number += 1;
                    collector = start(number);
                }
                thread::sleep(Duration::from_millis(2));
            }
            exporter.export().expect("the collector is there");
            let stats = exporter.stats();
            assert!(stats.exports > 3 && stats.retries > 0, "{stats:?}");
            exporter.shutdown().expect("the collector is there");
        }
        drop(collector);
        let totals = totals(&directory, temporality);
        assert_eq!((totals["n"], totals["size"]), (counted, counted), "{temporality:?} {way:?}");
        fs::remove_dir_all(&directory).expect("made above");
    }
}

/// A collector answers a request that it cannot serve with a remedy.
#[test]
fn what_a_collector_refuses_has_a_remedy() {
    let Some(program) = env::var_os("SUBMETER_OTELCOL").map(PathBuf::from) else {
        println!("skipped: an OpenTelemetry collector: SUBMETER_OTELCOL=its program");
        return;
    };
    let directory = env::temp_dir().join(format!("submeter-otlp-vain-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a place for files");
    let (files, mut key) = (files("vain"), None);
    let tree = tree(|schema| key = Some(schema.counter::<Count>("n", "")));
    tree.root().add(key.expect("declared"), 1);
    let plain = |protocol| Way { protocol, encrypted: false };
    let tls = |protocol| Way { protocol, encrypted: true };
    let (http, grpc) = (Protocol::Http, Protocol::Grpc);
    let http_wanted = "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf";
    let grpc_wanted = "OTEL_EXPORTER_OTLP_PROTOCOL=grpc";
    for (number, (is, asked, remedy)) in [
        (plain(http), plain(grpc), http_wanted),
        (plain(grpc), plain(http), grpc_wanted),
        (tls(http), tls(grpc), http_wanted),
        (plain(http), tls(http), "use http"),
        (plain(grpc), tls(grpc), "use http"),
        (tls(http), plain(http), "HTTPS"),
    ]
    .into_iter()
    .enumerate()
    {
        let at = free();
        let settings = is.settings(at, &files);
        let collector = Collector::start(&program, &directory, &settings, at, number);
        let exporter = asked.exporter(&tree, at, &files).start().expect("valid");
        let error = exporter.export().expect_err("not what it speaks").to_string();
        println!("{is:?} asked as {asked:?}: {error}");
        assert!(error.contains(remedy) && error.contains(&at.port().to_string()), "{error}");
        drop(collector);
    }
    for (number, protocol) in [http, grpc].into_iter().enumerate() {
        let at = free();
        let settings = tls(protocol).settings(at, &files);
        let collector = Collector::start(&program, &directory, &settings, at, 9 + number);
        let known = || tls(protocol).exporter(&tree, at, &files);
        let exporter = known().certificate(files.path("stranger.pem")).start().expect("valid");
        let error = exporter.export().expect_err("nobody vouches for it").to_string();
        println!("{protocol:?}: {error}");
        assert!(error.contains("OTEL_EXPORTER_OTLP_CERTIFICATE"), "{error}");
        let nobody = plain(protocol).exporter(&tree, at, &files);
        let nobody = nobody.receiver(&format!("https://localhost:{}", at.port()));
        let nobody = nobody.certificate(files.path("authority.pem")).start().expect("valid");
        let error = nobody.export().expect_err("it wants to know who").to_string();
        println!("{protocol:?}: {error}");
        assert!(error.contains("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"), "{error}");
        known().start().expect("valid").export().expect("accepted");
        drop(collector);
    }
    fs::remove_dir_all(&directory).expect("made above");
}
