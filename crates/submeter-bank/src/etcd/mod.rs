//! A bank for the processes of many hosts, kept by etcd.

mod client;
mod error;
#[cfg(feature = "tls")]
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use submeter_address::{Address, AddressError};

use self::client::{Client, Seen, encode, range_of};
use self::error::Cause;
pub use self::error::EtcdError;
use crate::budget::check_name;
use crate::ledger::record::Record;
use crate::{Answer, Bank, Budget, Ledger, Lent, Limit, Operate, RefusedError, Request};

/// How long an exchange may take: less than members wait before they ask again.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often an exchange is tried while others write: each time one of them has succeeded.
const TRIES: u32 = 64;

/// Maximum length of a record: etcd refuses a request beyond 1.5 MiB, and JSON makes text a third
/// longer.
const RECORD_MAX: usize = 1 << 20;

/// A bank kept for a fleet by etcd 3.4 or later, for limits that no fail-over may exceed.
///
/// The ledger is one value, which each exchange reads and replaces by compare-and-swap, so that the
/// cluster agrees on each lease before it is answered. An exchange costs two writes that a majority
/// has on disk; one of them runs beside a read, on a thread. The size of what it writes grows with
/// the leases of the whole fleet, at about fifty bytes each. It is for tens of members with tens of
/// limits, not for thousands: Redis is faster, and several fleets on one etcd do not wait for each
/// other. An exchange takes at most two seconds, and blocks.
///
/// It talks to etcd in JSON, by the gateway that etcd has since 3.4: a gRPC client would bring a
/// hundred crates, and a compiler for its messages.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use submeter_bank::{Budget, EtcdBank, Limit, Operate};
///
/// let ttl = Duration::from_secs(15);
/// let bank = EtcdBank::new("etcd://fleet:secret@a:2379,b:2379,c:2379", "production", ttl)?;
/// let budget = Budget::new("/acme", "licences")?;
/// bank.set(&Limit { budget, most: 100, floors: 0, per_member: None })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # When leases end
/// Each exchange makes the cluster agree on a new etcd lease before anything is lent, and ties the
/// member's key to it in the write that lends. The member counts from before that, and stops after
/// 0.8 of the time; etcd removes the key after the whole time, or later if another leader was
/// elected. A member's part is lent to others only once its key is gone. Prolonging one lease
/// instead would be cheaper, but a replaced leader may report that it has done so without its
/// successor knowing.
///
/// # What etcd may forget
/// Nothing, as long as a majority keeps its disks. A cluster without the fleet's value, or with a
/// value of another cluster, [learns](crate::Past::Unknown): for the asking member's time to live,
/// for the longest time to live that the value knows, and for as long as there are keys of holders
/// that the value does not know. When restoring a snapshot, therefore give the cluster an
/// `--initial-cluster-token` of its own. If everything is lost, nothing shows that leases lasted
/// longer before: do not shorten them at the same time.
///
/// Old values pile up until etcd compacts: configure it to do so (`--auto-compaction-retention`),
/// as for any use of etcd.
///
/// # Who may ask
/// A client that can write the keys below `submeter/FLEET/` can lend anything: caps only protect
/// from members' mistakes. Neither the password nor the URL is in any error or debug output.
pub struct EtcdBank {
    client: Client,
    /// The cluster's address, without secrets.
    server: String,
    #[cfg(feature = "tls")]
    is_tls: bool,
    #[cfg(feature = "tls")]
    certificates: tls::Certificates,
    prefix: String,
    fleet: String,
    ttl: Duration,
}

/// The value under the fleet's first key.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    /// The cluster that has written it.
    cluster: u64,
    /// How long leases last, once this cluster was asked for any.
    ttl_us: Option<u64>,
    /// The longest time to live of any lease that may still be alive, of this cluster or an earlier
    /// one. Not the longest ever: otherwise a year that was set by mistake would be learned for at
    /// each loss.
    #[serde(default)]
    longest_us: u64,
    record: Record,
}

/// The state at one moment.
struct State {
    cluster: u64,
    /// The revision at which the record was written; 0 if there is none.
    modified: u64,
    kept: Option<Kept>,
    /// The state as it was read, to detect changes.
    text: Vec<u8>,
    /// The holders that are alive, with their leases.
    lives: BTreeMap<(String, u64), i64>,
    /// Whether the time for which it learns has not yet passed.
    is_learning: bool,
}

impl State {
    /// Returns whether the record is what this cluster has lent.
    fn is_known(&self) -> bool {
        let known = |kept: &Kept| kept.cluster == self.cluster && kept.ttl_us.is_some();
        self.kept.as_ref().is_some_and(known)
    }

    /// Returns the value's longest time to live of any lease that may still be alive.
    fn longest_us(&self) -> u64 {
        self.kept.as_ref().map_or(0, |kept| kept.longest_us)
    }

    /// Returns whether leases that the value does not know may be alive.
    fn learns(&self) -> bool {
        let kept = self.kept.as_ref().filter(|_| self.is_known());
        let Some(kept) = kept else { return true };
        // A value and the keys of its holders are written in one step, and keys that outlive a
        // value end when its leases do.
        let known = kept.record.holders();
        let is_known = |holder: &(String, u64)| known.contains(&(holder.0.as_str(), holder.1));
        self.is_learning || !self.lives.keys().all(is_known)
    }
}

impl EtcdBank {
    /// Names the bank of a fleet at a URL: `etcd://user:password@host:port,host:port`, with one or
    /// several members of the cluster, or `etcds://…` for TLS. TLS needs the feature `tls` and
    /// authorities (`with_authorities`), and shows a certificate if there is one
    /// (`with_certificate`). User and password are percent-encoded: `p%40ss` is `p@ss`. `ttl` is
    /// how long leases last, and must be the same for all members; etcd counts whole seconds, and
    /// at least two. Does not connect.
    ///
    /// # Errors
    /// When the URL is invalid, the fleet's name is empty, longer than 1,024 bytes, or has control
    /// characters or a slash, or `ttl` is shorter than 200 ms or longer than a year.
    pub fn new(url: &str, fleet: &str, ttl: Duration) -> Result<Self, EtcdError> {
        let wrong = |why: String| EtcdError::new("etcd", Cause::Refused(why));
        check_name("fleet", fleet).map_err(wrong)?;
        if fleet.contains('/') {
            return Err(wrong(format!("fleet {fleet:?}: remove the slashes")));
        }
        if !(Duration::from_millis(200)..=Duration::from_secs(366 * 24 * 3600)).contains(&ttl) {
            return Err(wrong(format!("invalid ttl {ttl:?}: use 200 ms to a year")));
        }
        // Without the URL, which may have a password in it.
        let form = || wrong("invalid URL: use etcd://user:password@host:port,host:port".to_owned());
        let url = Address::new(url).url().map_err(|error| match error {
            AddressError::Scheme => form(),
            error => wrong(format!("invalid URL: {error}")),
        })?;
        let scheme = match url.scheme() {
            "etcd" => "http",
            "etcds" => "https",
            _ => return Err(form()),
        };
        let is_tls = scheme == "https";
        if is_tls && !cfg!(feature = "tls") {
            return Err(wrong("this build has no TLS: enable the feature `tls`".to_owned()));
        }
        let hosts = url.hosts().filter(|hosts| hosts.iter().all(|(_, port)| port.is_some()));
        let user = url.credentials();
        let has_password = user.is_none_or(|(_, password)| !password.is_empty());
        if hosts.is_none() || !url.is_bare() || !has_password {
            return Err(form());
        }
        let hosts = url.authority();
        let endpoints = hosts.split(',').map(|host| format!("{scheme}://{host}")).collect();
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        Ok(Self {
            client: Client::new(endpoints, user, is_tls),
            server: format!("{hosts}{}", if is_tls { " (TLS)" } else { "" }),
            #[cfg(feature = "tls")]
            is_tls,
            #[cfg(feature = "tls")]
            certificates: tls::Certificates::default(),
            prefix: format!("submeter/{fleet}/"),
            fleet: fleet.to_owned(),
            ttl,
        })
    }

    fn failed(&self, cause: Cause) -> EtcdError {
        EtcdError::new(&self.server, cause)
    }

    fn key(&self) -> String {
        encode(format!("{}ledger", self.prefix).as_bytes())
    }

    /// Reads the state from a range of all the fleet's keys.
    fn state(&self, seen: Seen) -> Result<State, Cause> {
        let mut state = State {
            cluster: seen.cluster,
            modified: 0,
            kept: None,
            text: Vec::new(),
            lives: BTreeMap::new(),
            is_learning: false,
        };
        for pair in seen.pairs {
            let key = std::str::from_utf8(&pair.key).unwrap_or_default();
            let Some(name) = key.strip_prefix(&self.prefix) else { continue };
            if name == "ledger" {
                let kept: Kept = serde_json::from_slice(&pair.value).map_err(|_| strange())?;
                (state.modified, state.text) = (pair.modified, pair.value);
                state.kept = Some(kept);
            } else if name == "learns" {
                state.is_learning = true;
            } else if let Some((epoch, member)) =
                name.strip_prefix("holder/").and_then(|name| name.split_once('/'))
                && let Ok(epoch) = u64::from_str_radix(epoch, 16)
            {
                state.lives.insert((member.to_owned(), epoch), pair.lease);
            }
        }
        Ok(state)
    }

    fn look(&self, until: Instant) -> Result<State, Cause> {
        self.state(self.client.range(&self.prefix, until)?)
    }

    /// Reads the state while the cluster agrees on a lease: before anything is lent, so that it
    /// ends after the loans.
    fn look_and_grant(&self, until: Instant) -> Result<(State, i64), Cause> {
        let grant = || self.client.grant(self.ttl, until);
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("submeter-etcd".to_owned());
            let granting = builder.spawn_scoped(scope, grant);
            let state = self.look(until);
            let lease = match granting {
                Ok(granting) => granting.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // The system cannot create a thread.
                Err(_) => grant(),
            };
            Ok((state?, lease?))
        })
    }

    /// Changes the ledger, in one step that the cluster agrees on, and returns the result of
    /// `change`. `holder` is the holder whose leases are renewed.
    fn change<T>(
        &self,
        holder: Option<(&str, u64)>,
        change: impl Fn(&mut Ledger) -> Result<T, RefusedError>,
    ) -> Result<T, Cause> {
        let until = Instant::now() + PATIENCE;
        let (mut state, lease) = match holder {
            Some(_) => {
                let (state, lease) = self.look_and_grant(until)?;
                (state, Some(lease))
            }
            None => (self.look(until)?, None),
        };
        let mut learning = None;
        for tries in 0..TRIES {
            let modified = state.modified;
            if state.kept.is_none() && holder.is_some() {
                let fleet = &self.fleet;
                let why =
                    format!("fleet {fleet:?} has no limits: set one with `submeter fleet set`");
                return Err(Cause::Refused(why));
            }
            let mut ledger = self.ledger(&state, holder.is_some())?;
            let done = change(&mut ledger).map_err(|error| Cause::Refused(error.to_string()))?;
            let kept = self.kept(&state, &ledger, holder.is_some());
            let longest_us = kept.longest_us;
            let text = serde_json::to_vec(&kept).map_err(|_| strange())?;
            if text == state.text {
                return Ok(done);
            }
            if text.len() > RECORD_MAX {
                return Err(Cause::Refused(format!(
                    "fleet {:?} has more leases than fit into one etcd value of 1 MiB: split it \
                     into fleets, or use Redis",
                    self.fleet
                )));
            }
            let mut then = vec![put(self.key(), &text, None)];
            if let (Some((member, epoch)), Some(lease)) = (holder, lease) {
                let key = format!("{}holder/{epoch:016x}/{member}", self.prefix);
                then.push(put(encode(key.as_bytes()), b"", Some(lease)));
            }
            // Again if the asker's leases last longer: those of unknown holders may, too.
            let is_longer = state.is_learning && longest_us > state.longest_us();
            if holder.is_some() && (!state.is_known() || is_longer) {
                let lease = match learning {
                    Some((lease, us)) if us == longest_us => lease,
                    _ => self.client.grant(Duration::from_micros(longest_us), until)?,
                };
                learning = Some((lease, longest_us));
                let key = format!("{}learns", self.prefix);
                then.push(put(encode(key.as_bytes()), b"", Some(lease)));
            }
            let compare = json!([{ "key": self.key(), "target": "MOD", "result": "EQUAL",
                "mod_revision": modified.to_string() }]);
            let otherwise = json!([{ "request_range": range_of(&self.prefix) }]);
            match self.client.transact(compare, Value::Array(then), otherwise, until)? {
                None => return Ok(done),
                Some(seen) => state = self.state(seen)?,
            }
            // Of concurrent writers, one succeeds each time; the others spread out.
            let wait = Duration::from_micros(u64::from(std::process::id() % 7 + 1) * 200);
            std::thread::sleep(wait * (tries / 4).min(20));
        }
        Err(Cause::Answer(format!("{TRIES} other writes came first: try again")))
    }

    /// Returns the value to keep of a ledger that was made from a state.
    fn kept(&self, state: &State, ledger: &Ledger, asks: bool) -> Kept {
        let before = state.kept.as_ref();
        let longest_before = state.longest_us();
        let own_us = u64::try_from(self.ttl.as_micros()).unwrap_or(u64::MAX);
        let (ttl_us, longest_us) = match asks {
            true if state.learns() => (Some(own_us), longest_before.max(own_us)),
            true => (Some(own_us), own_us),
            false if state.is_known() => (before.and_then(|kept| kept.ttl_us), longest_before),
            // The next exchange learns what was lent before.
            false => (None, longest_before),
        };
        Kept { cluster: state.cluster, ttl_us, longest_us, record: Record::of(ledger) }
    }

    /// Makes the ledger from a state.
    fn ledger(&self, state: &State, asks: bool) -> Result<Ledger, Cause> {
        let none = Kept::default();
        let kept = state.kept.as_ref().unwrap_or(&none);
        let is_known = state.is_known();
        let lives = |member: &str, epoch: u64| {
            is_known && state.lives.contains_key(&(member.to_owned(), epoch))
        };
        let ttl = Duration::from_micros(kept.ttl_us.unwrap_or(0));
        if asks && is_known && ttl != self.ttl && !kept.record.is_idle(lives) {
            return Err(Cause::Refused(format!(
                "leases of fleet {:?} last {} us, but this member's {}: give all members the same \
                 ttl",
                self.fleet,
                ttl.as_micros(),
                self.ttl.as_micros()
            )));
        }
        kept.record.ledger(self.ttl, state.learns(), today(), lives).ok_or_else(strange)
    }
}

/// Returns the time of this host, which only tells how long something was held.
fn today() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn strange() -> Cause {
    Cause::Refused("the stored state does not match this version".to_owned())
}

fn put(key: String, value: &[u8], lease: Option<i64>) -> Value {
    let lease = lease.unwrap_or(0).to_string();
    json!({ "request_put": { "key": key, "value": encode(value), "lease": lease } })
}

impl Bank for EtcdBank {
    type Error = EtcdError;

    fn exchange(&self, request: &Request) -> Result<Answer, EtcdError> {
        let holder = (request.member.as_str(), request.epoch);
        let answer = self.change(Some(holder), |ledger| ledger.exchange(Duration::ZERO, request));
        answer.map_err(|cause| self.failed(cause))
    }
}

impl Operate for EtcdBank {
    fn set(&self, limit: &Limit) -> Result<(), EtcdError> {
        self.change(None, |ledger| ledger.set(limit)).map_err(|cause| self.failed(cause))
    }

    fn set_if_none(&self, limit: &Limit) -> Result<(), EtcdError> {
        let set = |ledger: &mut Ledger| ledger.set_if_none(limit);
        self.change(None, set).map_err(|cause| self.failed(cause))
    }

    fn limits(&self) -> Result<Vec<Limit>, EtcdError> {
        let state = self.look(Instant::now() + PATIENCE);
        let ledger = state.and_then(|state| self.ledger(&state, false));
        Ok(ledger.map_err(|cause| self.failed(cause))?.limits().collect())
    }

    /// Asks etcd again for each holder when its lease ends, in whole seconds.
    fn holders(&self, budget: &Budget) -> Result<Vec<Lent>, EtcdError> {
        let until = Instant::now() + PATIENCE;
        let lent = || {
            let state = self.look(until)?;
            let ledger = self.ledger(&state, false)?;
            let ends = |mut lent: Lent| {
                let lease = state.lives.get(&(lent.member.clone(), lent.epoch));
                lent.ends_in = lease.map_or(Ok(Duration::ZERO), |&l| self.client.left(l, until))?;
                Ok(lent)
            };
            ledger.lent(budget).map(ends).collect::<Result<_, Cause>>()
        };
        lent().map_err(|cause| self.failed(cause))
    }

    fn learns(&self) -> Result<bool, EtcdError> {
        let state = self.look(Instant::now() + PATIENCE).map_err(|cause| self.failed(cause))?;
        Ok(state.learns())
    }
}

/// Omits the URL, which may have a password in it.
impl fmt::Debug for EtcdBank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBank")
            .field("server", &self.server)
            .field("fleet", &self.fleet)
            .finish_non_exhaustive()
    }
}
