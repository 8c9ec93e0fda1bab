//! A bank for the processes of many hosts, kept by Redis.
//!
//! The ledger is a script, because Redis would otherwise send all leases of a fleet for each
//! exchange.

mod changes;
mod cluster;
mod error;
mod said;
#[cfg(feature = "tls")]
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, Connection, ConnectionAddr, IntoConnectionInfo, Script, Value};
use submeter_address::{Address, AddressError};

use self::changes::{Ask, Known};
use self::cluster::Moved;
use self::error::Cause;
pub use self::error::RedisError;
use self::said::{AMOUNT_MAX, name_of};
use crate::budget::check_name;
use crate::{Answer, Bank, Budget, Lent, Limit, LimitError, Operate, RefusedError, Request};

/// How long to wait for a connection, and for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the server waits for its replicas: less than `PATIENCE`.
const REPLICAS_PATIENCE: Duration = Duration::from_millis(500);

/// A bank kept for a fleet by Redis 7, or by a server that speaks its protocol and runs its
/// scripts.
///
/// An exchange is one script, which does what a [`Ledger`](crate::Ledger) does, with the same
/// answers: all budgets of a request at once, by the server's clock. The bank connects when it is
/// first asked, and again after each failure. An exchange takes a lock until the server has
/// answered, for at most a second, or two if the server has to ask for the whole list: a member
/// with a bank of its own sends only what has changed since its last exchange.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use submeter_bank::{Budget, RedisBank};
///
/// let ttl = Duration::from_secs(15);
/// let bank = RedisBank::new("redis://:secret@localhost:6379/0", "production", ttl)?;
/// bank.set_limit(&Budget::new("/acme", "memory")?, 8 << 30, 0)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What Redis may forget
/// A server that was restarted, or a replica that took its place, is recognised by its run. It then
/// [learns](crate::Past::Unknown) for one time to live, as does a server that is asked for the
/// first time. Of what it has persisted, only the limits matter. If a server has lost these,
/// members that know them set them again.
///
/// A server also learns if it is the primary again and knows nothing of the one that was primary
/// meanwhile. It recognises this by a member that has met that other server, by having followed
/// another server, or, if it has had a replica, because it was not asked for half a time to live.
/// It therefore also learns if all members of a fleet were away.
///
/// - Keys must not be evicted: a server with a `maxmemory-policy` for all keys is refused.
/// - While two servers both take themselves for the primary, each lends up to the whole limit. To
///   prevent this, make exchanges wait for all replicas, by `?replicas=N` in the URL of each
///   member: a promoted replica follows no server, so the old primary's exchanges fail. The
///   server's own `min-replicas-to-write` notices this only seconds later.
/// - A limit that was set just before the primary was lost may revert to the previous one, unless
///   the URL has `?replicas=N`.
/// - The wall clock may jump once in each time to live. The ledger therefore counts at most a tenth
///   of that time between two exchanges: if fewer than four members ask, leases of crashed members
///   last up to three times as long. While it learns, members ask so often that this takes hardly
///   longer than one time to live.
///
/// # Who may ask
/// Anyone with the password may do anything to the keys: caps protect against members' mistakes,
/// not against hostile members. Neither the password nor the URL is in any error or debug output.
/// All keys begin with `submeter:{FLEET}`, for rules of an ACL.
///
/// # Clusters
/// The keys of a fleet are on one node of a cluster: fleets, not budgets, are spread over nodes.
/// The URL may name any node. That node says which one has the keys, and that one is asked until it
/// cannot be reached or says that they have moved.
pub struct RedisBank {
    client: Client,
    /// The server's address, without secrets.
    server: String,
    fleet: String,
    ttl: Duration,
    script: Script,
    /// How many replicas must have received what was lent.
    replicas: u64,
    #[cfg(feature = "tls")]
    certificates: tls::Certificates,
    connection: Mutex<Option<Connection>>,
    moved: Moved,
    /// The run of the server that answered the last exchange.
    met: Mutex<String>,
    /// The last request that was answered, and its answer.
    known: Mutex<Option<Known>>,
    /// The limits that this process has set, for a server that has lost them.
    limits: Mutex<BTreeMap<Budget, Terms>>,
}

#[derive(Clone, Copy, Default)]
struct Terms {
    /// The limit less the floors, and the floors.
    leasable: Option<(u64, u64)>,
    per_member: Option<u64>,
}

impl RedisBank {
    /// Names the bank of a fleet at a URL: `redis://user:password@host:port/database`, `rediss://…`
    /// for TLS, or `unix:///path?pass=password`. User and password are percent-encoded: `p%40ss` is
    /// `p@ss`. `ttl` is how long leases last, and must be the same for all members. Does not
    /// connect.
    ///
    /// With `?replicas=N` at the end of the URL, each exchange waits until that many replicas have
    /// it, and fails without them. Give the number of all replicas: then two servers that both take
    /// themselves for the primary cannot both lend.
    ///
    /// TLS needs the feature `tls`. It trusts the system's authorities or those of
    /// `with_authorities`, and shows the certificate of `with_certificate`, if any. If the process
    /// has not chosen a cryptography provider for rustls, this sets ring.
    ///
    /// # Errors
    /// When the URL is invalid, or asks for TLS without the feature; the fleet's name is empty,
    /// longer than 1,024 bytes, or has control characters or braces; or `ttl` is shorter than 200
    /// ms or longer than a year.
    pub fn new(url: &str, fleet: &str, ttl: Duration) -> Result<Self, RedisError> {
        let wrong = |why: String| RedisError::new("redis", Cause::Refused(why));
        check_name("fleet", fleet).map_err(wrong)?;
        if fleet.contains(['{', '}']) {
            return Err(wrong(format!("fleet {fleet:?}: remove the braces")));
        }
        if !(Duration::from_millis(200)..=Duration::from_secs(366 * 24 * 3600)).contains(&ttl) {
            return Err(wrong(format!("invalid ttl {ttl:?}: use 200 ms to a year")));
        }
        // Checked here, as the client accepts a malformed escape and sends it as text.
        let scheme = match Address::new(url).url() {
            Ok(url) => url.scheme().to_owned(),
            // The client's error names the form that it expects.
            Err(AddressError::Scheme) => String::new(),
            Err(error) => return Err(wrong(format!("invalid URL: {error}"))),
        };
        let is_tls = ["rediss", "valkeys"].contains(&&*scheme);
        if is_tls && !cfg!(feature = "tls") {
            return Err(wrong("this build has no TLS: enable the feature `tls`".to_owned()));
        }
        let (url, replicas) = replicas(url).map_err(wrong)?;
        // The client's error does not repeat the URL, which may have a password in it.
        let info = url.into_connection_info().map_err(|error| {
            let what = "invalid URL: use redis://user:password@host:port/database";
            RedisError::new("redis", Cause::Redis(what, error))
        })?;
        let server = match info.addr() {
            ConnectionAddr::Tcp(host, port) => format!("{host}:{port}"),
            ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port} (TLS)"),
            ConnectionAddr::Unix(path) => path.display().to_string(),
            _ => "the server".to_owned(),
        };
        let client = Client::open(info)
            .map_err(|error| RedisError::new(&server, Cause::Redis("it is not a server", error)))?;
        Ok(Self {
            client,
            server,
            fleet: fleet.to_owned(),
            ttl,
            script: Script::new(include_str!("bank.lua")),
            replicas,
            #[cfg(feature = "tls")]
            certificates: tls::Certificates::default(),
            connection: Mutex::new(None),
            moved: Moved::default(),
            met: Mutex::default(),
            known: Mutex::default(),
            limits: Mutex::default(),
        })
    }

    /// Sets the limit of a budget for the whole fleet, as
    /// [`Ledger::set_limit`](crate::Ledger::set_limit) does. This process sets it again if the
    /// server has lost it.
    ///
    /// # Errors
    /// When the floors exceed the limit, the limit is 2^53 or more, or the server cannot be
    /// reached; in the last case it is set with the next exchange that finds no limits.
    pub fn set_limit(&self, budget: &Budget, limit: u64, floors: u64) -> Result<(), RedisError> {
        let leasable = self.leasable(budget, limit, floors)?;
        self.change(budget, false, |terms| terms.leasable = Some((leasable, floors)))
    }

    fn leasable(&self, budget: &Budget, limit: u64, floors: u64) -> Result<u64, RedisError> {
        let leasable = LimitError::leasable(budget, limit, floors)
            .map_err(|error| self.failed(Cause::Refused(error.to_string())))?;
        if limit > AMOUNT_MAX {
            let why = format!("{budget}: limit {limit} is too large: use less than 2^53");
            return Err(self.failed(Cause::Refused(why)));
        }
        Ok(leasable)
    }

    /// Sets the most that members of one name have, as
    /// [`Ledger::set_limit_per_member`](crate::Ledger::set_limit_per_member) does.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn set_limit_per_member(
        &self,
        budget: &Budget,
        most: Option<u64>,
    ) -> Result<(), RedisError> {
        self.change(budget, false, |terms| terms.per_member = most.map(bounded))
    }

    fn set_all(&self, limit: &Limit, if_none: bool) -> Result<(), RedisError> {
        let Limit { budget, most, floors, per_member } = limit;
        let leasable = self.leasable(budget, *most, *floors)?;
        self.change(budget, if_none, |terms| {
            terms.leasable = Some((leasable, *floors));
            terms.per_member = per_member.map(bounded);
        })
    }

    fn change(
        &self,
        budget: &Budget,
        if_none: bool,
        change: impl FnOnce(&mut Terms),
    ) -> Result<(), RedisError> {
        let terms = {
            let mut limits = self.limits.lock();
            let terms = limits.entry(budget.clone()).or_default();
            change(terms);
            *terms
        };
        self.call(&limit_arguments(budget, terms, if_none)).map(drop)
    }

    /// Lists who has how much of a budget at this moment, ordered by the amounts that they want.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub fn lent(&self, budget: &Budget) -> Result<Vec<Lent>, RedisError> {
        let ttl = self.ttl.as_micros().to_string();
        let reply = self.call(&["lent".into(), ttl.into(), name_of(budget).into()])?;
        let holders = reply.into_iter().skip(1).map(|holder| {
            let (id, amount, wants, held, ends): (Vec<u8>, u64, u64, u64, u64) =
                redis::from_redis_value(holder).ok()?;
            let id = String::from_utf8(id).ok()?;
            let (member, epoch) = id.split_once('\0')?;
            Some(Lent {
                member: member.to_owned(),
                epoch: u64::from_str_radix(epoch, 16).ok()?,
                amount,
                wants,
                held_for: Duration::from_micros(held),
                ends_in: Duration::from_micros(ends),
            })
        });
        holders.collect::<Option<_>>().ok_or_else(|| self.strange())
    }

    /// Runs the script.
    fn call(&self, arguments: &[Vec<u8>]) -> Result<Vec<Value>, RedisError> {
        let mut kept = self.connection.lock();
        // Put back only after a whole answer: a late one must not be taken for the answer to the
        // next request.
        let mut connection = kept.take().map_or_else(|| self.connect(), Ok)?;
        let silent = |error: redis::RedisError| {
            self.moved.forget();
            self.failed(error.into())
        };
        let mut script = self.script.key(format!("submeter:{{{}}}", self.fleet));
        for argument in arguments {
            script.arg(argument.as_slice());
        }
        let reply = match script.invoke(&mut connection) {
            Err(error) if self.moved.learn(&error) => {
                connection = self.connect()?;
                script.invoke(&mut connection).map_err(silent)?
            }
            reply => reply.map_err(silent)?,
        };
        if self.replicas > 0 {
            let mut wait = redis::cmd("WAIT");
            wait.arg(self.replicas).arg(REPLICAS_PATIENCE.as_millis() as u64);
            let have: u64 = wait.query(&mut connection).map_err(silent)?;
            if have < self.replicas {
                let replicas = self.replicas;
                return Err(self.failed(Cause::Alone { have, replicas }));
            }
        }
        *kept = Some(connection);
        Ok(reply)
    }

    fn connect(&self) -> Result<Connection, RedisError> {
        let failed = |error: redis::RedisError| {
            self.moved.forget();
            self.failed(error.into())
        };
        // Fails if the process has already chosen a provider, which then applies.
        #[cfg(feature = "tls")]
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = self.moved.client(&self.client).map_err(failed)?;
        let mut connection = client.get_connection_with_timeout(PATIENCE).map_err(failed)?;
        connection.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        connection.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let info: String =
            redis::cmd("INFO").arg("memory").query(&mut connection).map_err(failed)?;
        let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        if let Some(policy) = policy.filter(|policy| policy.starts_with("allkeys")) {
            let why =
                format!("its maxmemory-policy is {policy}, which evicts leases: set noeviction");
            return Err(self.failed(Cause::Refused(why)));
        }
        Ok(connection)
    }

    fn failed(&self, cause: Cause) -> RedisError {
        RedisError::new(&self.server, cause)
    }

    /// The error for an answer that the script never gives.
    fn strange(&self) -> RedisError {
        self.failed(Cause::Refused("its answer does not match this version's script".to_owned()))
    }

    /// Sets the limits that this process set before, and returns whether there are any.
    fn set_again(&self) -> Result<bool, RedisError> {
        let limits = self.limits.lock().clone();
        for (budget, terms) in &limits {
            self.call(&limit_arguments(budget, *terms, false))?;
        }
        Ok(!limits.is_empty())
    }

    /// Sends the request with one list.
    fn exchange_once(&self, ask: &Ask<'_>, request: &Request) -> Result<Vec<Value>, RedisError> {
        let (ttl, met) = (self.ttl.as_micros().to_string(), self.met.lock().clone());
        let head = ["exchange", &ask.holder, &request.member, &ask.sequence, &ttl, &met];
        let mut arguments: Vec<_> = head.map(|text| text.as_bytes().to_vec()).into();
        arguments.extend(ask.arguments());
        self.call(&arguments)
    }

    /// Returns the answer, or `None` if the server has no limits.
    fn ask(&self, request: &Request) -> Result<Option<Answer>, RedisError> {
        let refused = |why| Err(self.failed(Cause::Refused(why)));
        let wrong = |error: RefusedError| self.failed(Cause::Refused(error.to_string()));
        let mut known = self.known.lock();
        let mut ask = Ask::whole(request).map_err(wrong)?.since(known.as_ref());
        let mut reply = self.exchange_once(&ask, request)?;
        if reply.first() == Some(&Value::BulkString(b"whole".to_vec())) {
            ask = Ask::whole(request).map_err(wrong)?;
            reply = self.exchange_once(&ask, request)?;
        }
        let mut reply = reply.into_iter();
        let what: String = next(&mut reply).ok_or_else(|| self.strange())?;
        let number: Option<Value> = reply.next();
        let text = |value: Option<Value>| -> String {
            value.and_then(|value| redis::from_redis_value(value).ok()).unwrap_or_default()
        };
        match what.as_str() {
            "lent" => {
                let run = text(number);
                let base = text(reply.next());
                let learns = next::<u64>(&mut reply);
                let amounts: Option<Vec<u64>> =
                    reply.map(|amount| redis::from_redis_value(amount).ok()).collect();
                let (Some(learns), Some(amounts)) = (learns, amounts) else {
                    return Err(self.strange());
                };
                let Some(now) = ask.answered(known.as_ref(), &base, &amounts) else {
                    return refused(format!(
                        "request {} of {:?} was answered to another of its banks: send a new one",
                        request.sequence, request.member
                    ));
                };
                let now = known.insert(now);
                *self.met.lock() = run;
                let (sequence, leases) = (request.sequence, now.leases());
                Ok(Some(Answer { sequence, ttl: self.ttl, learns: learns == 1, leases }))
            }
            "limits" => Ok(None),
            "old" => {
                let newest = u64::from_str_radix(&text(number), 16).unwrap_or_default();
                refused(format!(
                    "request {} of {:?} arrived after request {newest}: send a new one",
                    request.sequence, request.member
                ))
            }
            "ttl" => refused(format!(
                "leases of fleet {:?} last {} us, but this member's {}: give all members the same \
                 ttl",
                self.fleet,
                text(number),
                self.ttl.as_micros()
            )),
            "full" => refused(format!(
                "{} leases are kept besides those of {:?}: wait until others end",
                text(number),
                request.member
            )),
            _ => Err(self.strange()),
        }
    }
}

/// Removes the number of replicas from the end of a URL.
fn replicas(url: &str) -> Result<(&str, u64), String> {
    const NAME: &str = "replicas=";
    let found = url.rfind("?replicas=").or_else(|| url.rfind("&replicas="));
    let Some(at) = found else { return Ok((url, 0)) };
    let number = url[at + 1 + NAME.len()..].parse().ok();
    let number = number.filter(|number| (1..=100).contains(number));
    let wrong =
        || "invalid number of replicas: end the URL with ?replicas=1 to ?replicas=100".to_owned();
    Ok((&url[..at], number.ok_or_else(wrong)?))
}

fn next<T: redis::FromRedisValue>(values: &mut impl Iterator<Item = Value>) -> Option<T> {
    values.next().and_then(|value| redis::from_redis_value(value).ok())
}

fn limit_arguments(budget: &Budget, terms: Terms, if_none: bool) -> [Vec<u8>; 6] {
    let number = |n: Option<u64>| n.map_or_else(String::new, |n| n.to_string()).into_bytes();
    let (leasable, floors) = terms.leasable.unzip();
    [
        b"limit".to_vec(),
        name_of(budget).into_bytes(),
        number(leasable),
        number(floors),
        number(terms.per_member),
        if if_none { b"new".to_vec() } else { Vec::new() },
    ]
}

fn bounded(amount: u64) -> u64 {
    amount.min(AMOUNT_MAX)
}

impl Bank for RedisBank {
    type Error = RedisError;

    fn exchange(&self, request: &Request) -> Result<Answer, RedisError> {
        if let Some(answer) = self.ask(request)? {
            return Ok(answer);
        }
        if self.set_again()?
            && let Some(answer) = self.ask(request)?
        {
            return Ok(answer);
        }
        let why = format!("fleet {:?} has no limits: set one in each member", self.fleet);
        Err(self.failed(Cause::Refused(why)))
    }
}

impl Operate for RedisBank {
    fn set(&self, limit: &Limit) -> Result<(), RedisError> {
        self.set_all(limit, false)
    }

    fn set_if_none(&self, limit: &Limit) -> Result<(), RedisError> {
        self.set_all(limit, true)
    }

    fn limits(&self) -> Result<Vec<Limit>, RedisError> {
        let limit = |pool| {
            let (name, leasable, floors, per_member): (String, u64, u64, i64) =
                redis::from_redis_value(pool).ok()?;
            let (path, resource) = name.split_once('\n')?;
            let budget = Budget::new(path, resource).ok()?;
            let per_member = u64::try_from(per_member).ok();
            Some(Limit { budget, most: leasable + floors, floors, per_member })
        };
        let reply = self.call(&[b"limits".to_vec()])?;
        let limits: Option<Vec<Limit>> = reply.into_iter().skip(1).map(limit).collect();
        let mut limits = limits.ok_or_else(|| self.strange())?;
        limits.sort_by(|a, b| a.budget.cmp(&b.budget));
        Ok(limits)
    }

    fn holders(&self, budget: &Budget) -> Result<Vec<Lent>, RedisError> {
        let mut lent = self.lent(budget)?;
        lent.sort_by(|a, b| (&a.member, a.epoch).cmp(&(&b.member, b.epoch)));
        Ok(lent)
    }

    fn learns(&self) -> Result<bool, RedisError> {
        let ttl = self.ttl.as_micros().to_string();
        let mut reply = self.call(&["learns".into(), ttl.into()])?.into_iter().skip(1);
        let learns: Option<u64> = next(&mut reply);
        learns.map(|learns| learns == 1).ok_or_else(|| self.strange())
    }
}

/// Omits the URL, which may have a password in it.
impl fmt::Debug for RedisBank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBank")
            .field("server", &self.server)
            .field("fleet", &self.fleet)
            .finish_non_exhaustive()
    }
}
