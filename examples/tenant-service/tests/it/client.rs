//! A running service, its tenants, and what it reports about them.

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use submeter_program::{Program, Running};
use ureq::Agent;

const SERVICE: Program = Program::new(env!("CARGO_BIN_EXE_tenant-service"));

/// A service with a file of its own, which is removed with it.
pub(crate) struct Service {
    running: Option<Running>,
    file: std::path::PathBuf,
    pub(crate) api: SocketAddr,
    operator: SocketAddr,
    agent: Agent,
}

/// A status, the header `Retry-After`, and the body.
pub(crate) type Answer = (u16, Option<u64>, Vec<u8>);

impl Service {
    /// `name` must be unique among the tests of a process.
    pub(crate) fn start(name: &str) -> Service {
        let file = format!("tenant-service-{}-{name}.redb", std::process::id());
        let file = std::env::temp_dir().join(file);
        let _ = std::fs::remove_file(&file);
        let (running, api, operator) = run(&file);
        let patience = Some(Duration::from_secs(120));
        let config = Agent::config_builder().http_status_as_error(false).timeout_global(patience);
        let agent = config.build().new_agent();
        Service { running: Some(running), file, api, operator, agent }
    }

    /// Ends the service abruptly, as a crash would, and starts it again.
    pub(crate) fn crash(&mut self) {
        drop(self.running.take());
        let (running, api, operator) = run(&self.file);
        (self.running, self.api, self.operator) = (Some(running), api, operator);
    }

    pub(crate) fn id(&self) -> u32 {
        self.running.as_ref().expect("started").id()
    }

    /// Creates a tenant, and returns its key.
    pub(crate) fn create(&self, tenant: &str, plan: &str) -> String {
        let (status, _, key) = self.operate("PUT", &format!("/tenants/{tenant}?{plan}"));
        assert_eq!(status, 201, "{}", String::from_utf8_lossy(&key));
        String::from_utf8(key).expect("a key").trim_end().to_owned()
    }

    pub(crate) fn operate(&self, method: &str, path: &str) -> Answer {
        self.ask(self.operator, method, path, "", &[])
    }

    pub(crate) fn call(&self, key: &str, method: &str, path: &str, body: &[u8]) -> Answer {
        self.ask(self.api, method, path, key, body)
    }

    fn ask(&self, at: SocketAddr, method: &str, path: &str, key: &str, body: &[u8]) -> Answer {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("http://{at}{path}"))
            .header("authorization", format!("Bearer {key}"))
            .body(body)
            .expect("valid");
        let mut answer = self.agent.run(request).expect("an answer");
        let after = answer.headers().get("retry-after");
        let after = after.map(|value| value.to_str().expect("text").parse().expect("seconds"));
        let mut content = Vec::new();
        answer.body_mut().as_reader().read_to_end(&mut content).expect("a whole body");
        (answer.status().as_u16(), after, content)
    }

    /// Repeats a request until the status is as expected, for as long as a job may take.
    pub(crate) fn await_status(&self, key: &str, path: &str, status: u16) -> Vec<u8> {
        for _ in 0..6_000 {
            let (now, _, body) = self.call(key, "GET", path, &[]);
            if now == status {
                return body;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{path} never had the status {status}");
    }

    /// Returns `/metrics`. Only the first scrape has everything that was counted: a series that
    /// begins later begins at 0.
    pub(crate) fn metrics(&self) -> HashMap<String, f64> {
        let (status, _, text) = self.operate("GET", "/metrics");
        assert_eq!(status, 200);
        let text = String::from_utf8(text).expect("UTF-8");
        let samples = text.lines().filter_map(|line| line.rsplit_once(' '));
        samples.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.running.take());
        let _ = std::fs::remove_file(&self.file);
    }
}

fn run(file: &std::path::Path) -> (Running, SocketAddr, SocketAddr) {
    let file = file.to_str().expect("UTF-8");
    let mut running = SERVICE.start(&[file, "127.0.0.1:0", "127.0.0.1:0"]);
    let line = running.line_with("operator on http://");
    let address = |label: &str| {
        let rest = line.split(label).nth(1).expect("labelled");
        rest.split('/').next().expect("an address").parse().expect("an address")
    };
    (running, address("api on http://"), address("operator on http://"))
}

/// Returns one figure of a group in `/metrics`, 0 if there is none.
pub(crate) fn of(metrics: &HashMap<String, f64>, metric: &str, group: &str) -> f64 {
    let name = format!("documents_{metric}{{group=\"{group}\"}}");
    metrics.get(&name).copied().unwrap_or_default()
}

/// Makes a text of different words.
pub(crate) fn text(bytes: usize) -> Vec<u8> {
    let words: String = (0..1000).map(|n| format!("word{n} ")).collect();
    let mut text = words.repeat(bytes.div_ceil(words.len())).into_bytes();
    text.truncate(bytes);
    text
}
