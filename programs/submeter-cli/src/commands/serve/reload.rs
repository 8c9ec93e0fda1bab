//! Limits of flags and of a file, which is read again on each SIGHUP, or of a client of the page.
//! The file is that of `--limits`, or else that of `--config`.

use std::fmt::Display;
use std::sync::Arc;

use axum::http::StatusCode;
use submeter_cache::{Cache, ConfigError, TenantLimits};
use submeter_terminal as show;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{demo, limits};
use crate::cli::{self, ServeArgs, TenantLimit};

/// The limits of all tenants, each with the place where it stands.
#[derive(Debug, Default)]
pub(super) struct Limits {
    limits: Vec<TenantLimit>,
    places: Vec<String>,
}

/// Places that an error names; thousands of tenants may be too much together.
const PLACES_MAX: usize = 4;

impl Limits {
    fn of_lines(name: impl Display, lines: Vec<(usize, TenantLimit)>) -> Limits {
        let place = |(line, limit)| (limit, format!("{name} line {line}"));
        let (limits, places) = lines.into_iter().map(place).unzip();
        Limits { limits, places }
    }

    fn add(&mut self, limit: TenantLimit, flag: &str) {
        self.limits.push(limit);
        self.places.push(flag.to_owned());
    }

    fn with_flags(mut self, args: &ServeArgs) -> Limits {
        for limit in &args.tenant_limit {
            self.add(limit.clone(), "--tenant-limit");
        }
        // The load limits its tenant only where the file and the flags do not.
        if let Some(limit) = demo::limit(args, &self.limits) {
            self.add(limit, "--load");
        }
        self
    }

    /// Returns them as the cache takes them.
    pub(super) fn settings(&self) -> Vec<(String, TenantLimits)> {
        self.limits.iter().map(|limit| (limit.path.clone(), limit.limits)).collect()
    }

    /// Writes the cache's error in the command's words: with flags, and where the limits stand.
    pub(super) fn explain(&self, error: &ConfigError) -> String {
        let text = in_flags(&error.to_string());
        let is_wrong = |path: &String| error.tenants().contains(path);
        let both = self.limits.iter().zip(&self.places);
        let wrong = both.filter(|(limit, _)| is_wrong(&limit.path)).map(|(_, place)| place);
        let mut places: Vec<&str> = wrong.map(String::as_str).collect();
        places.dedup();
        let more = places.len().saturating_sub(PLACES_MAX);
        places.truncate(PLACES_MAX);
        let places = places.join(", ");
        match (places.as_str(), more) {
            ("", _) => text,
            (_, 0) => format!("{text} ({places})"),
            _ => format!("{text} ({places} and {more} more)"),
        }
    }
}

/// Writes flags for the cache's own names of settings. What is a part of a tenant's path stays.
fn in_flags(text: &str) -> String {
    let flag = |word| match word {
        "memory_max" => "--memory",
        "value_max" => "--value-max",
        "tenants_max" => "--tenants-max",
        "buffers_max" => "--buffers",
        word => word,
    };
    text.split(' ').map(flag).collect::<Vec<_>>().join(" ")
}

/// Returns the limits of the file and of flags. The error is one line that names the remedy.
pub(super) fn all(args: &ServeArgs) -> Result<Limits, String> {
    let limits = match (&args.limits, &args.file) {
        (Some(path), _) => Limits::of_lines(path.display(), limits::read(path)?),
        (None, Some(file)) => Limits::of_lines(file.path().display(), file.limits().to_vec()),
        (None, None) => Limits::default(),
    };
    Ok(limits.with_flags(args))
}

/// As [`all`], of the file as it is now.
fn anew(args: &ServeArgs) -> Result<Limits, String> {
    let Some(file) = args.file.as_ref().filter(|_| args.limits.is_none()) else { return all(args) };
    let now = cli::read_config(file.path())?;
    let changed = file.changed(&now);
    if !changed.is_empty() {
        log::warn!(
            "{} in {}: only a restart changes that, as SIGHUP has nothing but [limits] read again",
            changed.join(", "),
            file.path().display()
        );
    }
    Ok(Limits::of_lines(file.path().display(), now.limits().to_vec()).with_flags(args))
}

/// Sets the limits of a client's text, in place of those of the file, beside those of flags.
pub(super) async fn post(cache: Cache, args: Arc<ServeArgs>, text: String) -> (StatusCode, String) {
    let limits = limits::parse(&text, "the body");
    let limits = limits.map(|lines| Limits::of_lines("the body", lines).with_flags(&args));
    match limits.and_then(|limits| set(&cache, &limits)) {
        Ok(tenants) => {
            log::info!(tenants; "limits set by a client");
            (StatusCode::OK, format!("limits of {tenants} tenants are set\n"))
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("the limits stay as they were: {error}\n")),
    }
}

/// Returns of how many tenants. What a tenant holds above a limit that was lowered goes soon after.
fn set(cache: &Cache, limits: &Limits) -> Result<usize, String> {
    let settings = limits.settings();
    cache.set_limits(&settings).map_err(|error| limits.explain(&error))?;
    let tenants = settings.len();
    let cache = cache.clone();
    // Not waited for: a million items take about ten seconds.
    tokio::task::spawn_blocking(move || {
        let limited = settings.iter().filter(|(_, limits)| limits.memory.is_some());
        limited.for_each(|(path, _)| cache.shrink(path));
    });
    Ok(tenants)
}

/// Catches SIGHUP, which would end the process without a summary, and leave its socket behind.
pub(super) fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Sets the limits of the file anew on each signal. If the file is bad the old ones stay.
pub(super) async fn follow(mut hangups: Signal, args: Arc<ServeArgs>, cache: Cache) {
    while hangups.recv().await.is_some() {
        if args.limits.is_none() && args.file.is_none() {
            log::warn!(
                "SIGHUP changes nothing: it has the file of --limits or --config read again, and \
                 neither was given"
            );
            continue;
        }
        // On a thread that may wait: the file may be on a disk that is far away.
        let read = Arc::clone(&args);
        let limits = tokio::task::spawn_blocking(move || anew(&read)).await;
        let limits = limits.unwrap_or_else(|error| Err(format!("cannot read them: {error}")));
        match limits.and_then(|limits| set(&cache, &limits)) {
            Ok(tenants) => {
                // Who does not take the output misses it.
                let _ = show::print(&format!("  limits  read again, for {tenants} tenants\n"));
                log::info!(tenants; "limits read again");
            }
            Err(error) => log::warn!("the limits stay as they were: {error}"),
        }
    }
}
