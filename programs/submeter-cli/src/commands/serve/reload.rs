//! Limits from flags, from a file that is read again on each SIGHUP, or from a client of the page.
//! The file is that of `--limits`, or else that of `--config`. The other files that SIGHUP reads
//! again are in [`keys`](super::keys).

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use parking_lot::Mutex;
use submeter::limits::GroupLimits;
use submeter::{is_hidden, visible};
use submeter_cache::{Cache, ConfigError, TenantLimits};
use submeter_http::wire::LimitDoc;
use submeter_terminal::{self as show, without_mark};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::fleet::Leased;
use super::keys::Keys;
use super::limits;
use super::reading::Turn;
use crate::cli::{self, ConfigFile, in_flags};

/// The sources of limits.
pub(super) struct Plan {
    /// The file of `--limits`, which takes precedence over that of `--config`.
    pub(super) file: Option<PathBuf>,
    pub(super) config: Option<ConfigFile>,
    pub(super) flags: Vec<GroupLimits>,
    /// The load's limit, which applies to its tenant only where neither a file nor a flag sets one.
    pub(super) staged: Option<GroupLimits>,
    /// What a fleet limits, and nothing else may.
    pub(super) leased: Leased,
}

/// The limits of all tenants, each with the place where it is set.
#[derive(Debug, Default)]
pub(super) struct Limits {
    limits: Vec<GroupLimits>,
    places: Vec<String>,
}

/// How long reading the files may take before a warning says so.
const PATIENCE: Duration = Duration::from_secs(5);

/// Number of places that an error names; thousands of tenants may together be too much.
const PLACES_MAX: usize = 4;

impl Limits {
    fn of_lines(name: impl Display, lines: Vec<(usize, GroupLimits)>) -> Limits {
        let place = |(line, limit)| (limit, format!("{name} line {line}"));
        let (limits, places) = lines.into_iter().map(place).unzip();
        Limits { limits, places }
    }

    fn add(&mut self, limit: GroupLimits, flag: &str) {
        self.limits.push(limit);
        self.places.push(flag.to_owned());
    }

    fn with_flags(mut self, plan: &Plan) -> Limits {
        for limit in &plan.flags {
            self.add(limit.clone(), "--tenant-limit");
        }
        let is_free = |staged: &&GroupLimits| self.limits.iter().all(|l| l.path != staged.path);
        if let Some(limit) = plan.staged.as_ref().filter(is_free) {
            self.add(limit.clone(), "--load");
        }
        self.warn_of_hidden();
        self
    }

    /// Warns of limits for names with characters that nobody sees. Most come from copied text, and
    /// the tenant that was meant has no limit.
    fn warn_of_hidden(&self) {
        // Names with control characters are refused.
        let is_unseen =
            |c: char| !c.is_control() && (is_hidden(c) || c != ' ' && c.is_whitespace());
        let both = self.limits.iter().zip(&self.places);
        for (limit, place) in both.filter(|(limit, _)| limit.path.contains(is_unseen)) {
            let shown = visible(&limit.path);
            log::warn!(
                "the limits of {shown} ({place}) are for keys with an invisible character: if it \
                 was copied by accident, remove it"
            );
        }
    }

    /// Returns them as the cache takes them.
    pub(super) fn settings(&self) -> Vec<(String, TenantLimits)> {
        self.limits.iter().map(|limit| (limit.path.clone(), limit.limits)).collect()
    }

    /// Puts the cache's error into the command's words: with flags, and where the limits are set.
    pub(super) fn explain(&self, error: &ConfigError) -> String {
        let text = in_flags(&error.to_string());
        let is_wrong = |path: &String| error.tenants().contains(path);
        let both = self.limits.iter().zip(&self.places);
        let wrong = both.filter(|(limit, _)| is_wrong(&limit.path)).map(|(_, place)| place);
        let mut places: Vec<&String> = wrong.collect();
        places.dedup();
        if places.is_empty() { text } else { format!("{text} ({})", some(&places)) }
    }
}

impl Plan {
    /// Returns the limits of the file and of flags. The error is one line that names the remedy.
    pub(super) fn read(&self) -> Result<Limits, String> {
        let limits = match (&self.file, &self.config) {
            (Some(path), _) => Limits::of_lines(path.display(), limits::read(path)?),
            (None, Some(file)) => Limits::of_lines(file.path().display(), file.limits().to_vec()),
            (None, None) => Limits::default(),
        };
        Ok(limits.with_flags(self))
    }

    /// Returns whether there is a file to read again.
    fn has_file(&self) -> bool {
        self.path().is_some()
    }

    /// Returns the name of the file that is read again on SIGHUP.
    fn path(&self) -> Option<&Path> {
        self.file.as_deref().or_else(|| self.config.as_ref().map(ConfigFile::path))
    }

    /// The same as [`read`](Plan::read), for the file as it is now.
    fn read_again(&self) -> Result<Limits, String> {
        let config = self.config.as_ref().filter(|_| self.file.is_none());
        let Some(file) = config else { return self.read() };
        let now = cli::read_config(file.path())?;
        let changed = file.changed(&now);
        if !changed.is_empty() {
            log::warn!(
                "{} in {}: only a restart applies that, because SIGHUP rereads only [limits]",
                changed.join(", "),
                file.path().display()
            );
        }
        Ok(Limits::of_lines(file.path().display(), now.limits().to_vec()).with_flags(self))
    }
}

/// Sets limits in place of the current ones.
pub(super) struct Limiter {
    cache: Cache,
    plan: Arc<Plan>,
    set: Mutex<Settings>,
}

type Settings = Vec<(String, TenantLimits)>;

impl Limiter {
    /// Starts from the limits that the cache began with.
    fn new(plan: Arc<Plan>, cache: &Cache) -> Limiter {
        let set = Mutex::new(cache.config().tenant_limits.clone());
        Limiter { cache: cache.clone(), plan, set }
    }

    /// Changes the limits of one tenant, until all are read again.
    fn change(&self, path: &str, change: &str) -> Result<LimitDoc, String> {
        // Held to the end; otherwise a concurrent change would be overwritten.
        let mut set = self.set.lock();
        let mut settings = set.clone();
        let at = settings.iter().position(|(known, _)| known == path);
        let before = at.map_or_else(TenantLimits::default, |at| settings[at].1);
        let (after, undo) = before.changed(change).map_err(|error| error.to_string())?;
        match at {
            Some(at) => settings[at].1 = after,
            None => settings.push((path.to_owned(), after)),
        }
        settings.retain(|(_, limits)| *limits != TenantLimits::default());
        let of = |(path, limits)| (GroupLimits { path, limits }, "the request".to_owned());
        let (limits, places) = settings.into_iter().map(of).unzip();
        self.replace(&mut set, &Limits { limits, places })?;
        Ok(LimitDoc { path: path.to_owned(), limits: after.to_string(), undo })
    }

    /// Sets the limits and returns the number of tenants. What a tenant holds above a lowered limit
    /// is dropped soon after. Reports which limits are gone, since that may be a mistake.
    fn set(&self, limits: &Limits) -> Result<usize, String> {
        self.replace(&mut self.set.lock(), limits)
    }

    fn replace(&self, set: &mut Settings, limits: &Limits) -> Result<usize, String> {
        let settings = limits.settings();
        self.plan.leased.check(&settings).map_err(|failure| failure.line().to_owned())?;
        self.cache.set_limits(&settings).map_err(|error| limits.explain(&error))?;
        let before = std::mem::replace(set, settings.clone());
        let lifted = lifted(&before, &settings);
        if !lifted.is_empty() {
            log::warn!("limits that are no longer set: {}", some(&lifted));
        }
        let tenants = settings.len();
        let cache = self.cache.clone();
        // Not waited for: dropping a million items takes about ten seconds.
        tokio::task::spawn_blocking(move || {
            let limited = settings.iter().filter(|(_, limits)| limits.memory.is_some());
            limited.for_each(|(path, _)| cache.shrink(path));
        });
        Ok(tenants)
    }
}

/// Names the tenants that lost limits, and these limits.
fn lifted(before: &[(String, TenantLimits)], now: &[(String, TenantLimits)]) -> Vec<String> {
    let names = |limits: &TenantLimits| {
        let TenantLimits { memory, high, low, min, rate, cpu, weight, mode } = limits;
        let all = [
            ("memory", memory.is_some()),
            ("high", high.is_some()),
            ("low", low.is_some()),
            ("min", min.is_some()),
            ("rate", rate.is_some()),
            ("cpu", cpu.is_some()),
            ("weight", weight.is_some()),
            ("mode", mode.is_some()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect::<Vec<_>>()
    };
    let has: HashMap<&str, Vec<&str>> =
        now.iter().map(|(path, limits)| (&**path, names(limits))).collect();
    let gone = |(path, limits): &(String, TenantLimits)| {
        let has = has.get(&**path).map_or(&[][..], |has| has);
        let gone: Vec<&str> =
            names(limits).into_iter().filter(|name| !has.contains(name)).collect();
        (!gone.is_empty()).then(|| format!("{} of {path:?}", gone.join(" and ")))
    };
    before.iter().filter_map(gone).collect()
}

/// Joins names, leaving out some if there are too many.
fn some(names: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = names.iter().take(PLACES_MAX).map(AsRef::as_ref).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(PLACES_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Sets the limits of a client's text, in place of those of the file and in addition to those of
/// flags.
pub(super) async fn post(limiter: Arc<Limiter>, text: String) -> (StatusCode, String) {
    // An empty body is what a client sends whose file was not found, or whose variable was not set.
    let text = without_mark(&text);
    let is_empty = text.trim().is_empty();
    let said = is_empty.then(|| "the body is empty: to lift all limits, send a comment".to_owned());
    let limits = said.map_or_else(|| limits::parse(text, "the body"), Err);
    let limits = limits.map(|lines| Limits::of_lines("the body", lines).with_flags(&limiter.plan));
    match limits.and_then(|limits| limiter.set(&limits)) {
        Ok(tenants) => {
            log::info!(tenants; "limits set by a client");
            let s = if tenants == 1 { "" } else { "s" };
            (StatusCode::OK, format!("limits of {tenants} tenant{s} are set\n"))
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("the limits stay as they were: {error}\n")),
    }
}

/// Changes a tenant's limits as a client asks.
pub(super) async fn post_one(
    limiter: Arc<Limiter>,
    path: String,
    text: String,
) -> Result<LimitDoc, (StatusCode, String)> {
    // A path for which no limit could be set could not have one in a file either.
    let path_error = GroupLimits::new(&path, "1k").err().map(|error| error.to_string());
    match path_error.map_or_else(|| limiter.change(&path, text.trim()), Err) {
        Ok(doc) => {
            log::info!(path = doc.path.as_str(), limits = doc.limits.as_str(); "limits set by a client");
            Ok(doc)
        }
        Err(error) => {
            Err((StatusCode::BAD_REQUEST, format!("the limits stay as they were: {error}\n")))
        }
    }
}

/// Catches SIGHUP, which would otherwise end the process without a summary and leave its socket
/// behind.
pub(super) fn hangups() -> std::io::Result<Signal> {
    signal(SignalKind::hangup())
}

/// Starts to read the files again on each signal. Returns the limiter of the cache.
pub(super) fn start(hangups: Signal, plan: Arc<Plan>, cache: &Cache, keys: Keys) -> Arc<Limiter> {
    let limiter = Arc::new(Limiter::new(plan, cache));
    tokio::spawn(follow(hangups, Arc::clone(&limiter), keys));
    limiter
}

/// Reads the files again on each signal. A bad file changes nothing.
async fn follow(mut hangups: Signal, limiter: Arc<Limiter>, keys: Keys) {
    let mut turn = Turn::default();
    while hangups.recv().await.is_some() {
        let has_limits = limiter.plan.has_file();
        if !has_limits && keys.is_empty() {
            log::warn!(
                "SIGHUP changes nothing: it rereads the files of --limits or --config, \
                 --auth-file, --token-file, --tls-cert, --tls-key, --bank-ca, --bank-cert and \
                 --bank-key, but none was given"
            );
            continue;
        }
        // One after the other, unless one hangs.
        turn = turn.next();
        read_again(turn.clone(), Arc::clone(&limiter), keys.clone()).await;
    }
}

/// Reads the files again, on a thread that may wait: a file may be on a remote disk, or be a pipe
/// that nothing writes to. If that happens it warns, and returns while the thread continues to
/// wait.
async fn read_again(turn: Turn, limiter: Arc<Limiter>, keys: Keys) {
    let own = turn.clone();
    let read = tokio::task::spawn_blocking(move || {
        let said = keys.read_again(&limiter.cache, &turn);
        turn.if_latest(|| said.into_iter().for_each(tell));
        if limiter.plan.has_file() {
            let plan = &limiter.plan;
            let limits = turn.now.reading("--limits", plan.path(), || plan.read_again());
            turn.if_latest(|| {
                let set = limits.and_then(|limits| limiter.set(&limits));
                let told = |error| format!("the limits stay as they were: {error}");
                let s = |n: &usize| if *n == 1 { "" } else { "s" };
                let said = |n| format!("limits  read again, for {n} tenant{}", s(&n));
                tell(set.map(said).map_err(told));
            });
        }
    });
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::warn!("cannot reread the files: {error}"),
        Err(_) => {
            if let Some(file) = own.now.file() {
                log::warn!(
                    "{file} is still being read: write to it if it is a pipe, or replace it with a \
                     regular file and send SIGHUP again; until then its previous contents apply"
                );
            }
        }
    }
}

/// Reports what was read again, or why not.
fn tell(said: Result<String, String>) {
    match said {
        Ok(line) => {
            // A user who does not take the output misses it.
            let _ = show::print(&format!("  {line}\n"));
            log::info!("{}", line.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        Err(why) => log::warn!("{why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_limited_no_more_has_its_limit_named() {
        let limits = |lines: &[&str]| -> Vec<(String, TenantLimits)> {
            let limit = |line: &&str| line.parse::<GroupLimits>().expect("well-formed");
            lines.iter().map(limit).map(|limit| (limit.path, limit.limits)).collect()
        };
        let before = limits(&["/a=64m,rate=5/s,cpu=1", "/b=min=1k", "/c=weight=7,high=2k"]);
        assert_eq!(lifted(&before, &before), [""; 0]);
        let now = limits(&["/a=1k", "/b=min=5k,rate=1/s"]);
        assert_eq!(lifted(&before, &now), ["rate and cpu of \"/a\"", "high and weight of \"/c\""]);
        assert_eq!(lifted(&before, &[]).len(), 3);
        assert_eq!(some(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d and 2 more");
    }
}
