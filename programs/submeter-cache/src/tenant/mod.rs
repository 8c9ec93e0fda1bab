//! The tenants, and which of them a key belongs to: the names before its last delimiter, from the
//! root down.
//!
//! The tree consists of the groups. A tenant is what the cache keeps for a group; the group's
//! [data](Group::data) leads to it, so that a group's children lead to their tenants. Groups do not
//! say which killed ones still hold items: see [`Dying`].
//!
//! *Finding* goes through the [`Index`]: from the bytes before the last delimiter straight to the
//! tenant, under an epoch guard and without a lock. *Creating* walks the names from the root, and
//! adds what is missing to the index, with a part of the index locked. *Deleting* kills first, then
//! removes tenants from the index; finding ends with [a check](Group::is_killed), so that a killed
//! tenant that is still listed is not returned after the kill.

mod detach;
mod dying;
mod index;
mod limits;
mod places;
mod reclaim;
mod resolver;
pub(crate) mod strays;

use std::collections::HashMap;
use std::fmt;
#[cfg(test)]
use std::sync::atomic::Ordering;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use submeter::refs::Guard;
use submeter::{Error, Group, RateState, Tree};

use crate::clock::Clock;
use crate::config::{Config, TENANTS_MAX_DEFAULT};
use crate::item::{self, Ring};
use crate::limits::TenantLimits;
use crate::metrics::Metrics;

use dying::Dying;
use index::Index;
pub use places::TenantPlaces;
use places::{Place, Places};
use reclaim::Reclaiming;
use resolver::Found;
pub(crate) use resolver::{Account, Resolver};
use strays::{GROUPS_OF_TENANT, other};

/// A group with its items.
pub(crate) struct Tenant {
    pub(crate) group: Group,
    pub(crate) parent: Option<Arc<Tenant>>,
    /// Since when it may have been without requests, on the store's scale.
    used_ms: AtomicU64,
    place: Mutex<Place>,
    /// The items that this tenant itself holds.
    pub(crate) ring: Mutex<Ring<Tenant>>,
    /// The places where eviction last found items below this tenant: one for searches that spare
    /// `low`, one for those that spare only `min`.
    pub(crate) hints: [Mutex<Hint>; 2],
}

/// An item of a tenant. The generic items and rings know nothing of tenants, which need them.
pub(crate) type Item = item::Item<Tenant>;

/// A remembered search for holders below a tenant, so that not every eviction visits all its
/// children.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    /// The address of the tenant where the search started: below a different one, different amounts
    /// are protected.
    pub(crate) top: usize,
    /// The largest holder, and how much of what it holds is protected.
    pub(crate) holder: Weak<Tenant>,
    pub(crate) holder_spared: u64,
    /// Number of holders with more than their protected amount.
    pub(crate) holders: u64,
    /// The protected part of what all of them hold.
    pub(crate) spared: u64,
    /// For how many more evictions this is used.
    pub(crate) left: usize,
}

impl Tenant {
    /// Finds the tenant of a group, or makes it.
    fn get_or_create(
        group: &Group,
        parent: Option<&Arc<Tenant>>,
        now_ms: u64,
    ) -> Result<Arc<Tenant>, Error> {
        group.data_or_init(|| Tenant {
            group: group.clone(),
            parent: parent.cloned(),
            used_ms: AtomicU64::new(now_ms),
            place: Mutex::new(Place::None),
            ring: Mutex::default(),
            hints: Default::default(),
        })
    }

    /// Finds the tenant of a group, if there is one.
    pub(crate) fn of(group: &Group) -> Option<Arc<Tenant>> {
        group.data()
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({})", self.group.path())
    }
}

/// All tenants. Lock order: `users` before `reclaiming`, `reclaiming` before a part of the index,
/// and that before all others.
pub(crate) struct Tenants {
    tree: Tree,
    root: Arc<Tenant>,
    index: Index,
    delimiter: u8,
    other: String,
    depth_max: usize,
    tenants_max: usize,
    places: Places,
    dying: Dying,
    /// The part of the index that is checked next for killed tenants.
    swept: AtomicUsize,
    reclaiming: Mutex<Reclaiming>,
    clock: Clock,
    /// The time of the last [`tick`](Tenants::tick).
    now_ms: AtomicU64,
    /// The limits, by path: a tenant that is created again gets them again.
    limits: RwLock<HashMap<String, TenantLimits>>,
    /// The used part of each named tenant's rates, by path: a tenant that is created again gets no
    /// fresh burst.
    rate_states: Mutex<HashMap<Box<str>, RateState>>,
    /// The tenants of users, which are named in addition to those with limits.
    users: Mutex<Vec<String>>,
    kept: Vec<String>,
    /// Whether any limit is a rate, so that requests need not look for one.
    has_rates: AtomicBool,
    /// Whether the program may set other rates.
    rates: bool,
    metrics: Metrics,
}

/// A reference to a tenant that no list keeps alive for the duration of a request.
struct Lease {
    tenant: Arc<Tenant>,
    /// The group that a deletion waits for. The tenant has a handle too, but loses it when it is
    /// deleted; this one was cloned while the group was alive, in one step with the check.
    _hold: Group,
}

/// The reason why there is no child.
enum Refused {
    /// It cannot exist: its parent's stray child stands in, as in the next case.
    Overflow,
    /// It may not exist, because there is no place for it.
    NoPlace,
    /// Its parent was killed: the walk must restart at the root.
    Dead,
}

fn path_of(parent: &Tenant, name: &str) -> String {
    format!("{}/{name}", parent.group.path().trim_end_matches('/'))
}

/// How often a walk restarts when groups are killed under it, before the root is charged.
const WALKS_MAX: usize = 8;

impl Tenants {
    /// Makes the tenants of a new tree, without limits.
    pub(crate) fn new(config: &Config, tree: &Tree, metrics: &Metrics) -> Tenants {
        let clock = Clock::new();
        let now_ms = clock.now().ms;
        let root = Tenant::get_or_create(tree.root(), None, now_ms);
        Tenants {
            tree: tree.clone(),
            root: root.expect("a new group has no tenant yet"),
            index: Index::new(config.tenants_max),
            delimiter: config.delimiter,
            other: other(config.delimiter),
            depth_max: config.depth_max,
            tenants_max: config.tenants_max,
            places: Places::new(config.tenants_max),
            dying: Dying::default(),
            swept: AtomicUsize::new(0),
            reclaiming: Mutex::default(),
            clock,
            now_ms: AtomicU64::new(now_ms),
            limits: RwLock::default(),
            rate_states: Mutex::default(),
            users: Mutex::default(),
            kept: config.tenants_kept.clone(),
            has_rates: AtomicBool::new(false),
            rates: config.rates,
            metrics: metrics.clone(),
        }
    }

    /// Returns how many groups a tree needs. There may be twice `tenants_max` tenants while limits
    /// are replaced by those of other tenants, and the root and each of them may have a stray
    /// child; as many again may be dying while tenants of the same names exist. The number is not
    /// smaller where tenants are few: a checkpoint from a time when there were more is restored
    /// before its groups are killed.
    pub(crate) fn groups_max(tenants_max: usize) -> usize {
        GROUPS_OF_TENANT * (tenants_max.max(TENANTS_MAX_DEFAULT) + 1)
    }

    /// Finds the tenant of a prefix with this hash, and creates what is missing.
    fn find<'g>(&'g self, hash: u64, prefix: &[u8], guard: &'g Guard) -> Found<'g> {
        for _ in 0..WALKS_MAX {
            if let Some(tenant) = self.index.find(hash, prefix, guard) {
                self.note_use(tenant);
                return Found::Listed(tenant);
            }
            // Not listed under this prefix: clients can invent more such prefixes than there may be
            // tenants.
            let Some(tenant) = self.walk(prefix, guard) else { continue };
            self.note_use(&tenant);
            if let Some(hold) = tenant.group.try_clone_live() {
                return Found::Instead(Lease { tenant, _hold: hold });
            }
        }
        // It lives as long as its tree.
        Found::Listed(&self.root)
    }

    /// Returns the part of `key` that decides its tenant; `None` for the root's own keys. It
    /// consists of the names of a tenant within `depth_max`, or of those down to `depth_max` with
    /// the delimiter that follows.
    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let mut end = None;
        let delimiters = memchr::memchr_iter(self.delimiter, key);
        for (index, at) in delimiters.take(self.depth_max + 1).enumerate() {
            if index == self.depth_max {
                return end.map(|end: usize| &key[..=end]);
            }
            end = Some(at);
        }
        end.map(|end| &key[..end])
    }

    /// Walks from the root to the tenant of a prefix, and creates what is missing. Returns the
    /// tenant that stands in for it; `None` if the index has it now.
    fn walk(&self, prefix: &[u8], guard: &Guard) -> Option<Arc<Tenant>> {
        'walk: for _ in 0..WALKS_MAX {
            let mut tenant = Arc::clone(&self.root);
            let (mut start, ends) = (0, memchr::memchr_iter(self.delimiter, prefix));
            for (depth, end) in ends.chain([prefix.len()]).enumerate() {
                let name = std::str::from_utf8(&prefix[start..end]).ok();
                let refused = match name.filter(|_| depth < self.depth_max) {
                    None => Refused::Overflow,
                    Some(name) => match self.child(&tenant, &prefix[..end], name, guard) {
                        Ok(child) => {
                            (tenant, start) = (child, end + 1);
                            continue;
                        }
                        Err(refused) => refused,
                    },
                };
                if !matches!(refused, Refused::Dead) {
                    let other = self.prefix_of(&tenant, &self.other);
                    match self.child(&tenant, &other, &self.other, guard) {
                        Ok(other) => return Some(other),
                        Err(Refused::Dead) => {}
                        // The tree is full: the parent itself is charged.
                        Err(_) => return Some(tenant),
                    }
                }
                continue 'walk;
            }
            return None;
        }
        Some(Arc::clone(&self.root))
    }

    /// Finds the child for a prefix that ends in `name`, or creates it.
    fn child(
        &self,
        parent: &Arc<Tenant>,
        prefix: &[u8],
        name: &str,
        guard: &Guard,
    ) -> Result<Arc<Tenant>, Refused> {
        let hash = self.index.hash(prefix);
        if let Some(child) = self.index.find(hash, prefix, guard) {
            return Ok(Arc::clone(child));
        }
        let make = || {
            self.index.find_or_insert(hash, prefix, |killed| {
                if let Some(killed) = killed {
                    self.give_place(killed);
                }
                let child = self.create(parent, name)?;
                killed.into_iter().for_each(|killed| self.dying.add(killed));
                Ok(child)
            })
        };
        let made = match make() {
            // Outside of the lock on a part of the index, because it visits all of them.
            Err(Refused::NoPlace) if self.reclaim(&path_of(parent, name)) => make(),
            made => made,
        };
        if matches!(made, Err(Refused::NoPlace)) {
            self.places.refuse();
        }
        made
    }

    fn create(&self, parent: &Arc<Tenant>, name: &str) -> Result<Arc<Tenant>, Refused> {
        let path = path_of(parent, name);
        let place = match name == self.other {
            true => Place::None,
            false => self.places.take(&path).ok_or(Refused::NoPlace)?,
        };
        let made = self.create_at(parent, name, &path);
        match &made {
            Ok(tenant) => *tenant.place.lock() = place,
            Err(_) => self.places.give(place),
        }
        made
    }

    fn create_at(
        &self,
        parent: &Arc<Tenant>,
        name: &str,
        path: &str,
    ) -> Result<Arc<Tenant>, Refused> {
        let is_named = self.places.is_named(path);
        // Unnamed tenants may fill this part with dying groups; the rest is for named tenants.
        let of_all = Self::groups_max(self.tenants_max) / GROUPS_OF_TENANT * (GROUPS_OF_TENANT - 1);
        if !is_named && self.tree.group_count() >= of_all {
            self.tree.flush();
            if self.tree.group_count() >= of_all {
                return Err(Refused::Overflow);
            }
        }
        // A program may keep data of its own in a group, which is no tenant then.
        let refused =
            |error: Error| if error.is_killed() { Refused::Dead } else { Refused::Overflow };
        let group = parent.group.get_or_create_child(name).map_err(refused)?;
        if is_named {
            self.keep_rates(&group);
        }
        self.limit(&group);
        Tenant::get_or_create(&group, Some(parent), self.clock.now().ms).map_err(refused)
    }

    /// Returns the prefix of the keys of a tenant's child.
    fn prefix_of(&self, parent: &Tenant, name: &str) -> Vec<u8> {
        self.key_prefix(&path_of(parent, name))
    }

    /// Gives back the place of a killed tenant. To be called with its part of the index locked.
    /// Returns whether it had one.
    fn give_place(&self, killed: &Tenant) -> bool {
        let place = std::mem::replace(&mut *killed.place.lock(), Place::None);
        let had = place != Place::None;
        self.places.give(place);
        had
    }

    /// Returns how many places there are and which tenants have them.
    pub(crate) fn places(&self) -> TenantPlaces {
        self.places.look()
    }
}

impl Drop for Tenants {
    fn drop(&mut self) {
        // Tenants own their items, whose ring owns the tenant: the cycles would leak.
        let listed = self.index.clear().into_iter().chain([Arc::clone(&self.root)]);
        for tenant in listed.chain(self.dying.take(|_| true)) {
            tenant.ring.lock().clear();
        }
    }
}

#[cfg(test)]
mod place_tests;
#[cfg(test)]
mod tests;
