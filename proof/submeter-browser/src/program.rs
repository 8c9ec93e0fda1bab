//! A program with as many tenants as a test wants.

use std::error::Error;
use std::future;
use std::time::Duration;

use http::StatusCode;
use submeter::{
    Buckets, Bytes, Count, Counter, Group, Histogram, Nanoseconds, Quota, RateLimit, Schema, Tree,
};
use submeter_http::Dashboard;
use submeter_http::wire::LimitDoc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The change that lifts a limit; this program only reports that it is set.
const UNDO: &str = "requests=none";

/// A limit that this program refuses, with a line as other programs answer.
const REFUSED: &str = "requests=0/s";

/// The first steps that a page without tenants suggests.
const FIRST_STEPS: &str = "printf 'get acme:web:greeting\\r\\nquit\\r\\n' | nc 127.0.0.1 11211";

/// Tenants, what they count, and a server that shows them until it is dropped.
pub struct Program {
    tree: Tree,
    /// Answered requests.
    pub requests: Counter<Count>,
    /// How many requests may be answered per time.
    pub rate: RateLimit<Count>,
    /// Latency of the answers.
    pub latency: Histogram<Nanoseconds>,
    /// Memory held.
    pub memory: Quota<Bytes>,
    address: String,
    serving: JoinHandle<()>,
}

impl Program {
    /// Starts to serve a tree without tenants.
    ///
    /// # Errors
    /// When no port is free or no tree can be made.
    pub async fn start() -> Result<Program, Box<dyn Error>> {
        let mut schema = Schema::builder();
        let requests = schema.counter("requests", "Requests answered");
        let rate = schema.rate_limit("requests", "Requests");
        let latency = schema.histogram("latency", "Time to answer", Buckets::LATENCY_NS);
        let memory = schema.quota("memory", "Memory held");
        let tree = Tree::new(schema.build()?)?;
        let port = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}/", port.local_addr()?);
        let shown = Dashboard::new("program", &tree)
            .first_steps("To see one, run this, which is wider than a phone:", FIRST_STEPS)
            .remedies("requests=500/s", |_| None)
            .on_limit(async |path, limits: String| {
                if limits == REFUSED {
                    return Err((StatusCode::BAD_REQUEST, format!("{REFUSED} grants nothing\n")));
                }
                let limits = if limits == UNDO { String::new() } else { limits };
                Ok(LimitDoc { path, limits, undo: UNDO.to_owned() })
            });
        let serving = tokio::spawn(async {
            submeter_http::serve(port, shown, future::pending()).await.expect("a listener");
        });
        Ok(Program { tree, requests, rate, latency, memory, address, serving })
    }

    /// Returns the address of the page.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns a tenant, created if there is none, after it has answered `requests` more.
    ///
    /// # Panics
    /// When the path is not valid.
    pub fn tenant(&self, path: &str, requests: u64) -> Group {
        let group = self.tree.get_or_create(path).expect("a valid path");
        group.add(self.requests, requests);
        group
    }

    /// Makes a charge of a tenant wait in vain, for the given time, while its limit is exceeded.
    ///
    /// # Panics
    /// When it has no limit.
    pub fn stall(tenant: &Group, memory: Quota<Bytes>, time: Duration) {
        let limit = tenant.usage(memory).limit.expect("a tenant with a limit");
        let held = tenant.charge_forced(memory, limit + 1);
        tenant.charge_blocking(memory, 1, time).expect_err("all is held");
        drop(held);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
