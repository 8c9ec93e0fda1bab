//! The configuration of a cache.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use submeter::WEIGHTS;

use crate::limits::{OverRate, TenantLimits};
use crate::protocol::KEYS_LINE_MAX;
use crate::tenant::strays::{GROUPS_OF_TENANT, other};

/// The settings of a cache.
#[derive(Clone, Debug)]
pub struct Config {
    /// The byte that separates the names of nested tenants at the front of a key: with `:`,
    /// `acme:web:k` belongs to `/acme/web`. A key without it belongs to the root.
    pub delimiter: u8,
    /// Maximum depth of tenants. Keys of deeper tenants are charged to the stray child of the
    /// tenant at this depth. The stray child's name is the delimiter and `other`, such as
    /// `/acme/:other`, so that no key has a tenant of that name.
    pub depth_max: usize,
    /// Maximum number of tenants, not counting the stray children; keys of further tenants are
    /// charged to their parent's stray child.
    ///
    /// Tenants with limits or users always have a place. Some places are also reserved for what is
    /// below each of these: a sixteenth of all, or less if there are many. Of the rest, what is
    /// below each of them may have as many places as it leaves to others; so may what is below any
    /// other first name of a key. A tenant that holds nothing, has no limit and has received no
    /// request for some seconds makes room for a new one.
    pub tenants_max: usize,
    /// Tenants that exist from the start and always have a place, although `tenant_limits` does not
    /// name them. For a program that limits groups itself.
    pub tenants_kept: Vec<String>,
    /// Maximum memory that all items together may hold, in bytes.
    pub memory_max: u64,
    /// Maximum size of a value, in bytes.
    pub value_max: usize,
    /// Whether live items are dropped to make room. If not, a store that finds no room is refused.
    pub evictions: bool,
    /// Whether clients may drop every item of all tenants with `flush_all`.
    pub flush_all: bool,
    /// Whether clients may end the server with `shutdown`: see
    /// [`Cache::shutdown_asked`](crate::Cache::shutdown_asked).
    pub shutdown: bool,
    /// The limits of tenants, by group path.
    pub tenant_limits: Vec<(String, TenantLimits)>,
    /// Whether requests check for a rate even if `tenant_limits` has none. For a program that sets
    /// rates of groups itself.
    pub rates: bool,
    /// What happens to requests over a tenant's rate: a refusal or a wait.
    pub over_rate: OverRate,
    /// Whether requests are metered. Memory is charged in either case, because limits need it.
    pub metering: bool,
    /// Maximum number of connections. A further one receives an error and is closed, as in
    /// memcached, unless it gets the place of one that has not logged in. No single user among
    /// several may have all of them: a user has at most seven times as many as all users together
    /// leave free.
    pub connections_max: usize,
    /// Maximum memory that all connections together may hold while they wait for their clients, in
    /// addition to the usual buffers of 16 KiB per direction: incomplete requests, and answers that
    /// are not taken. Without room a connection waits for it, and connections that have held room
    /// for a second or more are closed, the oldest first. Among several users, one may hold seven
    /// times as much as is free, and waits for its own connections beyond that.
    pub buffers_max: u64,
    /// Time limit for a client to agree on keys and to log in, where required.
    pub login_timeout: Duration,
    /// Time limit for a request from its first byte to its last, and for answers from the moment
    /// when their client stops taking them. Large ones have longer: a second for each 64 KiB.
    pub request_timeout: Duration,
    /// Idle time without a request after which a connection is closed; `None` for never.
    pub idle_timeout: Option<Duration>,
    /// Time limit for requests in flight at shutdown to finish.
    pub drain: Duration,
}

impl Default for Config {
    /// memcached's own defaults where they exist: 64 MiB of items, values up to 1 MiB, 1024
    /// connections, no idle timeout.
    fn default() -> Self {
        Config {
            delimiter: b':',
            depth_max: 4,
            tenants_max: TENANTS_MAX_DEFAULT,
            tenants_kept: Vec::new(),
            memory_max: 64 << 20,
            value_max: 1 << 20,
            evictions: true,
            flush_all: true,
            shutdown: false,
            tenant_limits: Vec::new(),
            rates: false,
            over_rate: OverRate::Refuse,
            metering: true,
            connections_max: 1024,
            buffers_max: 64 << 20,
            login_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            idle_timeout: None,
            drain: Duration::from_secs(2),
        }
    }
}

impl Config {
    /// Rejects invalid settings; the error names the setting, the value and the remedy.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError::new(text));
        let delimiter = char::from(self.delimiter);
        if !self.delimiter.is_ascii_graphic() || self.delimiter == b'/' {
            return refuse(format!(
                "delimiter {delimiter:?} cannot separate tenants: use a printable ASCII character \
                 other than '/'"
            ));
        }
        // One level is reserved for the strays of the deepest tenant.
        if self.depth_max >= submeter::DEPTH_MAX {
            return refuse(format!(
                "depth_max {} is too deep: the maximum is {}",
                self.depth_max,
                submeter::DEPTH_MAX - 1
            ));
        }
        if self.depth_max == 0 {
            return refuse("depth_max 0 leaves no tenants: use 1 or more".to_owned());
        }
        if self.tenants_max > TENANTS_MAX {
            return refuse(format!(
                "tenants_max {} is too many: the maximum is {TENANTS_MAX}",
                self.tenants_max
            ));
        }
        if self.value_max == 0 || self.value_max > VALUE_MAX {
            return refuse(format!(
                "value_max {} is out of range: use 1 to {VALUE_MAX} bytes",
                self.value_max
            ));
        }
        if self.memory_max == 0 {
            return refuse("memory_max 0 leaves no room for items: use 1 MiB or more".to_owned());
        }
        self.check_connections()?;
        self.tenants_kept.iter().try_for_each(|path| self.check_tenant(path))?;
        self.check_limits(&self.tenant_limits)
    }

    /// Rejects limits that no tenant can have.
    pub(crate) fn check_limits(
        &self,
        limits: &[(String, TenantLimits)],
    ) -> Result<(), ConfigError> {
        let mut paths = HashSet::new();
        for (path, limits) in limits {
            self.check_limit(path, limits).map_err(|error| error.of(path))?;
            if !paths.insert(path) {
                let error = format!("tenant {path:?} has two limits: keep one");
                return Err(ConfigError::new(error).of(path));
            }
        }
        // Further down, nothing is protected beyond the protection of the levels above.
        let at_the_top = |path: &str| path.bytes().filter(|byte| *byte == b'/').count() == 1;
        let protects = |path: &str, limits: &TenantLimits| at_the_top(path) && limits.min.is_some();
        let protected = || limits.iter().filter(|(path, limits)| protects(path, limits));
        let mins = protected().filter_map(|(_, limits)| limits.min);
        let mins = mins.fold(0u64, u64::saturating_add);
        if mins > self.memory_max {
            let error = ConfigError::new(format!(
                "the min of all tenants adds up to {mins} bytes, more than memory_max {}: lower \
                 some, or use low",
                self.memory_max
            ));
            return Err(protected().fold(error, |error, (path, _)| error.of(path)));
        }
        Ok(())
    }

    fn check_connections(&self) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError::new(text));
        if self.connections_max == 0 {
            return refuse("connections_max 0 admits no clients: use 1 or more".to_owned());
        }
        // Otherwise a connection could wait for room that will never exist.
        let least = 2 * self.value_max as u64 + ONE_REQUEST_BYTES;
        if self.buffers_max < least {
            return refuse(format!(
                "buffers_max {} is too small for one request and one answer with a value of {} \
                 bytes: use {least} or more",
                self.buffers_max, self.value_max
            ));
        }
        let idle = self.idle_timeout.unwrap_or(self.login_timeout);
        if [self.login_timeout, self.request_timeout, idle].iter().any(Duration::is_zero) {
            return refuse(
                "a timeout of 0 leaves no time for a request: use 1 s or more".to_owned(),
            );
        }
        Ok(())
    }

    fn check_limit(&self, path: &str, limits: &TenantLimits) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError::new(text));
        if limits.memory == Some(0) {
            return refuse(format!("limit 0 of tenant {path:?} leaves no room: leave it out"));
        }
        for rate in [limits.rate, limits.cpu].into_iter().flatten() {
            if let Err(error) = rate.check() {
                return refuse(format!("tenant {path:?}: {error}"));
            }
        }
        if limits.cpu.is_some() && !self.metering {
            return refuse(format!(
                "the CPU time of tenant {path:?} is limited, but not counted without metering: \
                 drop the limit or enable metering"
            ));
        }
        if let Some(weight) = limits.weight.filter(|weight| !WEIGHTS.contains(weight)) {
            let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
            return refuse(format!(
                "weight {weight} of tenant {path:?} is out of range: use {least} to {most}"
            ));
        }
        if path == "/" && limits.weight.is_some() {
            return refuse("tenant \"/\" is the whole server, which has no weight".to_owned());
        }
        let TenantLimits { memory, high, low, min, .. } = *limits;
        for (name, bytes) in [("high", high), ("low", low), ("min", min)] {
            let Some(bytes) = bytes else { continue };
            if path == "/" {
                return refuse(format!("tenant \"/\" is the whole server, which has no {name}"));
            }
            if bytes == 0 {
                return refuse(format!("{name} 0 of tenant {path:?} does nothing: leave it out"));
            }
            if let Some(limit) = memory.filter(|limit| *limit < bytes) {
                return refuse(format!(
                    "{name} {bytes} of tenant {path:?} is more than its limit {limit}: lower it"
                ));
            }
        }
        if path == "/" && memory.is_some() {
            return refuse("tenant \"/\" is the whole server: set memory_max".to_owned());
        }
        // Strays share a limit, if any: no key names their tenant.
        let of_strays = path.strip_suffix(&other(self.delimiter));
        match of_strays.and_then(|path| path.strip_suffix('/')).unwrap_or(path) {
            "" | "/" => Ok(()),
            path => self.check_tenant(path),
        }
    }

    /// Rejects a path that no key can belong to.
    pub(crate) fn check_tenant(&self, path: &str) -> Result<(), ConfigError> {
        let refuse = |text: String| Err(ConfigError::new(text));
        let Some(names) = path.strip_prefix('/') else {
            return refuse(format!("tenant {path:?} is not a path: use the form \"/acme/web\""));
        };
        for name in names.split('/') {
            let why = match name {
                "" => "it is empty",
                "." | ".." => "it is reserved",
                _ => continue,
            };
            return refuse(format!("tenant {path:?} contains the name {name:?}: {why}"));
        }
        if names.split('/').count() > self.depth_max {
            return refuse(format!(
                "tenant {path:?} is deeper than depth_max {}: use an ancestor",
                self.depth_max
            ));
        }
        if names.bytes().any(|byte| byte == self.delimiter) {
            return refuse(format!(
                "tenant {path:?} contains the delimiter {:?}, so no key belongs to it: separate \
                 names with '/'",
                char::from(self.delimiter)
            ));
        }
        Ok(())
    }
}

/// The default of `tenants_max`.
pub(crate) const TENANTS_MAX_DEFAULT: usize = 10_000;

/// The largest `tenants_max` whose groups fit into a tree.
const TENANTS_MAX: usize = submeter::GROUPS_MAX_DEFAULT / GROUPS_OF_TENANT - 1;

/// The largest `value_max`: memcached's own ceiling.
const VALUE_MAX: usize = 1 << 30;

/// Bytes that one connection may hold in addition to a value in its request and one in its answer:
/// the longest line, and the text of its answers.
const ONE_REQUEST_BYTES: u64 = KEYS_LINE_MAX as u64 + (1 << 20);

/// The error for an invalid setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    text: String,
    tenants: Vec<String>,
}

impl ConfigError {
    pub(crate) fn new(text: String) -> ConfigError {
        ConfigError { text, tenants: Vec::new() }
    }

    /// Adds that the error is about the limits of this tenant.
    pub(crate) fn of(mut self, path: &str) -> ConfigError {
        self.tenants.push(path.to_owned());
        self
    }

    /// Returns the paths of the tenants whose limits are wrong, so that a program that read them
    /// from a file can say where they are. Empty if another setting is wrong.
    ///
    /// # Examples
    /// ```
    /// use submeter_cache::{Cache, Config};
    ///
    /// let mut config = Config::default();
    /// config.tenant_limits.push(("/acme//web".to_owned(), (1 << 20).into()));
    /// let error = Cache::new(config).expect_err("a name is empty");
    /// assert_eq!(error.tenants(), ["/acme//web"]);
    /// ```
    #[must_use]
    pub fn tenants(&self) -> &[String] {
        &self.tenants
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ConfigError {}
