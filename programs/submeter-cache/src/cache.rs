//! The cache itself: configuration, tree of tenants and items, shared by every connection.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use submeter::Tree;
use submeter_documents::{Document, Documents, Held, Versions};
use tokio::sync::Notify;

use crate::config::{Config, ConfigError};
use crate::connections::{ConnectionPlaces, Connections};
use crate::limits::TenantLimits;
use crate::metrics::Metrics;
use crate::statistics::{Statistics, Totals};
use crate::store::Store;
use crate::tenant::{TenantPlaces, Tenants};
use crate::users::Users;

/// A cache whose tenants are groups of its [`tree`](Cache::tree). Cloning it copies a pointer.
///
/// # Examples
/// ```
/// use submeter_cache::{Cache, Config};
///
/// let mut config = Config::default();
/// config.tenant_limits.push(("/acme".to_owned(), (1 << 20).into()));
/// let cache = Cache::new(config)?;
///
/// let acme = cache.tree().get("/acme").expect("tenants with a limit exist from the start");
/// assert_eq!(acme.usage(cache.metrics().memory).limit, Some(1 << 20));
/// # Ok::<(), submeter_cache::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Cache {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    metrics: Metrics,
    tree: Tree,
    tenants: Arc<Tenants>,
    store: Store,
    statistics: Statistics,
    shutdown: Notify,
    connections: Arc<Connections>,
    tenant_lists: Documents,
    prefix_lists: Documents,
    connection_lists: Documents,
}

/// A list by tenant or by connection, possibly megabytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// `stats tenants`
    Tenants,
    /// `stats detail dump`
    Prefixes,
    /// `stats conns`
    Connections,
}

/// Number of versions of a list that may be on their way to slow clients. The oldest one is waited
/// for this long before it is withdrawn. Together the lists take a quarter of the memory, or as
/// much as one version of each.
const LISTS_MAX: usize = 4;
const LIST_PATIENCE: Duration = Duration::from_secs(5);

impl Cache {
    /// Creates an empty cache.
    ///
    /// # Errors
    /// When a setting is invalid; the error names the setting and the remedy.
    pub fn new(config: Config) -> Result<Cache, ConfigError> {
        config.check()?;
        let internal = |what: &str, e: &dyn fmt::Display| ConfigError::new(format!("{what}: {e}"));
        let metrics = Metrics::new().map_err(|e| internal("metrics", &e))?;
        let tree = Tree::builder(metrics.schema.clone())
            .groups_max(Tenants::groups_max(config.tenants_max))
            .build()
            .map_err(|e| internal("tree of tenants", &e))?;
        tree.root().set_limit(metrics.memory, Some(config.memory_max));
        let tenants = Arc::new(Tenants::new(&config, &tree, &metrics));
        tenants.set_limits(&config.tenant_limits, &tree)?;
        let totals = Totals::new(config.metering).map_err(|e| internal("totals", &e))?;
        let store = Store::new(&metrics, &config, totals, Arc::clone(&tenants));
        store.heed(&config.tenant_limits);
        let statistics = Statistics::default();
        let root = tree.root().clone();
        let connections = Arc::new(Connections::new(&config, &metrics, root));
        let held = Held::default();
        let most = usize::try_from(config.memory_max / 4).unwrap_or(usize::MAX);
        let lists = || {
            let versions = Versions::new(LISTS_MAX, LIST_PATIENCE);
            Documents::from(versions.counted(&held).within(most))
        };
        let inner = Inner {
            config,
            metrics,
            tree,
            tenants,
            store,
            statistics,
            shutdown: Notify::new(),
            connections,
            tenant_lists: lists(),
            prefix_lists: lists(),
            connection_lists: lists(),
        };
        Ok(Cache { inner: Arc::new(inner) })
    }

    /// Returns the tree whose groups are the tenants. Their [data](submeter::Group::data) is the
    /// cache's.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }

    /// Returns the keys of each tenant's metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// Returns the configuration that the cache was created with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Replaces the limits of all tenants: tenants that are not named have no limits from now on.
    /// The configuration keeps its original limits.
    ///
    /// A tenant that is over its new limit keeps what it has until [`shrink`](Self::shrink) is
    /// called or it stores more; then it drops items of its own. What a rate has granted stays
    /// granted, so that setting the rate again grants nothing.
    ///
    /// # Errors
    /// When a limit is invalid, or there are more tenants than allowed; the limits then stay
    /// unchanged.
    pub fn set_limits(&self, limits: &[(String, TenantLimits)]) -> Result<(), ConfigError> {
        self.inner.config.check_limits(limits)?;
        self.inner.tenants.set_limits(limits, &self.inner.tree)?;
        self.inner.store.heed(limits);
        Ok(())
    }

    /// Checks that each user's tenant would have a place of its own beside the tenants with limits.
    /// If not, users can log in all the same, and their tenants get what places there are. A
    /// program can ask this before it gives users to a [`Server`](crate::Server).
    ///
    /// # Errors
    /// When there are more than [`Config::tenants_max`].
    ///
    /// # Examples
    /// ```
    /// use submeter_cache::{Cache, Config, Users};
    ///
    /// let cache = Cache::new(Config { tenants_max: 1, ..Config::default() })?;
    /// let users = Users::parse("acme:correct-horse\nbob:battery-staple\n", cache.config())?;
    /// assert!(cache.check_users(&users).is_err());
    /// # Ok::<(), submeter_cache::ConfigError>(())
    /// ```
    pub fn check_users(&self, users: &Users) -> Result<(), ConfigError> {
        self.inner.tenants.check_users(&users.subscribe().borrow())
    }

    /// Drops items of a tenant that holds more than its limit, until it no longer does. This is for
    /// a limit that the program lowers by [`Group::set_limit`] and that must hold before the
    /// tenant's next store. Does nothing if evictions are switched off, or if there is no such
    /// tenant.
    ///
    /// Takes time in proportion to what is dropped: about a millisecond per hundred items.
    ///
    /// [`Group::set_limit`]: submeter::Group::set_limit
    pub fn shrink(&self, path: &str) {
        if let Some(tenant) = self.inner.tenants.by_path(path) {
            self.inner.store.yield_excess(&tenant);
        }
    }

    /// Returns how many tenants there may be, how many places are taken, and by which tenants.
    /// Visits each owner of places; there are at most as many owners as first names of keys.
    #[must_use]
    pub fn places(&self) -> TenantPlaces {
        self.inner.tenants.places()
    }

    /// Returns how many connections there may be, and how many are open.
    #[must_use]
    pub fn connection_places(&self) -> ConnectionPlaces {
        self.inner.connections.look()
    }

    /// Returns who has the most connections, and how many: a user, clients that have not logged in,
    /// or an address. Visits each connection.
    #[must_use]
    pub fn largest_holder(&self) -> Option<(String, usize)> {
        self.inner.connections.largest_holder()
    }

    /// Returns who holds most of [`Config::buffers_max`](crate::Config::buffers_max), named as by
    /// [`largest_holder`](Cache::largest_holder), and how many bytes. `None` if nobody holds any.
    #[must_use]
    pub fn largest_buffer_holder(&self) -> Option<(String, u64)> {
        self.inner.connections.largest_buffer_holder()
    }

    /// Makes tenants of the groups that the program has created in the tree, for instance by
    /// restoring a checkpoint, and kills groups for which there is no place; their counts stay in
    /// the groups above them. A tenant made this way makes room for a new one like any tenant that
    /// holds nothing.
    ///
    /// Takes some microseconds per group.
    pub fn adopt(&self) {
        self.inner.tenants.adopt_groups();
    }

    pub(crate) fn tenants(&self) -> &Tenants {
        &self.inner.tenants
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.inner.statistics
    }

    /// Waits until a client has sent `shutdown`; never ends unless
    /// [`Config::shutdown`](crate::Config::shutdown) allows it. There can be one waiter, which
    /// passes it to [`Server::run`](crate::Server::run) as the end, alone or combined with others.
    ///
    /// # Examples
    /// ```
    /// use submeter_cache::{Cache, Config, Server};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let cache = Cache::new(Config { shutdown: true, ..Config::default() })?;
    /// let server = Server::bind(([127, 0, 0, 1], 0).into(), cache.clone()).await?;
    /// let serving = server.run(async move { cache.shutdown_asked().await });
    /// # drop(serving);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn shutdown_asked(&self) {
        self.inner.shutdown.notified().await;
    }

    pub(crate) fn ask_shutdown(&self) {
        self.inner.shutdown.notify_one();
    }

    /// Returns a list as lines, shared with all clients that ask at the same time.
    pub(crate) async fn list(&self, list: List) -> Arc<Document> {
        let cache = self.clone();
        let made = match list {
            List::Tenants => {
                self.inner.tenant_lists.get(move || Ok::<_, Infallible>(cache.list_tenants())).await
            }
            List::Connections => {
                let list = move || Ok(cache.connections().list(cache.store().clock.now().ms));
                self.inner.connection_lists.get(list).await
            }
            List::Prefixes => self.inner.prefix_lists.get(move || Ok(cache.list_prefixes())).await,
        };
        match made {
            Ok(document) => document,
            Err(never) => match never {},
        }
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.inner.connections
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("config", &self.inner.config).finish_non_exhaustive()
    }
}
