//! The service under load: its charges match what the system and the clients counted.

use std::collections::HashMap;
use std::process::Command;

use submeter_program::TempFile;

use crate::client::{Service, of, text};

/// Returns the CPU time of a process in seconds, as the system counts it: user and system, in
/// hundredths.
fn cpu_s(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let ticks = fields.split(' ').skip(11).take(2).map(|n| n.parse::<f64>().expect("a number"));
    ticks.sum::<f64>() / 100.0
}

/// ApacheBench's report of a run.
#[derive(Debug, Default)]
struct Ran {
    complete: u64,
    /// Bytes of bodies received.
    received: u64,
    refused: u64,
}

fn ab(service: &Service, key: &str, n: u32, path: &str, arguments: &[&str]) -> Ran {
    let output = Command::new("ab")
        .args(["-q", "-k", "-s", "60", "-c", "4", "-n", &n.to_string()])
        .args(["-H", &format!("authorization: Bearer {key}")])
        .args(arguments)
        .arg(format!("http://{}{path}", service.api))
        .output()
        .expect("ab runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let figure = |label: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(label));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Ran {
        complete: figure("Complete requests:"),
        received: figure("HTML transferred:"),
        refused: figure("Non-2xx responses:"),
    }
}

#[test]
fn charged_is_what_system_and_clients_counted() {
    if Command::new("ab").arg("-V").output().is_err() {
        println!("skipped: a load by ApacheBench: apt-get install apache2-utils");
        return;
    }
    let service = Service::start("load");
    let [reader, writer, throttled] = [
        service.create("reader", "requests_per_s=1000000"),
        service.create("writer", "requests_per_s=1000000"),
        service.create("throttled", "requests_per_s=20"),
    ];
    let page = text(20_000);
    for key in [&reader, &throttled] {
        assert_eq!(service.call(key, "PUT", "/documents/page", &page).0, 201);
    }
    assert_eq!(service.call(&writer, "GET", "/documents", &[]).0, 200);
    // Counted from here, so that what a process does before it has a tree does not matter.
    let start = Scrape::of(&service);
    let upload = TempFile::new("upload.txt", &String::from_utf8(text(100_000)).expect("ASCII"));
    let (mut read, mut wrote, mut turned_away) = (Ran::default(), Ran::default(), Ran::default());
    let put = ["-u", upload.path(), "-T", "text/plain"];
    // Until a hundredth of the CPU time exceeds the system's own unit.
    for _ in 0..40 {
        let runs = std::thread::scope(|scope| {
            let read = scope.spawn(|| ab(&service, &reader, 500, "/documents/page", &[]));
            let wrote = scope.spawn(|| ab(&service, &writer, 20, "/documents/new", &put));
            let turned_away = ab(&service, &throttled, 200, "/documents/page", &["-l"]);
            [read.join().expect("no panic"), wrote.join().expect("no panic"), turned_away]
        });
        for (sum, ran) in [&mut read, &mut wrote, &mut turned_away].into_iter().zip(runs) {
            sum.complete += ran.complete;
            sum.received += ran.received;
            sum.refused += ran.refused;
        }
        if cpu_s(service.id()) - start.cpu_s[0] > 4.0 {
            break;
        }
    }
    let end = Scrape::of(&service);

    // Bytes and requests, exactly.
    let counted = |metric: &str, tenant: &str| end.since(&start, metric, tenant) as u64;
    assert_eq!(counted("http_response_bytes_total", "/reader"), read.received);
    assert_eq!(counted("http_requests_total", "/reader"), read.complete);
    assert_eq!(read.received, read.complete * page.len() as u64);
    assert_eq!(read.refused, 0);
    assert_eq!(counted("http_request_bytes_total", "/writer"), wrote.complete * 100_000);
    assert_eq!(counted("http_requests_total", "/writer"), wrote.complete);
    assert_eq!(counted("http_response_bytes_total", "/throttled"), turned_away.received);
    assert_eq!(counted("requests_throttled_total", "/throttled"), turned_away.refused);
    assert!(turned_away.refused > 0, "{turned_away:?}");

    // CPU time: the groups' and the unattributed time add up to the process's, as the system counts
    // it.
    let groups = ["/", "/reader", "/writer", "/throttled"];
    let charged: f64 =
        groups.iter().map(|group| end.since(&start, "cpu_seconds_total", group)).sum();
    let process = end.process_s() - start.process_s();
    let [least, most] = [end.cpu_s[0] - start.cpu_s[1], end.cpu_s[1] - start.cpu_s[0]];
    println!("{charged:.2} s of {process:.2} s charged; the system says {least:.2} to {most:.2} s");
    assert!(process >= 0.99 * least && process <= 1.01 * most, "{process} s");
    assert!(charged > 0.1 * process && charged <= 1.01 * process, "{charged} of {process} s");
}

/// What the service reports, and what the system reported before and after that.
struct Scrape {
    metrics: HashMap<String, f64>,
    cpu_s: [f64; 2],
}

impl Scrape {
    fn of(service: &Service) -> Scrape {
        let before = cpu_s(service.id());
        let metrics = service.metrics();
        Scrape { metrics, cpu_s: [before, cpu_s(service.id())] }
    }

    fn since(&self, start: &Scrape, metric: &str, group: &str) -> f64 {
        of(&self.metrics, metric, group) - of(&start.metrics, metric, group)
    }

    fn process_s(&self) -> f64 {
        self.metrics["documents_process_cpu_seconds_total"]
    }
}

#[test]
fn a_job_on_all_threads_is_charged_to_its_tenant() {
    let service = Service::start("job");
    let key = service.create("acme", "memory_bytes=100000000");
    assert_eq!(service.call(&key, "PUT", "/documents/a", &text(16 << 20)).0, 201);
    let start = cpu_s(service.id());
    for _ in 0..20 {
        assert_eq!(service.call(&key, "POST", "/documents/a/words", &[]).0, 202);
        service.await_status(&key, "/documents/a/words", 200);
        if cpu_s(service.id()) - start > 2.0 {
            break;
        }
        // As in a new document, its words are not counted yet.
        assert_eq!(service.call(&key, "PUT", "/documents/a", &text(16 << 20)).0, 201);
    }
    let metrics = service.metrics();
    let (charged, process) = (of(&metrics, "cpu_seconds_total", "/acme"), cpu_s(service.id()));
    println!("{charged:.2} s of {process:.2} s charged");
    assert!(charged > 0.8 * process && charged <= process * 1.01, "{charged} of {process} s");
}
