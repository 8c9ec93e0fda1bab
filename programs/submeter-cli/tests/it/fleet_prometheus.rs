//! What a real Prometheus adds up for three servers, one of which is killed and restarted.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fleet::{Directory, bank, server_at, until};
use crate::support::Server;

const ITEMS: [usize; 3] = [40, 60, 80];
/// Number of items that the second server stores after its restart.
const AGAIN: usize = 30;

/// Minimum time for which Prometheus observes them.
const WINDOW: Duration = Duration::from_secs(5);

struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts a Prometheus that has the rules and scrapes these pages four times a second; returns
    /// `None` if it is not installed.
    fn start(directory: &Path, pages: &[SocketAddr]) -> Option<Prometheus> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.expect("a free port");
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring/rules.yml");
        let targets: Vec<_> = pages.iter().map(ToString::to_string).collect();
        let config = serde_json::json!({
            "global": { "scrape_interval": "250ms", "evaluation_interval": "250ms" },
            "rule_files": [rules],
            "scrape_configs": [
                { "job_name": "cache", "static_configs": [{ "targets": targets }] },
            ],
        });
        // YAML is a superset of JSON.
        let file = directory.join("prometheus.yml");
        std::fs::write(&file, config.to_string()).expect("room");
        let mut prometheus = Command::new("prometheus");
        prometheus.arg(format!("--config.file={}", file.display()));
        prometheus.arg(format!("--storage.tsdb.path={}", directory.join("tsdb").display()));
        prometheus.arg(format!("--web.listen-address={address}"));
        let Ok(child) = prometheus.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            let package = "apt-get install --no-install-recommends prometheus";
            println!("skipped: sums over a fleet: {package}");
            return None;
        };
        Some(Prometheus { child, address })
    }

    /// Returns the only number that a query finds, if it finds one.
    fn ask(&self, query: &str) -> Option<f64> {
        let url = format!("http://{}/api/v1/query", self.address);
        let mut answer = ureq::get(url).query("query", query).call().ok()?;
        let answer: Value = serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok()?;
        let [found] = answer["data"]["result"].as_array()?.as_slice() else { return None };
        found["value"][1].as_str()?.parse().ok()
    }

    /// Checks that each query of the dashboard finds something. Those for refusals and for grants
    /// beyond a limit are left out: they ask for values above 0, and find nothing else.
    fn knows_what_the_dashboard_asks_for(&self) {
        for query in crate::monitoring::queries().iter().filter(|query| !query.contains("> 0")) {
            let query = query.replace("=~\"$instance\"", "=~\".*\"");
            let found = self.ask(&format!("count({query})"));
            assert!(found >= Some(1.0), "{query}: {found:?}");
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It has ended by itself otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_adds_up_servers_one_of_them_killed() {
    let directory = Directory::new("prometheus");
    let address = directory.bank();
    let _bank = bank(&address, &["--lease", "1"]);
    let start = |name: &str, page: &str| -> Server {
        let args = ["--limit-fleet", "/acme=memory=8m", "--member", name, "--heap", "sampled"];
        server_at(page, &address, &args)
    };
    let names = ["web-1", "web-2", "web-3"];
    let servers = names.map(|name| start(name, "127.0.0.1:0"));
    let pages = servers.each_ref().map(|server| server.page);
    let Some(prometheus) = Prometheus::start(&directory.0, &pages) else { return };
    let sum = "sum(submeter_cache_cmd_set_total{group=\"/acme\"})";
    // Their first item, so that Prometheus has seen them before the rest.
    until("all have leases", || servers.iter().all(|server| server.rule() == "lease"));
    // The counts are requests: a lease may be small at a moment, and refuse some.
    servers.iter().for_each(|server| _ = server.store_large(1));
    until("Prometheus has seen all", || prometheus.ask(sum) == Some(3.0));
    let began = Instant::now();

    for (server, items) in servers.iter().zip(ITEMS) {
        server.store_large(items);
    }
    let stored: usize = ITEMS.iter().sum();
    until("it has seen what was stored", || prometheus.ask(sum) == Some((stored + 3) as f64));
    servers[1].signal("KILL");
    let [first, second, third] = servers;
    drop(second);
    let servers = [first, start(names[1], &pages[1].to_string()), third];
    until("it has a lease again", || servers[1].rule() == "lease");
    servers[1].store_large(AGAIN);
    let now = (ITEMS[0] + ITEMS[2] + 2 + AGAIN) as f64;
    until("it has seen the one that was started again", || prometheus.ask(sum) == Some(now));

    for (count, what) in [
        ("sum(changes(submeter_cache_tree_start_time_seconds[5m]))", 1.0),
        ("count(count by (epoch) (last_over_time(submeter_cache_tree_info[5m])))", 4.0),
        // Scrapes of the same server by other readers count too.
        ("count(resets(submeter_cache_tree_sequence[5m]) > 0)", 1.0),
    ] {
        assert_eq!(prometheus.ask(count), Some(what), "{count}");
    }

    // Prometheus extrapolates beyond the first and the last sample at the same rate: by half the
    // time between two samples each, and so by a twentieth of this time.
    std::thread::sleep(WINDOW.saturating_sub(began.elapsed()));
    let exact = (stored + AGAIN) as f64;
    let about = |n: f64| (n / exact - 1.0).abs() < 0.1;
    let recorded = "group:submeter_cache_requests:increase1h{group=\"/acme\"}";
    let mut last = None;
    until("the fleet's sum is right", || {
        last = prometheus.ask(recorded);
        last.is_some_and(about)
    });
    println!("{last:?} of {exact}");
    prometheus.knows_what_the_dashboard_asks_for();
    // No more is leased than exists, once leases are stable.
    let leased = "group_resource:submeter_cache_fleet_limit:sum{group=\"/acme\"}";
    until("leases add up to the limit at most", || {
        prometheus.ask(leased).is_some_and(|leased| leased > 0.0 && leased <= f64::from(8 << 20))
    });
    let used = "group_resource:submeter_cache_fleet_used:sum{group=\"/acme\"}";
    until("some of it is used", || {
        prometheus.ask(used).is_some_and(|used| used > 0.0 && used <= f64::from(8 << 20))
    });
}
