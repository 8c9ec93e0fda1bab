//! The places in the table of tenants, and how many of them each user may take.
//!
//! There are `tenants_max` places. A tenant that is *named*, because it has limits or users, and
//! each of its ancestors, has a place of its own, whether it lives or not: a limited group exists
//! before its first request, and still has its place when it was deleted and the table is full.
//!
//! The place of any other tenant counts towards its *owner*: the nearest named ancestor, or else
//! the ancestor directly below the root. Some places are reserved for each named tenant, up to a
//! sixteenth of the table, and for all of them together no more than half of what they leave. Of
//! the rest an owner may have as many places as it leaves to others: one that takes everything it
//! can get has half, and the next one half of the rest. A fixed part for each was rejected, because
//! the number of owners is not known beforehand.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The number of possible and existing tenants: see [`Cache::places`](crate::Cache::places).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantPlaces {
    /// The value of [`Config::tenants_max`](crate::Config::tenants_max).
    pub max: usize,
    /// Number of these that are taken: by tenants that exist, and by those with limits or users,
    /// which may not exist.
    pub taken: usize,
    /// How often a request was for a tenant that did not exist and got no place.
    pub refused: u64,
    /// The holder of the most places, and how many it has. A tenant with neither limits nor users
    /// counts towards its nearest ancestor that has them, or towards the first name of its path.
    pub largest: Option<(String, usize)>,
}

/// The place that a tenant has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A place of its own, as a named tenant.
    Kept,
    /// A place that counts towards this owner.
    Of(Arc<str>),
    /// It needs none, or no longer has one.
    None,
}

pub(super) struct Places {
    max: usize,
    ledger: Mutex<Ledger>,
    refused: AtomicU64,
}

#[derive(Default)]
struct Ledger {
    named: HashSet<Box<str>>,
    /// Number of places that count towards an owner, where there are any.
    held: HashMap<Arc<str>, usize>,
    /// The sum of these places.
    taken: usize,
    /// How many of these places are reserved for named tenants.
    of_kept: usize,
    /// Number of places reserved for each named tenant.
    floor: usize,
}

/// Maximum fraction of the table that is reserved for what is below one named tenant: with few
/// named tenants the rest is of more use to others.
const KEPT_PART: usize = 16;

impl Places {
    pub(super) fn new(max: usize) -> Places {
        Places { max, ledger: Mutex::default(), refused: AtomicU64::new(0) }
    }

    /// Returns these tenants and all their ancestors; the error is their number, if that is too
    /// large.
    pub(super) fn named<'p>(
        &self,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<HashSet<Box<str>>, usize> {
        let named: HashSet<Box<str>> = paths.flat_map(up).map(Box::from).collect();
        if named.len() > self.max { Err(named.len()) } else { Ok(named) }
    }

    /// Names these tenants and all their ancestors, in place of the earlier ones. Returns which are
    /// newly named, and which no longer are; the error is their number, if that is too large.
    pub(super) fn name<'p>(
        &self,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<[Vec<Box<str>>; 2], usize> {
        let named = self.named(paths)?;
        let mut ledger = self.ledger.lock();
        let before = std::mem::replace(&mut ledger.named, named);
        let count = ledger.named.len();
        let even = ((self.max - count) / 2).checked_div(count).unwrap_or(0);
        ledger.floor = even.min(self.max.div_ceil(KEPT_PART));
        ledger.of_kept = ledger.named.iter().map(|path| ledger.of_kept(path)).sum();
        let new = ledger.named.difference(&before).cloned().collect();
        Ok([new, before.difference(&ledger.named).cloned().collect()])
    }

    pub(super) fn is_named(&self, path: &str) -> bool {
        self.ledger.lock().named.contains(path)
    }

    /// Takes a place for a tenant of this path, if there is one for it.
    pub(super) fn take(&self, path: &str) -> Option<Place> {
        self.ledger.lock().take(path, self.max, false)
    }

    /// Takes a place for a tenant that exists.
    pub(super) fn take_anyway(&self, path: &str) -> Place {
        self.ledger.lock().take(path, self.max, true).expect("granted even without a free place")
    }

    /// Returns whose places may be freed for a tenant of this path that found none. While the
    /// table has free places, these are not its owner's to take, so the answer is its owner.
    /// Otherwise it is anyone's (`None`).
    pub(super) fn to_ask(&self, path: &str) -> Option<Box<str>> {
        let ledger = self.ledger.lock();
        let is_full = ledger.named.len() + ledger.taken >= self.max;
        (!is_full).then(|| ledger.owner(path).into())
    }

    pub(super) fn give(&self, place: Place) {
        if let Place::Of(owner) = place {
            self.ledger.lock().give(&owner);
        }
    }

    /// Counts a request that found no place for its tenant.
    pub(super) fn refuse(&self) {
        // Relaxed: a statistic.
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many are taken by tenants that are not named.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.ledger.lock().taken
    }

    pub(super) fn look(&self) -> TenantPlaces {
        let ledger = self.ledger.lock();
        let largest = ledger.held.iter().max_by_key(|(_, held)| **held);
        TenantPlaces {
            max: self.max,
            taken: ledger.named.len() + ledger.taken,
            // Relaxed: a statistic.
            refused: self.refused.load(Ordering::Relaxed),
            largest: largest.map(|(owner, held)| (owner.to_string(), *held)),
        }
    }
}

impl Ledger {
    fn take(&mut self, path: &str, max: usize, anyway: bool) -> Option<Place> {
        if self.named.contains(path) {
            return Some(Place::Kept);
        }
        let owner = self.owner(path);
        let held = self.held.get(owner).copied().unwrap_or(0);
        let is_kept = self.named.contains(owner) && held < self.floor;
        let free = max.saturating_sub(self.named.len() + self.taken);
        let in_common = free.saturating_sub(self.named.len() * self.floor - self.of_kept);
        let of_common = held - self.of_kept(owner);
        let has_one = if is_kept { free > 0 } else { of_common < in_common };
        if !has_one && !anyway {
            return None;
        }
        self.taken += 1;
        self.of_kept += usize::from(is_kept);
        let owner = match self.held.get_key_value(owner) {
            Some((owner, _)) => Arc::clone(owner),
            None => Arc::from(owner),
        };
        *self.held.entry(Arc::clone(&owner)).or_default() += 1;
        Some(Place::Of(owner))
    }

    fn owner<'p>(&self, path: &'p str) -> &'p str {
        up(path).find(|above| self.named.contains(*above)).unwrap_or_else(|| top(path))
    }

    fn give(&mut self, owner: &Arc<str>) {
        let of_kept = self.of_kept(owner);
        let Some(held) = self.held.get_mut(owner) else { return };
        *held -= 1;
        if *held == 0 {
            self.held.remove(owner);
        }
        self.taken -= 1;
        self.of_kept -= of_kept - self.of_kept(owner);
    }

    /// Returns how many of an owner's places are reserved ones.
    fn of_kept(&self, owner: &str) -> usize {
        let held = self.held.get(owner).copied().unwrap_or(0);
        if self.named.contains(owner) { held.min(self.floor) } else { 0 }
    }
}

/// Returns a path and its ancestors, without the root.
fn up(path: &str) -> impl Iterator<Item = &str> {
    let all = std::iter::successors(Some(path), |path| Some(path.rsplit_once('/')?.0));
    all.take_while(|path| path.len() > 1)
}

/// Returns the path of the first name.
fn top(path: &str) -> &str {
    let end = path.bytes().skip(1).position(|byte| byte == b'/');
    end.map_or(path, |end| &path[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many as there are for tenants below `path`.
    fn fill(places: &Places, path: &str) -> usize {
        (0..10_000).take_while(|n| places.take(&format!("{path}/{n}")).is_some()).count()
    }

    /// The greediest leaves half, and the next one half of that.
    #[test]
    fn the_greediest_leaves_half() {
        let places = Places::new(1000);
        let got = ["/a", "/b", "/c/d/e", "/f"].map(|path| fill(&places, path));
        assert_eq!(got, [500, 250, 125, 63]);
        assert_eq!(fill(&places, "/a/b/c"), 0, "all below /a are its");
        let found = places.look();
        assert_eq!((found.taken, found.largest), (938, Some(("/a".to_owned(), 500))));
    }

    #[test]
    fn what_is_kept_for_the_named_nobody_else_gets() {
        let places = Places::new(1000);
        places.name(["/a", "/b/web"].into_iter()).expect("few");
        // Three have a place: /b too.
        assert_eq!(fill(&places, ""), 1000 - 3 - 3 * 63, "names below the root");
        assert_eq!(["/a/x", "/b/web/y", "/b"].map(|path| fill(&places, path)), [63; 3]);
        assert_eq!(
            ["/a", "/b/web", "/b"].map(|path| places.take(path)),
            [const { Some(Place::Kept) }; 3]
        );
        assert_eq!(places.take("/c"), None);
    }

    /// Places that are given back are used by others, and none is lost.
    #[test]
    fn returned_places_are_reused() {
        let places = Places::new(100);
        let mut taken: Vec<Place> = Vec::new();
        let mut rng = fastrand::Rng::with_seed(1);
        let paths = ["/a/x", "/a/b/x", "/b/x", "/c/x", "/d"];
        for step in 0..20_000 {
            match rng.u8(..8) {
                0..4 => taken.extend(places.take(paths[rng.usize(..5)])),
                4..7 if !taken.is_empty() => {
                    places.give(taken.swap_remove(rng.usize(..taken.len())))
                }
                _ if step % 50 == 0 => {
                    let named = paths.iter().filter(|_| rng.bool()).copied();
                    places.name(named.chain(["/a/b"])).expect("few");
                }
                _ => {}
            }
            let ledger = places.ledger.lock();
            let counted = taken.iter().filter(|place| matches!(place, Place::Of(_))).count();
            assert_eq!((ledger.taken, ledger.held.values().sum()), (counted, counted));
            let of_kept = ledger.named.iter().map(|path| ledger.of_kept(path)).sum::<usize>();
            assert_eq!(ledger.of_kept, of_kept);
        }
        taken.into_iter().for_each(|place| places.give(place));
        assert_eq!((places.taken(), places.ledger.lock().held.len()), (0, 0));
    }

    /// More named tenants than places are refused, and nothing changes.
    #[test]
    fn more_named_than_places_change_nothing() {
        let places = Places::new(2);
        places.name(["/a"].into_iter()).expect("one");
        assert_eq!(places.name(["/b/c/d"].into_iter()), Err(3));
        assert_eq!(places.take("/a"), Some(Place::Kept));
    }
}
