//! Deleting a tenant: its group is killed, its items are dropped, and what still runs is waited for.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use submeter::Killed;
use submeter::percpu::percpu_ref::StillHeld;
use submeter::percpu::rcuref::pin;
use tokio::time::timeout;

use crate::cache::Cache;
use crate::tenant::Tenant;

/// Says what a deletion has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deletion {
    /// The tenant.
    pub path: String,
    /// How many groups went: the tenant and all that were below it.
    pub groups: usize,
    /// Items dropped.
    pub items: u64,
    /// Bytes that those items had been charged.
    pub bytes: u64,
    /// How long it took, waiting included.
    pub took: Duration,
}

/// Says why a tenant was not deleted, or not to the end.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeleteError {
    /// It is not a path, or the root's.
    Path(String),
    /// There is no such tenant, or another deletion has just taken it.
    NotFound(String),
    /// It is gone, but something of it is still in use: what was done, and who holds what.
    StillHeld {
        /// What was done so far.
        done: Deletion,
        /// One for each group that is not released.
        held: Vec<StillHeld>,
    },
}

/// How long the first look waits for the release, and the longest: doubled each time. It ends at once
/// when the last holder goes; the looks are for what was stored meanwhile, and to move epochs forward.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_millis(50);

impl Cache {
    /// Deletes a tenant with everything below it: who deletes `/acme` means all of acme's.
    ///
    /// At once none of these tenants is found any more; whoever asks for such a key from then on is
    /// served by a fresh tenant of the same name. Requests that were running finish, and count. The
    /// items are dropped in small portions, so that others are not held up; until then such an item may
    /// still be fetched. What the deleted counted stays in its parent, whose totals are then the sum
    /// of its children's and of what the deleted left. It is over when the groups are released: when
    /// nothing refers to them, no request, no answer on its way, no handle.
    ///
    /// A future that is dropped before leaves the tenant deleted, and what is left of its items to
    /// expire or be evicted.
    ///
    /// # Errors
    /// A path that is none, the root, no such tenant; or somebody holds one of the groups for longer
    /// than `patience`, which the error names. The tenant is gone in that case too.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter_cache::{Cache, Config};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let mut config = Config::default();
    /// config.tenant_limits.push(("/acme/web".to_owned(), 1 << 20));
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
        // Refused only if another deletion was faster: the root has no name to be found by.
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
            // What was replaced or looked up without a lock is freed when its epoch is over.
            pin().flush();
            killed.retain(|group| !is_released(group));
            done.took = started.elapsed();
            let Some(next) = killed.first() else { return Ok(done) };
            let Some(left) = patience.checked_sub(done.took) else {
                let held = killed.iter().map(Killed::holders).collect();
                return Err(DeleteError::StillHeld { done, held });
            };
            // Either way it is time to look again.
            let _ = timeout(look.min(left), next.released()).await;
            look = (look * 2).min(LOOK_MAX);
        }
    }
}

/// Asks in the way that lends a hand where the release is all but done.
fn is_released(group: &Killed) -> bool {
    group.is_released() || group.wait_released(Instant::now()).is_ok()
}

/// Drops the items of detached tenants.
struct Purge<'c> {
    cache: &'c Cache,
    /// Weak, for what is deleted must not be held by its deletion. Those that are gone have no items.
    tenants: Vec<Weak<Tenant>>,
    /// Where they were.
    home: Weak<Tenant>,
}

impl<'c> Purge<'c> {
    fn new(cache: &'c Cache, tenants: Vec<Arc<Tenant>>) -> Purge<'c> {
        let home = tenants.first().and_then(|top| top.parent.as_ref());
        let home = home.map_or_else(Weak::new, Arc::downgrade);
        Purge { cache, tenants: tenants.iter().map(Arc::downgrade).collect(), home }
    }

    /// Drops what there is. A request that was running may store more, which the next round drops.
    async fn round(&mut self, done: &mut Deletion) {
        self.tenants.retain(|tenant| tenant.strong_count() > 0);
        for tenant in &self.tenants {
            // Let go at each turn: this task may be kept waiting there.
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
        self.cache.tenants().adopt(&self.home, self.tenants.iter().filter_map(Weak::upgrade));
    }
}

impl fmt::Display for DeleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeleteError::Path(path) if path == "/" => {
                f.write_str("\"/\" is the whole server: name a tenant, such as \"/acme/web\"")
            }
            DeleteError::Path(path) => {
                write!(f, "{path:?} is not a path: write it like \"/acme/web\"")
            }
            DeleteError::NotFound(path) => write!(f, "there is no tenant {path:?}"),
            DeleteError::StillHeld { done, held } => {
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

/// How many groups that are held an error's text names.
const HELD_SHOWN: usize = 3;

impl std::error::Error for DeleteError {}
