//! Deletes a tenant: kills its group, drops its items, and waits for what is still running.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use submeter::Killed;
use submeter::refs::StillHeldError;
use submeter::refs::pin;
use tokio::time::timeout;

use crate::cache::Cache;
use crate::tenant::Tenant;

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deletion {
    /// The tenant.
    pub path: String,
    /// Number of groups deleted: the tenant and everything below it.
    pub groups: usize,
    /// Number of items dropped.
    pub items: u64,
    /// Bytes that those items had been charged.
    pub bytes: u64,
    /// Duration, including the wait.
    pub took: Duration,
}

/// The reason why a tenant was not deleted, or not completely.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeleteError {
    /// The path is invalid, or the root's.
    Path(String),
    /// There is no such tenant, or another deletion came first.
    NotFound(String),
    /// The tenant is gone, but some of its groups are still held.
    StillHeldError {
        /// The work done so far.
        done: Deletion,
        /// The holders of each group that is not released.
        held: Vec<StillHeldError>,
    },
}

/// The first and the longest wait for the release between two rounds; each wait is twice the last.
/// A wait ends when the last holder is gone. Rounds drop what running requests have stored, and
/// advance epochs.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(50);

impl Cache {
    /// Deletes a tenant with everything below it.
    ///
    /// None of these tenants can be found from then on; the next request for one of their keys
    /// creates a new tenant of the same name, which owes what the deleted one does. Running
    /// requests finish, and are counted; those that wait for a rate are refused at once. The items
    /// are dropped in small portions, so that other connections are not held up; until it is
    /// dropped, such an item may still be fetched. The parent's totals keep what the deleted
    /// tenants counted. The deletion ends when the groups are released: when no request, no answer
    /// on its way and no handle refers to them.
    ///
    /// If the future is dropped earlier, the tenant stays deleted, and its remaining items expire
    /// or are evicted.
    ///
    /// # Errors
    /// An invalid path, the root, or no such tenant; or a group that is held for longer than
    /// `patience`: the error names its holders, and the tenant is gone in that case too.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter_cache::{Cache, Config};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let mut config = Config::default();
    /// config.tenant_limits.push(("/acme/web".to_owned(), (1 << 20).into()));
    /// let cache = Cache::new(config)?;
    ///
    /// let deletion = cache.delete_tenant("/acme", Duration::from_secs(10)).await?;
    /// assert_eq!((deletion.groups, deletion.items), (2, 0));
    /// assert!(cache.tree().get("/acme").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn delete_tenant(
        &self,
        path: &str,
        patience: Duration,
    ) -> Result<Deletion, DeleteError> {
        let started = Instant::now();
        if !path.starts_with('/') || path == "/" {
            return Err(DeleteError::Path(path.to_owned()));
        }
        let missing = || DeleteError::NotFound(path.to_owned());
        let group = self.tree().get(path).ok_or_else(missing)?;
        // Refused only if another deletion came first: a path never leads to the root here.
        let mut killed = group.kill_subtree().map_err(|_| missing())?;
        let mut purge = Purge::new(self, self.tenants().detach(&group));
        let mut done = Deletion {
            path: group.path().to_owned(),
            groups: killed.len(),
            items: 0,
            bytes: 0,
            took: Duration::ZERO,
        };
        drop(group);
        let mut look = LOOK_MIN;
        loop {
            purge.round(&mut done).await;
            // An item that was replaced during a lookup is freed when its epoch ends.
            pin().flush();
            killed.retain(|group| !is_released(group));
            done.took = started.elapsed();
            let Some(next) = killed.first() else { return Ok(done) };
            let Some(left) = patience.checked_sub(done.took) else {
                let held = killed.iter().map(Killed::holders).collect();
                return Err(DeleteError::StillHeldError { done, held });
            };
            // Either way it is time to check again.
            let _ = timeout(look.min(left), next.released()).await;
            look = (look * 2).min(LOOK_MAX);
        }
    }
}

/// Checks with a zero-length wait, which finishes a release that is nearly done.
fn is_released(group: &Killed) -> bool {
    group.is_released() || group.released_blocking(Duration::ZERO).is_ok()
}

/// Drops the items of detached tenants.
struct Purge<'c> {
    cache: &'c Cache,
    /// Weak, because a deletion must not hold what it deletes. Tenants that are gone have no items.
    tenants: Vec<Weak<Tenant>>,
}

impl<'c> Purge<'c> {
    fn new(cache: &'c Cache, tenants: Vec<Arc<Tenant>>) -> Purge<'c> {
        Purge { cache, tenants: tenants.iter().map(Arc::downgrade).collect() }
    }

    /// Drops the items that exist. A running request may store more, which the next round drops.
    async fn round(&mut self, done: &mut Deletion) {
        self.tenants.retain(|tenant| tenant.strong_count() > 0);
        for tenant in &self.tenants {
            // Released in each iteration, since the task may wait there.
            while let Some(tenant) = tenant.upgrade() {
                let purged = self.cache.store().purge(&tenant);
                drop(tenant);
                if purged.items == 0 {
                    break;
                }
                done.items += purged.items;
                done.bytes += purged.bytes;
                tokio::task::yield_now().await;
            }
        }
    }
}

impl Drop for Purge<'_> {
    fn drop(&mut self) {
        self.cache.tenants().adopt(self.tenants.iter().filter_map(Weak::upgrade));
    }
}

impl fmt::Display for DeleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeleteError::Path(path) if path == "/" => {
                f.write_str("\"/\" is the whole server: use a tenant such as \"/acme/web\"")
            }
            DeleteError::Path(path) => {
                write!(f, "{path:?} is not a path: use the form \"/acme/web\"")
            }
            DeleteError::NotFound(path) => write!(f, "there is no tenant {path:?}"),
            DeleteError::StillHeldError { done, held } => {
                write!(
                    f,
                    "{} was deleted, but {} of {} groups are still in use after {:.1} s",
                    done.path,
                    held.len(),
                    done.groups,
                    done.took.as_secs_f64()
                )?;
                held.iter().take(HELD_SHOWN).try_for_each(|held| write!(f, "; {held}"))
            }
        }
    }
}

/// Number of held groups that the error's text names.
const HELD_SHOWN: usize = 3;

impl std::error::Error for DeleteError {}
