//! A service with tenants: it answers each line `TENANT WORDS…` with the words in sorted order.
//!
//! ```text
//! cargo run -p tenant-service
//! printf 'acme/web pear apple fig\n' | nc -N 127.0.0.1 7070
//! curl http://127.0.0.1:7071/metrics      # or look at http://127.0.0.1:7071/ in a browser
//! ```

#![forbid(unsafe_code)]

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use submeter::switch::{self, InGroup};
use submeter::{
    Buckets, Bytes, Count, Counter, Error, Group, Histogram, LimitError, Metrics, Nanoseconds,
    Quota, Schema, Tree,
};
use submeter_http::Shown;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The maximum length of a line in bytes; a longer one ends the connection.
const LINE_MAX: u64 = 64 << 10;

/// The bytes that all requests of a tenant may hold at once, and those of all tenants together.
const TENANT_MEMORY: u64 = 256 << 10;
const TOTAL_MEMORY: u64 = 4 << 20;

/// What is counted for each tenant.
#[derive(Metrics)]
struct Keys {
    /// Requests answered
    requests: Counter<Count>,
    /// Requests refused by a limit
    refused: Counter<Count>,
    /// Time to answer
    #[metric(buckets = Buckets::LATENCY_NS)]
    latency: Histogram<Nanoseconds>,
    /// Bytes that requests hold
    memory: Quota<Bytes>,
    /// Time on a CPU: charged when threads switch groups, without further code here
    #[metric(cpu_time)]
    _cpu: Counter<Nanoseconds>,
}

/// The tree of tenants.
struct Service {
    tree: Tree,
    keys: Keys,
}

impl Service {
    fn new() -> Result<Service, Box<dyn std::error::Error>> {
        let mut schema = Schema::builder();
        let keys: Keys = schema.declare();
        // Clients choose the names of tenants, so their number is bounded.
        let tree = Tree::builder(schema.build()?).groups_max(10_000).build()?;
        tree.root().set_limit(keys.memory, Some(TOTAL_MEMORY));
        Ok(Service { tree, keys })
    }

    /// Finds a tenant, or creates it with its limit on its first request.
    fn tenant(&self, path: &str) -> Result<Group, Error> {
        let path = format!("/{path}");
        if let Some(tenant) = self.tree.get(&path) {
            return Ok(tenant);
        }
        let tenant = self.tree.get_or_create(&path)?;
        tenant.set_limit(self.keys.memory, Some(TENANT_MEMORY));
        Ok(tenant)
    }

    /// Answers a request in its tenant's group. The charge lasts as long as the request does.
    async fn answer(&self, tenant: &Group, words: &str) -> Result<String, LimitError> {
        let begun = Instant::now();
        // The words, the references to them and the answer: about four times the line.
        let held = tenant.try_charge(self.keys.memory, 4 * words.len() as u64);
        let held = held.inspect_err(|_| tenant.inc(self.keys.refused))?;
        let mut sorted: Vec<&str> = words.split_whitespace().collect();
        sorted.sort_unstable();
        // After an await, this future is still in the group, on whichever thread it continues.
        tokio::task::yield_now().await;
        let answer = sorted.join(" ");
        tenant.inc(self.keys.requests);
        tenant.record_duration(self.keys.latency, begun.elapsed());
        drop(held);
        Ok(answer)
    }

    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let (read, mut write) = stream.split();
        let mut lines = BufReader::new(read).take(LINE_MAX);
        let mut line = String::new();
        while lines.read_line(&mut line).await? > 0 && line.ends_with('\n') {
            let (path, words) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
            let answer = match self.tenant(path) {
                Ok(tenant) => match self.answer(&tenant, words).in_group(&tenant).await {
                    Ok(answer) => answer,
                    // The error names the tenant or ancestor whose limit refused.
                    Err(refused) => format!("busy: {refused}"),
                },
                Err(wrong) => format!("error: {wrong}"),
            };
            write.write_all(format!("{answer}\n").as_bytes()).await?;
            line.clear();
            lines.set_limit(LINE_MAX);
        }
        Ok(())
    }
}

/// Serves lines until the process ends, and the page that shows the tenants.
async fn run(service: Arc<Service>, lines: TcpListener, page: TcpListener) -> io::Result<()> {
    let shown = Shown::new("service", &service.tree);
    tokio::spawn(submeter_http::serve(page, shown, pending()));
    loop {
        let (stream, _) = lines.accept().await?;
        let service = Arc::clone(&service);
        tokio::spawn(async move { service.serve(stream).await });
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let service = Arc::new(Service::new()?);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Charges a thread's CPU time before it sleeps, not when it next wakes.
    let runtime = runtime.enable_all().on_thread_park(switch::park).build()?;
    runtime.block_on(async {
        let lines = TcpListener::bind("127.0.0.1:7070").await?;
        let page = TcpListener::bind("127.0.0.1:7071").await?;
        println!("lines on {}, page http://{}/", lines.local_addr()?, page.local_addr()?);
        run(service, lines, page).await?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(to: std::net::SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(to).await.expect("connects");
        stream.write_all(text.as_bytes()).await.expect("writes");
        stream.shutdown().await.expect("ends its half");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    async fn get(from: std::net::SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(from).await.expect("connects");
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test]
    async fn tenants_are_answered_limited_and_shown() {
        let service = Arc::new(Service::new().expect("a tree"));
        let lines = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let page = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = (lines.local_addr().expect("bound"), page.local_addr().expect("bound"));
        let running = tokio::spawn(run(Arc::clone(&service), lines, page));

        assert_eq!(
            ask(at.0, "acme/web pear apple fig\nacme/db b a\n").await,
            "apple fig pear\na b\n"
        );
        assert!(ask(at.0, "a//b x\n").await.starts_with("error: "));

        let web = service.tree.get("/acme/web").expect("created by its first request");
        let all = web.try_charge(service.keys.memory, TENANT_MEMORY).expect("nothing is held");
        let busy = ask(at.0, "acme/web fig apple\n").await;
        assert!(busy.starts_with("busy: ") && busy.contains("/acme/web"), "{busy}");
        drop(all);

        assert_eq!(service.tree.root().sum(service.keys.requests), 2);
        assert_eq!(web.sum(service.keys.refused), 1);
        let metrics = get(at.1, "/metrics").await;
        let web = "service_requests_total{group=\"/acme/web\"} 1\n";
        assert!(metrics.contains(web), "{metrics}");
        assert!(get(at.1, "/").await.contains("<!doctype html>"));
        let tree = get(at.1, "/api/tree").await;
        assert!(tree.contains("\"requests_per_s\"") && tree.contains("\"/acme/web\""), "{tree}");
        running.abort();
    }

    /// Words of the lines that a program without submeter would not have.
    const ABOUT: [&str; 23] = [
        "submeter",
        "Metrics",
        "Counter<",
        "Histogram<",
        "Quota<",
        "#[metric",
        "Schema",
        "schema",
        "Tree",
        "tree",
        "keys",
        "Keys",
        "tenant",
        "Group",
        "LimitError",
        "switch",
        "in_group",
        "held",
        "Shown",
        "MEMORY",
        "refused",
        "page",
        "pending",
    ];

    #[test]
    fn at_most_fifty_lines_are_about_submeter() {
        let (program, _tests) = include_str!("main.rs").split_once("#[cfg(test)]").expect("tests");
        let code = program.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let about: Vec<&str> =
            code.filter(|line| ABOUT.iter().any(|word| line.contains(word))).collect();
        assert!(about.len() <= 50, "{} lines: {about:#?}", about.len());
        // The count sees what it is about.
        assert!(about.len() > 20, "{about:#?}");
    }
}
