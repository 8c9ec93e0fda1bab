//! The requests to etcd: JSON over HTTP.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::Agent;

use super::error::Cause;

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The members of a cluster, of which one is asked at a time.
pub(super) struct Client {
    agent: Agent,
    /// Whether the trusted authorities are known, if they are needed.
    is_trusting: bool,
    endpoints: Vec<String>,
    user: Option<User>,
    turn: Mutex<Turn>,
}

struct User {
    name: String,
    password: String,
}

/// The member that is asked, and the token used.
#[derive(Clone, Default)]
struct Turn {
    at: usize,
    token: Option<String>,
}

/// A key with etcd's data on it.
pub(super) struct Pair {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) modified: u64,
    pub(super) lease: i64,
}

/// All keys below one key, at one moment.
pub(super) struct Seen {
    pub(super) cluster: u64,
    pub(super) pairs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(deserialize_with = "number")]
    cluster_id: u64,
}

#[derive(Deserialize)]
struct RangeReply {
    #[serde(default)]
    kvs: Vec<KeyReply>,
}

#[derive(Deserialize)]
struct KeyReply {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(deserialize_with = "number")]
    mod_revision: u64,
    #[serde(default, deserialize_with = "number")]
    lease: i64,
}

/// Reads a number, which etcd's JSON has in a string.
fn number<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Makes the request for all keys with this prefix, which ends in a byte below 255.
pub(super) fn range_of(prefix: &str) -> Value {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    json!({ "key": encode(prefix.as_bytes()), "range_end": encode(&end) })
}

fn strange(why: impl std::fmt::Display) -> Cause {
    Cause::Answer(format!("not an answer of etcd: {why}"))
}

fn read<T: for<'de> Deserialize<'de>>(value: &Value) -> Result<T, Cause> {
    T::deserialize(value).map_err(strange)
}

fn seen(header: &Value, range: &Value) -> Result<Seen, Cause> {
    let Header { cluster_id: cluster } = read(header)?;
    let RangeReply { kvs } = read(range)?;
    let pair = |kv: KeyReply| {
        let KeyReply { key, value, mod_revision: modified, lease } = kv;
        let decode = |text| STANDARD.decode(text).map_err(strange);
        Ok(Pair { key: decode(key)?, value: decode(value)?, modified, lease })
    };
    Ok(Seen { cluster, pairs: kvs.into_iter().map(pair).collect::<Result<_, Cause>>()? })
}

impl Client {
    /// With `is_tls`, it sends no request before it knows which authorities to trust.
    pub(super) fn new(
        endpoints: Vec<String>,
        user: Option<(String, String)>,
        is_tls: bool,
    ) -> Client {
        let user = user.map(|(name, password)| User { name, password });
        let agent = config().build().into();
        Client { agent, is_trusting: !is_tls, endpoints, user, turn: Mutex::default() }
    }

    #[cfg(feature = "tls")]
    pub(super) fn encrypt(&mut self, tls: ureq::tls::TlsConfig, is_trusting: bool) {
        self.is_trusting = is_trusting;
        self.agent = config().tls_config(tls).build().into();
    }

    /// Returns everything with this prefix, by a linearizable read.
    pub(super) fn range(&self, prefix: &str, until: Instant) -> Result<Seen, Cause> {
        let reply = self.post("kv/range", &range_of(prefix), until)?;
        seen(&reply["header"], &reply)
    }

    /// Does what is listed if each comparison holds, and then returns `None`; otherwise returns
    /// what the first of `otherwise`, a range, finds.
    pub(super) fn transact(
        &self,
        compare: Value,
        then: Value,
        otherwise: Value,
        until: Instant,
    ) -> Result<Option<Seen>, Cause> {
        let asked = json!({ "compare": compare, "success": then, "failure": otherwise });
        let reply = self.post("kv/txn", &asked, until)?;
        if reply["succeeded"] == true {
            return Ok(None);
        }
        seen(&reply["header"], &reply["responses"][0]["response_range"]).map(Some)
    }

    /// Makes the cluster agree on a lease that ends after `ttl` at the earliest under any leader,
    /// and returns its number.
    pub(super) fn grant(&self, ttl: Duration, until: Instant) -> Result<i64, Cause> {
        #[derive(Deserialize)]
        struct Granted {
            #[serde(rename = "ID", deserialize_with = "number")]
            id: i64,
            #[serde(rename = "TTL", deserialize_with = "number")]
            ttl: u64,
        }
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let reply = self.post("lease/grant", &json!({ "TTL": seconds.to_string() }), until)?;
        let granted: Granted = read(&reply)?;
        if granted.ttl < seconds {
            return Err(strange(format_args!("a lease of {} s instead of {seconds}", granted.ttl)));
        }
        Ok(granted.id)
    }

    /// Returns how long a lease still lasts.
    pub(super) fn left(&self, lease: i64, until: Instant) -> Result<Duration, Cause> {
        let asked = json!({ "ID": lease.to_string() });
        let reply = self.post("lease/timetolive", &asked, until)?;
        let seconds = reply["TTL"].as_str().and_then(|text| text.parse::<i64>().ok());
        Ok(Duration::from_secs(seconds.and_then(|n| u64::try_from(n).ok()).unwrap_or(0)))
    }

    /// Asks one member of the cluster after the other, until one answers. Each request may be sent
    /// twice, and several at once.
    fn post(&self, what: &str, asked: &Value, until: Instant) -> Result<Value, Cause> {
        if !self.is_trusting {
            let why = "no trusted authorities for etcds://: specify those of its certificate";
            return Err(Cause::Refused(why.to_owned()));
        }
        let mut failed = Cause::Answer("timed out".to_owned());
        // One try more than there are members, for a token that has expired.
        for _ in 0..=self.endpoints.len() {
            let turn = match self.turn(until) {
                Ok(turn) => turn,
                Err(error @ Cause::Refused(_)) => return Err(error),
                Err(error) => {
                    failed = error;
                    continue;
                }
            };
            match self.post_once(&turn, what, asked, until) {
                Ok(reply) => return Ok(reply),
                Err(error @ Cause::Refused(_)) => return Err(error),
                Err(error) => {
                    let mut next = self.turn.lock();
                    // Unless another request noticed it first.
                    match error {
                        Cause::Token if next.token == turn.token => next.token = None,
                        Cause::Token => {}
                        _ if next.at == turn.at => next.at = self.after(turn.at),
                        _ => {}
                    }
                    failed = error;
                }
            }
        }
        Err(failed)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) % self.endpoints.len()
    }

    /// Returns the next endpoint and its token; logs in if there is no token.
    fn turn(&self, until: Instant) -> Result<Turn, Cause> {
        let mut turn = self.turn.lock();
        if let (None, Some(user)) = (&turn.token, &self.user) {
            let asked = json!({ "name": user.name, "password": user.password });
            match self.post_once(&turn, "auth/authenticate", &asked, until) {
                Ok(reply) => turn.token = reply["token"].as_str().map(str::to_owned),
                Err(error) => {
                    if !matches!(error, Cause::Refused(_)) {
                        turn.at = self.after(turn.at);
                    }
                    return Err(error);
                }
            }
        }
        Ok(turn.clone())
    }

    fn post_once(
        &self,
        turn: &Turn,
        what: &str,
        asked: &Value,
        until: Instant,
    ) -> Result<Value, Cause> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Cause::Answer("timed out".to_owned()));
        }
        let url = format!("{}/v3/{what}", self.endpoints[turn.at]);
        let asking = self.agent.post(url).config().timeout_global(Some(left.min(PATIENCE)));
        let mut asking = asking.build().header("Content-Type", "application/json");
        if let Some(token) = &turn.token {
            asking = asking.header("Authorization", token);
        }
        let mut reply = asking.send(asked.to_string().as_bytes())?;
        let code = reply.status().as_u16();
        let text = reply.body_mut().read_to_string()?;
        let body: Value = serde_json::from_str(&text).map_err(strange)?;
        if code == 200 {
            return Ok(body);
        }
        // No error of etcd's contains the password.
        let why = body["message"].as_str().or_else(|| body["error"].as_str()).unwrap_or("");
        let why = why.trim_start_matches("etcdserver: ").to_owned();
        Err(match body["code"].as_u64() {
            Some(UNAUTHENTICATED) if self.user.is_some() => Cause::Token,
            // A user was changed since the token was made: no reason to refuse requests until the
            // token expires.
            _ if self.user.is_some() && why.contains("revision") && why.ends_with("is old") => {
                Cause::Token
            }
            Some(INVALID | DENIED | PRECONDITION | UNAUTHENTICATED) => Cause::Refused(why),
            _ => Cause::Answer(why),
        })
    }
}

/// Larger than most answers.
const BUFFER: usize = 16 << 10;

/// Codes of gRPC. An unknown user or a wrong password is reported as an invalid argument.
const INVALID: u64 = 3;
const DENIED: u64 = 7;
const PRECONDITION: u64 = 9;
const UNAUTHENTICATED: u64 = 16;

fn config() -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
    // Web proxies do not apply, and the body decides what an answer means, whatever the code.
    let config = Agent::config_builder().proxy(None).max_redirects(0).http_status_as_error(false);
    // A connection clears its buffers when it is made: at 128 KiB each, that is a tenth of a first
    // grant.
    config.input_buffer_size(BUFFER).output_buffer_size(BUFFER)
}
