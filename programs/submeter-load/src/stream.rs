//! The requests of one connection, drawn from the tenants' statistics by a seeded generator.
//!
//! The stream does not depend on answers: the same seed, tenants and connection give the same
//! requests. (The driver's use of them does depend on answers: it fills misses, and drops stores in
//! return.)

use rand::distr::weighted::WeightedIndex;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::pattern::{Shape, hash_bytes, mix};
use super::profile::Profile;
use super::tenants_file::{KEY_MAX, VALUE_MAX};
use super::verb::Verb;

/// Hexadecimal digits of a key's number: [`Profile::keys`] stays far below 16^5.
const KEY_DIGITS: usize = 5;

/// One request to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Index into the tenants.
    pub tenant: u16,
    /// The command.
    pub verb: Verb,
    /// Number of the key: its rank in popularity.
    pub key: u32,
    /// Time to live of the stored or touched item; 0 if it does not expire.
    pub ttl_s: u64,
}

/// A tenant prepared for drawing requests; shared by all connections.
#[derive(Debug)]
pub struct Tenant {
    /// Its statistics.
    pub profile: Profile,
    /// The prefix of its keys.
    prefix: Vec<u8>,
    prefix_hash: u64,
    counters: bool,
    piece: usize,
    keys: u32,
    popularity: Zipf<f64>,
    verbs: (Vec<Verb>, WeightedIndex<f64>),
    ttls: Option<(Vec<u64>, WeightedIndex<f64>)>,
}

impl Tenant {
    /// Prepares the tenant of the group `/load/<name>`.
    pub fn new(name: &str, profile: Profile, delimiter: u8) -> Result<Tenant, String> {
        Tenant::below("load", name, profile, delimiter)
    }

    /// Prepares the tenant of the group `/<name>`, for servers with only one level of tenants.
    pub fn at_top(name: &str, profile: Profile, delimiter: u8) -> Result<Tenant, String> {
        Tenant::below("", name, profile, delimiter)
    }

    fn below(parent: &str, name: &str, profile: Profile, delimiter: u8) -> Result<Tenant, String> {
        let delimiter = char::from(delimiter);
        if name.contains(delimiter) {
            return Err(format!(
                "tenant {name:?} contains the delimiter {delimiter:?}: \
                 rename it, or choose another --delimiter"
            ));
        }
        let mut prefix = String::new();
        for level in [parent, name].into_iter().filter(|level| !level.is_empty()) {
            prefix.push_str(level);
            prefix.push(delimiter);
        }
        prefix.push('k');
        let mut prefix = prefix.into_bytes();
        // Keys have the length from the statistics if the prefix leaves room for the key's number.
        let padded = (profile.key_bytes.min(KEY_MAX) as usize).saturating_sub(KEY_DIGITS);
        prefix.resize(prefix.len().max(padded), b'-');
        let weights = |all: &mut dyn Iterator<Item = f64>| {
            WeightedIndex::new(all).map_err(|e| format!("tenant {name:?}: shares: {e}"))
        };
        let verbs = profile.operations.iter().map(|(verb, _)| *verb).collect();
        let verb_weights = weights(&mut profile.operations.iter().map(|(_, share)| *share))?;
        let ttls = if profile.ttls_s.is_empty() {
            None
        } else {
            let values = profile.ttls_s.iter().map(|(ttl, _)| *ttl).collect();
            Some((values, weights(&mut profile.ttls_s.iter().map(|(_, share)| *share))?))
        };
        let keys = profile.keys();
        let popularity = Zipf::new(f64::from(keys), profile.zipf_alpha)
            .map_err(|e| format!("tenant {name:?}: zipf_alpha: {e}"))?;
        let pieces = profile.knows(&[Verb::Append, Verb::Prepend]);
        Ok(Tenant {
            prefix_hash: hash_bytes(&prefix),
            prefix,
            counters: profile.knows(&[Verb::Incr, Verb::Decr]),
            // An eighth of the value: it grows noticeably, and stays below 1 MiB between two
            // stores.
            piece: if pieces { (profile.value_bytes as usize / 8).max(1) } else { 0 },
            keys,
            popularity,
            verbs: (verbs, verb_weights),
            ttls,
            profile,
        })
    }

    /// Appends a key's bytes.
    pub fn write_key(&self, key: u32, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        out.extend_from_slice(&self.prefix);
        out.extend((0..KEY_DIGITS).rev().map(|at| DIGITS[(key >> (4 * at)) as usize & 15]));
    }

    /// Returns the length of every key.
    pub fn key_len(&self) -> usize {
        self.prefix.len() + KEY_DIGITS
    }

    /// Returns the shape of a key's value.
    ///
    /// The statistics give only mean lengths; lengths are spread evenly from half the mean to one
    /// and a half times the mean, and each key's length is fixed.
    pub fn shape(&self, key: u32) -> Shape {
        let hash = mix(self.prefix_hash ^ u64::from(key));
        let mean = u64::from(self.profile.value_bytes);
        let half = mean / 2;
        let len = mean - half + mix(!hash) % (2 * half + 1);
        Shape {
            hash,
            len: len.min(u64::from(VALUE_MAX)) as usize,
            piece: self.piece,
            counter: self.counters && key % 2 == 1,
        }
    }

    /// Returns the verb with which the tenant fills a miss.
    pub fn fill_verb(&self) -> Verb {
        if self.profile.uses(&[Verb::Add]) && !self.profile.uses(&[Verb::Set]) {
            Verb::Add
        } else {
            Verb::Set
        }
    }

    /// Draws a time to live.
    pub fn draw_ttl(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        self.ttls.as_ref().map_or(0, |(ttls, weights)| ttls[weights.sample(rng)])
    }

    fn draw_key(&self, verb: Verb, rng: &mut Xoshiro256PlusPlus) -> u32 {
        // Rounding can return one beyond the last rank.
        let rank = (self.popularity.sample(rng) as u32).clamp(1, self.keys) - 1;
        match verb {
            // Counters, if the tenant has any, are the odd keys.
            Verb::Incr | Verb::Decr => rank | 1,
            Verb::Append | Verb::Prepend if self.counters => rank & !1,
            _ => rank,
        }
    }
}

/// The requests of one connection.
#[derive(Debug)]
pub struct Stream<'a> {
    tenants: &'a [Tenant],
    weights: WeightedIndex<f64>,
    rng: Xoshiro256PlusPlus,
    /// The generator for fills, which depend on answers and must not change the requests that
    /// follow.
    fill_rng: Xoshiro256PlusPlus,
}

impl<'a> Stream<'a> {
    /// Starts the stream of connection number `connection`.
    pub fn new(tenants: &'a [Tenant], seed: u64, connection: usize) -> Result<Stream<'a>, String> {
        let weights = WeightedIndex::new(tenants.iter().map(|t| t.profile.rate_kqps));
        Stream::weighted(tenants, weights, seed, connection)
    }

    /// Starts a stream of the requests of tenant number `only`.
    pub fn of(
        tenants: &'a [Tenant],
        only: usize,
        seed: u64,
        connection: usize,
    ) -> Result<Stream<'a>, String> {
        let weights = (0..tenants.len()).map(|index| if index == only { 1.0 } else { 0.0 });
        Stream::weighted(tenants, WeightedIndex::new(weights), seed, connection)
    }

    fn weighted(
        tenants: &'a [Tenant],
        weights: Result<WeightedIndex<f64>, rand::distr::weighted::Error>,
        seed: u64,
        connection: usize,
    ) -> Result<Stream<'a>, String> {
        let weights = weights.map_err(|e| format!("request rates: {e}"))?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ mix(connection as u64)));
        let fill_rng = Xoshiro256PlusPlus::seed_from_u64(rng.random());
        Ok(Stream { tenants, weights, rng, fill_rng })
    }

    /// Draws the next request.
    pub fn draw(&mut self) -> Request {
        let index = self.weights.sample(&mut self.rng);
        let tenant = &self.tenants[index];
        let verb = tenant.verbs.0[tenant.verbs.1.sample(&mut self.rng)];
        let key = tenant.draw_key(verb, &mut self.rng);
        let ttl_s = tenant.draw_ttl(&mut self.rng);
        Request { tenant: index as u16, verb, key, ttl_s }
    }

    /// Makes the request that stores a missed key.
    pub fn fill(&mut self, tenant: u16, key: u32) -> Request {
        let owner = &self.tenants[usize::from(tenant)];
        Request { tenant, verb: owner.fill_verb(), key, ttl_s: owner.draw_ttl(&mut self.fill_rng) }
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
