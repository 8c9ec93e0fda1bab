//! `--load`: what the load is asked to do, and how it is driven.

use std::path::PathBuf;
use std::time::Duration;

use submeter_cache::Address;
use submeter_load::drive::{self, Outcome};
use submeter_load::tenants_file;
use submeter_terminal::{Failure, signals};
use tokio::sync::watch;

use super::demo::Stage;
use super::threads::runtime;

/// Connections of the load, and requests in flight on each: enough to keep the server busy.
const CONNECTIONS: usize = 8;
const PIPELINE: usize = 8;

/// What each tenant requests.
pub(super) struct Plan {
    /// The address at which the cache is to listen.
    pub(super) listen: Address,
    pub(super) tenants: usize,
    /// Statistics to use instead of the built-in ones.
    pub(super) file: Option<PathBuf>,
    pub(super) delimiter: u8,
    pub(super) seconds: Option<Duration>,
    pub(super) seed: u64,
    /// Number of connections that the cache serves.
    pub(super) connections_max: usize,
    pub(super) stage: Stage,
}

impl Plan {
    /// Reads the file, and returns what the clients are to do.
    pub(super) fn read(&self) -> Result<drive::Plan, Failure> {
        let Some(server) = self.listen.tcp() else {
            return Err(Failure::new(format_args!(
                "--load requires a port, not {}: leave one of them out",
                self.listen
            )));
        };
        let file = self.file.as_deref();
        let profiles = file.map_or_else(tenants_file::built_in, tenants_file::read);
        let tenants = profiles.and_then(|p| drive::name_tenants(p, Some(self.tenants), file));
        let plan = drive::Plan {
            server,
            tenants: tenants.map_err(Failure::new)?,
            delimiter: self.delimiter,
            seconds: self.seconds,
            requests: None,
            rate: None,
            connections: CONNECTIONS,
            pipeline: PIPELINE,
            seed: self.seed,
            warm_up: Duration::ZERO,
            ramp: Duration::ZERO,
            burst: self.stage.burst,
        };
        let opens = plan.all_connections();
        if self.connections_max < opens {
            return Err(Failure::new(format_args!(
                "{} connections are too few for --load, which opens {opens}: allow more \
                 (--connections)",
                self.connections_max
            )));
        }
        Ok(plan)
    }

    /// Says where these requests come from, for the greeting.
    pub(super) fn line(&self) -> String {
        let source = self.file.as_ref().map_or_else(
            || "production statistics of Twitter's caches (OSDI 2020)".to_owned(),
            |file| file.display().to_string(),
        );
        let s = if self.tenants == 1 { "" } else { "s" };
        format!("{} tenant{s} under /load, from {source}", self.tenants)
    }
}

/// Drives the load, or waits, until the time is over or a signal arrives.
pub(super) async fn work(
    plan: Option<&drive::Plan>,
    seconds: Option<Duration>,
    signals: watch::Receiver<bool>,
) -> Result<Option<Outcome>, Failure> {
    if let Some(plan) = plan {
        // The clients have threads of their own: the server's are for the server, as in real life.
        let clients = runtime(None)?;
        let plan = plan.clone();
        let driven = clients.spawn(async move { drive::drive(&plan, signals).await }).await;
        clients.shutdown_background();
        let outcome = driven.map_err(|e| Failure::new(format_args!("the load failed: {e}")))?;
        return outcome.map(Some).map_err(Failure::new);
    }
    match seconds {
        Some(seconds) => {
            // Either way the time is over.
            let _ = tokio::time::timeout(seconds, signals::arrived(signals)).await;
        }
        None => signals::arrived(signals).await,
    }
    Ok(None)
}
