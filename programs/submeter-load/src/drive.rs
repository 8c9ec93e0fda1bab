//! Runs the connections of a load and merges their counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::burst::Burst;
use super::connection::{self, Role, Shared};
use super::pattern::Pattern;
use super::profile::Profile;
use super::progress::{self, Progress};
use super::stream::Tenant;
use super::tally::Tallies;

/// The plan of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub server: SocketAddr,
    /// Names and traffic.
    pub tenants: Vec<(String, Profile)>,
    /// The delimiter after the tenant's name in a key.
    pub delimiter: u8,
    /// The duration; `None` to run until the requests are sent or the load is stopped.
    pub seconds: Option<Duration>,
    /// The total number of requests; `None` for no limit.
    pub requests: Option<u64>,
    /// Requests per second over all connections; `None` to send as fast as answers arrive.
    pub rate: Option<u64>,
    /// The number of connections.
    pub connections: usize,
    /// Requests that a connection may have in flight.
    pub pipeline: usize,
    /// Seed of keys and operations.
    pub seed: u64,
    /// How long to run before anything is counted.
    pub warm_up: Duration,
    /// The time within which connections start, one after the other.
    pub ramp: Duration,
    /// A tenant that bursts, if any; `requests` and `rate` do not count its bursts.
    pub burst: Option<Burst>,
}

impl Plan {
    /// Returns the number of connections to make.
    pub fn all_connections(&self) -> usize {
        self.connections + self.burst.map_or(0, |burst| burst.connections)
    }
}

/// The result of a load.
#[derive(Debug)]
pub struct Outcome {
    /// From the first counted request to the last answer.
    pub took: Duration,
    /// The counts.
    pub tallies: Tallies,
}

/// Names tenants: `tenant1` and so on for the built-in ones, and the names in the file for those of
/// a file.
///
/// Beyond the number of built-in tenants, traffic starts over with that of the first one; tenants
/// of a file are not repeated.
pub fn name_tenants(
    profiles: Vec<Profile>,
    wanted: Option<usize>,
    file: Option<&std::path::Path>,
) -> Result<Vec<(String, Profile)>, String> {
    let wanted = wanted.unwrap_or(profiles.len());
    if let Some(file) = file {
        if wanted > profiles.len() {
            return Err(format!(
                "{} has {} tenants, not {wanted}: use fewer, or add lines",
                file.display(),
                profiles.len()
            ));
        }
        return Ok(profiles.into_iter().take(wanted).map(|p| (p.source.clone(), p)).collect());
    }
    let tenants = profiles.iter().cycle().take(wanted).cloned().enumerate();
    Ok(tenants.map(|(i, p)| (format!("tenant{}", i + 1), p)).collect())
}

/// Drives a server until the plan's end or until `stop` turns true, and waits for every answer, so
/// that the counts match what was sent to the server.
///
/// # Errors
/// One line that names the input and the remedy.
pub async fn drive(plan: &Plan, mut stop: watch::Receiver<bool>) -> Result<Outcome, String> {
    let tenants = plan.tenants.iter();
    let tenants: Result<Vec<Tenant>, String> =
        tenants.map(|(name, p)| Tenant::new(name, p.clone(), plan.delimiter)).collect();
    let shared = Arc::new(Shared {
        server: plan.server,
        tenants: tenants?,
        pattern: Pattern::default(),
        seed: plan.seed,
        pipeline: plan.pipeline,
        interval: plan
            .rate
            .map(|rate| Duration::from_secs_f64(plan.connections as f64 / rate as f64)),
        progress: Progress::default(),
    });
    // All connections are made before the first request, so that only requests are measured and an
    // unreachable server is noticed at once. They are made one after the other, because a burst of
    // thousands would overflow the server's queue.
    let connections = plan.all_connections();
    let mut sockets = Vec::with_capacity(connections);
    while sockets.len() < connections && !*stop.borrow() {
        sockets.push(tokio::select! {
            socket = connection::connect(plan.server) => socket?,
            _ = stop.wait_for(|&stop| stop) => break,
        });
    }
    let started = Instant::now();
    let counts_from = started + plan.warm_up;
    let (stop_all, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for (index, socket) in sockets.into_iter().enumerate() {
        let (shared, stopped) = (Arc::clone(&shared), stopped.clone());
        let role = match plan.burst.filter(|_| index >= plan.connections) {
            Some(burst) => Role::Burst(burst, started),
            None => Role::Mix { requests: share(plan.requests, plan.connections, index) },
        };
        let starts = started + plan.ramp.mul_f64(index as f64 / connections.max(1) as f64);
        tasks.spawn(async move {
            let mut stops = stopped.clone();
            tokio::select! {
                () = tokio::time::sleep_until(starts.into()) => {}
                // Stopped before the start, it sends nothing.
                _ = stops.wait_for(|&stop| stop) => {}
            }
            connection::drive_from(&shared, &socket, index, role, counts_from, stopped).await
        });
    }
    let ended = async {
        tokio::select! {
            () = after(plan.seconds.map(|seconds| seconds + plan.warm_up)) => {}
            // An error means that the sender was dropped, which is a stop too.
            _ = stop.wait_for(|&stop| stop) => {}
        }
        stop_all.send_replace(true);
        std::future::pending::<()>().await;
    };
    let tallies = tokio::select! {
        tallies = collect(&mut tasks, shared.tenants.len(), &stop_all) => tallies?,
        () = ended => unreachable!("pending forever once it has stopped the connections"),
        () = progress::show(&shared.progress, plan.seconds, plan.requests) => {
            unreachable!("the display never ends by itself")
        }
    };
    Ok(Outcome { took: started.elapsed().saturating_sub(plan.warm_up), tallies })
}

/// Waits for all connections. The first failure stops the others and is the one reported.
async fn collect(
    tasks: &mut JoinSet<Result<Tallies, String>>,
    tenants: usize,
    stop_all: &watch::Sender<bool>,
) -> Result<Tallies, String> {
    let mut all = Tallies::new(tenants).map_err(|e| e.to_string())?;
    let mut failed = None;
    while let Some(joined) = tasks.join_next().await {
        match joined.map_err(|e| format!("a connection's task ended: {e}")).and_then(|r| r) {
            Ok(tallies) => all.merge(tallies).map_err(|e| e.to_string())?,
            Err(error) => {
                stop_all.send_replace(true);
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(all), Err)
}

/// Returns how many of all requests connection `index` sends.
fn share(requests: Option<u64>, connections: usize, index: usize) -> u64 {
    let Some(all) = requests else { return u64::MAX };
    let (connections, index) = (connections as u64, index as u64);
    all / connections + u64::from(index < all % connections)
}

async fn after(seconds: Option<Duration>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(seconds).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants_file;

    #[test]
    fn the_connections_shares_add_up() {
        for (all, connections) in [(10, 3), (2, 8), (1_000_003, 7)] {
            let sum: u64 = (0..connections).map(|i| share(Some(all), connections, i)).sum();
            assert_eq!(sum, all);
        }
    }

    #[test]
    fn built_in_tenants_repeat_and_a_files_do_not() {
        let profiles = tenants_file::built_in().expect("well-formed");
        let named = name_tenants(profiles.clone(), Some(8), None).expect("any number");
        assert_eq!(named[7].0, "tenant8");
        assert_eq!(named[7].1, named[1].1);
        let file = Some(std::path::Path::new("t.csv"));
        let named = name_tenants(profiles.clone(), Some(2), file).expect("fewer");
        assert_eq!(named[1].0, "cluster23");
        let error = name_tenants(profiles, Some(7), file).expect_err("more");
        assert!(error.contains("t.csv has 6 tenants, not 7"), "{error}");
    }
}
