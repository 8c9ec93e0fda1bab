//! The places for open connections: how many there are, and which clients may have them.
//!
//! A client is a *stranger* until it has agreed on keys and logged in, where required. Strangers
//! may have every free place, but if none is free a newcomer takes the place of the stranger that
//! has waited for the longest time. A client that can log in does so at once, and the others keep
//! no place. Reserving a part of the places for strangers would not help: that part would be theirs
//! for the taking as well.
//!
//! Among several users, one may have as many places as are in no user's hands, times [`PART`]. The
//! first user leaves some places free, and the next one leaves some of these. A fixed part for each
//! would leave most places empty while few of many users come, and a single user could not use the
//! whole server.
//!
//! Without users, a place is open to anyone who reaches the server, as is everything else. A part
//! for each address would be one part for all clients behind a proxy, and no bound on a client that
//! has a network of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use submeter::Charge;

use super::buffer_room::{PART, Share};
use super::{ConnectionState, Connections, Phase};
use crate::protocol::Access;
use crate::users::{self, ByName};

/// A place among the open connections. It is held while the connection is open, however its task
/// ends.
pub(crate) struct Place {
    pub(super) connections: Arc<Connections>,
    number: u64,
    pub(crate) seat: Arc<ConnectionState>,
}

/// The holders of the places.
#[derive(Default)]
pub(super) struct Places {
    pub(super) taken: HashMap<u64, Taken>,
    /// Number of connections since the start.
    pub(super) total: u64,
    /// The strangers by number, and so in order of arrival, with the time of their arrival.
    strangers: BTreeMap<u64, u64>,
    pub(super) ended_strangers: u64,
    /// Number of connections of each user with their share of the buffers, and of all users
    /// together.
    of_users: HashMap<Arc<str>, (usize, Arc<Share>)>,
    known: usize,
}

/// A taken place.
pub(super) struct Taken {
    pub(super) seat: Arc<ConnectionState>,
    /// The user and its rights at the time of the login.
    user: Option<(Arc<str>, Access)>,
    charge: Charge,
}

/// Why a client that has logged in cannot stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwelcome {
    /// Its user has as many connections as the others leave it.
    TooMany,
    /// Its place belongs to another connection already.
    Gone,
}

/// How many connections there may be, and how many are open: see
/// [`Cache::connection_places`](crate::Cache::connection_places).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionPlaces {
    /// The value of [`Config::connections_max`](crate::Config::connections_max).
    pub max: usize,
    /// Number of open connections.
    pub taken: usize,
    /// How often a client was turned away because all places were taken, or because its user had as
    /// many as the others leave it.
    pub refused: u64,
}

impl Connections {
    /// Takes a place, unless all are taken; as a stranger if the client has to identify itself.
    pub(crate) fn take_place(self: &Arc<Self>, now_ms: u64, is_stranger: bool) -> Option<Place> {
        let seat = Arc::new(ConnectionState::default());
        seat.enter(Phase::Idle, now_ms);
        let mut places = self.places.lock();
        let is_full = places.taken.len() >= self.most;
        let displaced = if is_full { places.displace() } else { None };
        let charge = displaced.or_else(|| self.root.try_charge(self.quota, 1).ok());
        let Some(charge) = charge else {
            drop(places);
            // Relaxed: a statistic.
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        places.total += 1;
        let number = places.total;
        if is_stranger {
            places.strangers.insert(number, now_ms);
        }
        places.taken.insert(number, Taken { seat: Arc::clone(&seat), user: None, charge });
        drop(places);
        Some(Place { connections: Arc::clone(self), number, seat })
    }

    /// Ends the connections that have been strangers for too long.
    pub(super) fn end_strangers(&self, now_ms: u64) {
        let places = &mut *self.places.lock();
        while let Some(first) = places.strangers.first_entry()
            && now_ms.saturating_sub(*first.get()) >= self.login_timeout_ms
        {
            let (number, _) = first.remove_entry();
            if let Some(taken) = places.taken.get(&number) {
                taken.seat.end();
                places.ended_strangers += 1;
            }
        }
    }

    /// Ends the connections of users that are not among `now`, or that have another tenant there.
    /// Compares with each user's state at its login: a program that replaces users twice shows the
    /// first version to no one.
    pub(crate) fn end_users(&self, now: &ByName) {
        let places = self.places.lock();
        for taken in places.taken.values() {
            if let Some((name, access)) = &taken.user
                && users::access(now, name) != Some(access)
            {
                taken.seat.end();
            }
        }
    }

    /// Returns how many places there are, and how many are taken.
    pub(crate) fn look(&self) -> ConnectionPlaces {
        let taken = self.places.lock().taken.len();
        // Relaxed: a statistic.
        let refused = self.counts.refused.load(Ordering::Relaxed);
        ConnectionPlaces { max: self.most, taken, refused }
    }

    /// Returns the holder of the most places, and how many it has.
    pub(crate) fn largest_holder(&self) -> Option<(String, usize)> {
        let largest = self.places.lock().largest_holder(|_| 1)?;
        Some((largest.0, usize::try_from(largest.1).unwrap_or(usize::MAX)))
    }

    /// Returns who holds most of the buffers, and how many bytes.
    pub(crate) fn largest_buffer_holder(&self) -> Option<(String, u64)> {
        self.places.lock().largest_holder(ConnectionState::held)
    }
}

impl Places {
    pub(super) fn strangers(&self) -> usize {
        self.strangers.len()
    }

    /// Ends the connection of the earliest stranger, and returns its place.
    fn displace(&mut self) -> Option<Charge> {
        // A connection whose task is not known yet could not be ended.
        let can_end = |number: &&u64| self.taken.get(number).is_some_and(|t| t.seat.can_end());
        let number = *self.strangers.keys().find(can_end)?;
        self.strangers.remove(&number);
        let taken = self.taken.remove(&number)?;
        taken.seat.end();
        self.ended_strangers += 1;
        Some(taken.charge)
    }

    /// Returns whose connections have most together, if any has something.
    fn largest_holder(&self, has: impl Fn(&ConnectionState) -> u64) -> Option<(String, u64)> {
        let mut holders: HashMap<String, u64> = HashMap::new();
        for (number, Taken { seat, user, .. }) in &self.taken {
            let holder = match user {
                Some((user, _)) => format!("user {user:?}"),
                None if self.strangers.contains_key(number) => {
                    "clients that have not logged in".to_owned()
                }
                None => seat.host(),
            };
            *holders.entry(holder).or_default() += has(seat);
        }
        let holders = holders.into_iter().filter(|(_, n)| *n > 0);
        holders.min_by_key(|(name, n)| (Reverse(*n), name.clone()))
    }
}

impl Place {
    /// Admits a client that need not log in.
    pub(crate) fn admit(&self) {
        self.connections.places.lock().strangers.remove(&self.number);
    }

    /// Records whose connection it is. If others may log in as well, no user gets all places.
    pub(crate) fn log_in(
        &self,
        user: &Arc<str>,
        access: Access,
        is_shared: bool,
    ) -> Result<(), Unwelcome> {
        let connections = &self.connections;
        let places = &mut *connections.places.lock();
        let Some(taken) = places.taken.get_mut(&self.number) else { return Err(Unwelcome::Gone) };
        let has = places.of_users.get(user).map_or(0, |(has, _)| *has);
        let left = connections.most.saturating_sub(places.known + 1);
        if is_shared && has > 0 && has + 1 > left.saturating_mul(PART) {
            // Relaxed: a statistic.
            connections.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Unwelcome::TooMany);
        }
        places.strangers.remove(&self.number);
        taken.user = Some((Arc::clone(user), access));
        let (has, share) = places.of_users.entry(Arc::clone(user)).or_default();
        *has += 1;
        if is_shared {
            // A client logs in once.
            let _ = taken.seat.share.set(Arc::clone(share));
        }
        places.known += 1;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let places = &mut *self.connections.places.lock();
        places.strangers.remove(&self.number);
        let Some(Taken { user: Some((user, _)), .. }) = places.taken.remove(&self.number) else {
            return;
        };
        places.known -= 1;
        if let Some((has, _)) = places.of_users.get_mut(&user) {
            *has -= 1;
            if *has == 0 {
                places.of_users.remove(&user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cache, Config, Users};

    use super::*;

    fn connections(most: usize) -> Arc<Connections> {
        let config = Config { connections_max: most, ..Config::default() };
        let cache = Cache::new(config).expect("sound");
        Arc::clone(cache.connections())
    }

    /// Logs in as often as allowed.
    fn fill(connections: &Arc<Connections>, user: &Arc<str>) -> Vec<Place> {
        std::iter::from_fn(|| {
            let place = connections.take_place(0, true)?;
            place.log_in(user, Access::Everything, true).ok().map(|()| place)
        })
        .collect()
    }

    #[test]
    fn no_user_has_all_places_and_each_has_one() {
        for most in [2, 3, 8, 1024] {
            let connections = connections(most);
            let mut held = Vec::new();
            for n in 0..2 {
                let had = fill(&connections, &format!("user{n}").into());
                assert!(!had.is_empty() && had.len() < most, "{n} of {most}: {}", had.len());
                if (most, n) == (1024, 0) {
                    assert_eq!(had.len(), 896, "seven eighths");
                }
                held.extend(had);
            }
            drop(held);
            let places = connections.places.lock();
            assert_eq!((places.known, places.taken.len(), places.strangers()), (0, 0, 0));
            assert!(places.of_users.is_empty());
        }
    }

    #[test]
    fn one_user_alone_has_all_places() {
        let connections = connections(8);
        let user: Arc<str> = "acme".into();
        let held: Vec<Place> = (0..8).filter_map(|_| connections.take_place(0, true)).collect();
        assert!(held.iter().all(|place| place.log_in(&user, Access::Everything, false).is_ok()));
        assert!(connections.take_place(0, true).is_none());
    }

    /// The next replacement ends a user of a version that was never seen.
    #[test]
    fn a_version_nobody_saw_is_ended_by_the_next() {
        let connections = connections(8);
        let users = |text: &str| Users::parse(text, &Config::default()).expect("sound");
        let first = users("acme:password\nbob:password\nmoves:password\n");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut logged_in = ["acme", "bob", "moves"].map(|name| {
            let place = connections.take_place(0, true).expect("free");
            let task = runtime.spawn(std::future::pending::<()>());
            place.seat.set_task(task.abort_handle());
            let (_, entered) =
                first.enter(format!("{name} password").as_bytes(), &place).expect(name);
            entered.expect("it is welcome");
            (place, task)
        });
        let now = users("acme:other\nmoves:password /elsewhere\n").subscribe();
        connections.end_users(&now.borrow());
        runtime.block_on(async {
            tokio::task::yield_now().await;
            let ended = logged_in.each_mut().map(|(_, task)| task.is_finished());
            assert_eq!(ended, [false, true, true]);
        });
    }

    #[test]
    fn the_holder_of_most_is_named() {
        let connections = connections(16);
        assert_eq!(connections.largest_holder(), None);
        let mut held = fill(&connections, &"acme".into());
        let look = |taken, refused| ConnectionPlaces { max: 16, taken, refused };
        assert_eq!(connections.look(), look(14, 1));
        assert_eq!(connections.largest_holder(), Some(("user \"acme\"".to_owned(), 14)));
        held.truncate(1);
        held.extend((0..2).filter_map(|_| connections.take_place(0, true)));
        assert_eq!(connections.look(), look(3, 1));
        let strangers = "clients that have not logged in".to_owned();
        assert_eq!(connections.largest_holder(), Some((strangers, 2)));
        assert_eq!(connections.largest_buffer_holder(), None);
        let of_bob = fill(&connections, &"bob".into());
        held[0].seat.set_held(5_000);
        of_bob.iter().take(2).for_each(|place| place.seat.set_held(3_000));
        assert_eq!(connections.largest_buffer_holder(), Some(("user \"bob\"".to_owned(), 6_000)));
    }
}
