//! What `serve` reads before it serves: the files of `--limits`, `--checkpoint` and
//! `--tenants-file`, which may be pipes that nobody writes to.

use std::time::Duration;

use submeter_cache::Cache;
use submeter_load::drive::Plan;
use submeter_terminal::{Failure, signals};
use tokio::sync::watch;

use super::checkpoint::{self, Opened};
use crate::cli::ServeArgs;

/// How long the files may take after a signal: one that is there is read, so that a signal during
/// the start ends with a summary.
const PATIENCE: Duration = Duration::from_secs(1);

/// The cache with its totals, and the load that is asked for or what is wrong with it.
type Read = (Cache, Option<Opened>, Result<Option<Plan>, Failure>);

/// Reads all of it.
pub(super) async fn read(args: &ServeArgs, stop: watch::Receiver<bool>) -> Result<Read, Failure> {
    // On a thread that may wait: this one has to see signals.
    let own = args.clone();
    let read = tokio::task::spawn_blocking(move || {
        let plan = || own.load.map(|tenants| super::plan(&own, usize::from(tenants))).transpose();
        let cache = super::cache(&own)?;
        let totals = checkpoint::open(&own, &cache)?;
        Ok((cache, totals, plan()))
    });
    let late = async {
        signals::arrived(stop).await;
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        read = read => read.map_err(|e| Failure::new(format_args!("cannot read files: {e}")))?,
        () = late => Err(Failure::new(format_args!(
            "stopped while {} was read: write to it if it is a pipe, or name a file",
            waited_for(args)
        ))),
    }
}

fn waited_for(args: &ServeArgs) -> String {
    let limits = args.limits.as_deref().map(|path| ("--limits", path));
    let totals = args.checkpoint.as_deref().map(|path| ("--checkpoint", path));
    let tenants = args.tenants_file.as_deref().map(|path| ("--tenants-file", path));
    let named = limits.into_iter().chain(totals).chain(tenants);
    let named = named.map(|(flag, path)| format!("{} ({flag})", path.display()));
    named.collect::<Vec<_>>().join(" or ")
}
