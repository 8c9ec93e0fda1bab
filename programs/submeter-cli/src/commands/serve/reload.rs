//! Limits of flags and of a file, which is read again on each SIGHUP.

use std::sync::Arc;

use submeter_cache::{Cache, TenantLimits};
use submeter_terminal as show;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::limits;
use crate::cli::ServeArgs;

/// Returns the limits of the file and of flags. The error is one line that names the remedy.
pub(super) fn all(args: &ServeArgs) -> Result<Vec<(String, TenantLimits)>, String> {
    let mut limits = args.limits.as_deref().map(limits::read).transpose()?.unwrap_or_default();
    limits.extend(args.tenant_limit.iter().cloned());
    Ok(limits.into_iter().map(|limit| (limit.path, limit.limits)).collect())
}

/// Catches SIGHUP where there is a file to read again; without one it ends the process as ever.
pub(super) fn hangups(args: &ServeArgs) -> std::io::Result<Option<Signal>> {
    args.limits.as_ref().map(|_| signal(SignalKind::hangup())).transpose()
}

/// Sets the limits of the file anew on each signal. If the file is bad the old ones stay.
pub(super) async fn follow(mut hangups: Signal, args: ServeArgs, cache: Cache) {
    let args = Arc::new(args);
    while hangups.recv().await.is_some() {
        // On a thread that may wait: the file may be on a disk that is far away.
        let read = Arc::clone(&args);
        let limits = tokio::task::spawn_blocking(move || all(&read)).await;
        let limits = limits.unwrap_or_else(|error| Err(format!("cannot read them: {error}")));
        let set = limits.and_then(|limits| {
            cache.set_limits(&limits).map_err(|error| error.to_string())?;
            Ok(limits.len())
        });
        match set {
            Ok(tenants) => {
                // Who does not take the output misses it.
                let _ = show::print(&format!("  limits  read again, for {tenants} tenants\n"));
            }
            Err(error) => show::warn(&format!("the limits stay as they were: {error}")),
        }
    }
}
