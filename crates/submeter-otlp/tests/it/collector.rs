//! Counts as an OpenTelemetry collector writes them, over restarts of either side.

use std::collections::{HashMap, HashSet};
use std::env;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use submeter::{Buckets, Count};
use submeter_otlp::{Exporter, Temporality};

use super::tree;

/// A collector that writes each point to a file, and is killed when it is dropped.
struct Collector(Child);

impl Collector {
    fn start(program: &Path, directory: &Path, at: SocketAddr, number: usize) -> Collector {
        let config = directory.join("config.yaml");
        let text = format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '{at}'}}}}}}}}
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

/// A point: metric, group, start, end. One that comes twice is the same request.
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

#[test]
fn a_collector_has_exactly_what_was_counted_over_restarts_of_either_side() {
    let Some(program) = env::var_os("SUBMETER_OTELCOL").map(PathBuf::from) else {
        println!("skipped: an OpenTelemetry collector: SUBMETER_OTELCOL=its program");
        return;
    };
    for (temporality, exponential) in [(Temporality::Cumulative, true), (Temporality::Delta, false)]
    {
        let directory = env::temp_dir().join(format!("submeter-otlp-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a place for files");
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = port.local_addr().expect("bound");
        drop(port);
        let mut counted = 0;
        let mut collector = Some(Collector::start(&program, &directory, at, 0));
        let mut number = 0;
        for _process in 0..3 {
            let mut keys = None;
            // As a new process has.
            let tree = tree(|schema| {
                let size = schema.histogram::<Count>("size", "", Buckets::powers(2, 8));
                keys = Some((schema.counter::<Count>("n", ""), size));
            });
            let (n, size) = keys.expect("declared");
            let exporter = Exporter::builder(&tree)
                .endpoint(&format!("http://{at}/v1/metrics"))
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
                    // While it is in the middle of something.
                    collector = None;
                }
                if step % 20 == 14 {
                    number += 1;
                    collector = Some(Collector::start(&program, &directory, at, number));
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
        assert_eq!((totals["n"], totals["size"]), (counted, counted), "{temporality:?}");
        fs::remove_dir_all(&directory).expect("made above");
    }
}
