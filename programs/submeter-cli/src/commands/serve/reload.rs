//! Limits of flags and of a file, which is read again on each SIGHUP, or of a client of the page.
//! The file is that of `--limits`, or else that of `--config`.

use std::sync::Arc;

use axum::http::StatusCode;
use submeter_cache::{Cache, TenantLimits};
use submeter_terminal as show;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{demo, limits};
use crate::cli::{self, ServeArgs, TenantLimit};

/// Returns the limits of the file and of flags. The error is one line that names the remedy.
pub(super) fn all(args: &ServeArgs) -> Result<Vec<(String, TenantLimits)>, String> {
    let limits = match (&args.limits, &args.file) {
        (Some(path), _) => limits::read(path)?,
        (None, Some(file)) => file.limits().to_vec(),
        (None, None) => Vec::new(),
    };
    Ok(with_flags(limits, args))
}

/// As [`all`], of the file as it is now.
fn anew(args: &ServeArgs) -> Result<Vec<(String, TenantLimits)>, String> {
    let Some(file) = args.file.as_ref().filter(|_| args.limits.is_none()) else { return all(args) };
    let now = cli::read_config(file.path())?;
    let changed = file.changed(&now);
    if !changed.is_empty() {
        tracing::warn!(
            "{} in {}: only a restart changes that, as SIGHUP has nothing but [limits] read again",
            changed.join(", "),
            file.path().display()
        );
    }
    Ok(with_flags(now.limits().to_vec(), args))
}

fn with_flags(mut limits: Vec<TenantLimit>, args: &ServeArgs) -> Vec<(String, TenantLimits)> {
    limits.extend(args.tenant_limit.iter().cloned());
    // Whoever says something about the tenant that the load would limit is right.
    limits.extend(demo::limit(args, &limits));
    limits.into_iter().map(|limit| (limit.path, limit.limits)).collect()
}

/// Sets the limits of a client's text, in place of those of the file, beside those of flags.
pub(super) async fn post(cache: Cache, args: Arc<ServeArgs>, text: String) -> (StatusCode, String) {
    let limits = limits::parse(&text, "the body").map(|limits| with_flags(limits, &args));
    match limits.and_then(|limits| set(&cache, &limits)) {
        Ok(tenants) => {
            tracing::info!(tenants, "limits set by a client");
            (StatusCode::OK, format!("limits of {tenants} tenants are set\n"))
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("the limits stay as they were: {error}\n")),
    }
}

/// Returns of how many tenants.
fn set(cache: &Cache, limits: &[(String, TenantLimits)]) -> Result<usize, String> {
    cache.set_limits(limits).map_err(|error| error.to_string())?;
    Ok(limits.len())
}

/// Catches SIGHUP where there is a file to read again; without one it ends the process as ever.
pub(super) fn hangups(args: &ServeArgs) -> std::io::Result<Option<Signal>> {
    let is_there = args.limits.is_some() || args.file.is_some();
    is_there.then(|| signal(SignalKind::hangup())).transpose()
}

/// Sets the limits of the file anew on each signal. If the file is bad the old ones stay.
pub(super) async fn follow(mut hangups: Signal, args: Arc<ServeArgs>, cache: Cache) {
    while hangups.recv().await.is_some() {
        // On a thread that may wait: the file may be on a disk that is far away.
        let read = Arc::clone(&args);
        let limits = tokio::task::spawn_blocking(move || anew(&read)).await;
        let limits = limits.unwrap_or_else(|error| Err(format!("cannot read them: {error}")));
        match limits.and_then(|limits| set(&cache, &limits)) {
            Ok(tenants) => {
                // Who does not take the output misses it.
                let _ = show::print(&format!("  limits  read again, for {tenants} tenants\n"));
                tracing::info!(tenants, "limits read again");
            }
            Err(error) => tracing::warn!("the limits stay as they were: {error}"),
        }
    }
}
