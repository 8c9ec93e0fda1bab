//! Checks that all servers did the same work: the same requests must hit equally often.

use std::io;

use super::Variant;
use super::slice::{Slice, Turn};

/// How far hit ratios may differ beyond chance; those of a different workload differ by more.
const HITS_APART: f64 = 0.01;

/// A server, and the requests in flight on each of its connections.
type Key = (Variant, usize);

/// The last slice of each server: its round, its retrievals and its hit ratio.
#[derive(Debug, Default)]
pub(super) struct Hits(Vec<(Key, u64, f64, f64)>);

impl Hits {
    /// Compares a slice with those of the other servers.
    ///
    /// # Errors
    /// When nothing was answered, or the same round had a different hit ratio on another server:
    /// the two then did not do the same work.
    pub(super) fn check(&mut self, variant: Variant, turn: Turn, slice: &Slice) -> io::Result<()> {
        let name = variant.name();
        let gets = (slice.hits + slice.misses) as f64;
        if gets == 0.0 {
            return Err(io::Error::other(format!("{name} does not answer under load")));
        }
        let ratio = slice.hits as f64 / gets;
        let (key, round) = ((variant, turn.pipeline), turn.round);
        for &(other, of_round, other_gets, other_ratio) in &self.0 {
            // Misses come in bursts, because all requests in flight for a deleted item miss it:
            // hence six standard deviations of independent ones.
            let middle = f64::midpoint(ratio, other_ratio);
            let chance = (middle * (1.0 - middle) * (1.0 / gets + 1.0 / other_gets)).sqrt();
            let same = of_round == round && other.1 == key.1;
            if same && (ratio - other_ratio).abs() > HITS_APART + 6.0 * chance {
                let other = other.0.name();
                return Err(io::Error::other(format!(
                    "hit ratios differ, {ratio:.3} for {name} and {other_ratio:.3} for {other}: the servers \
                     did not do the same work"
                )));
            }
        }
        self.0.retain(|(other, ..)| *other != key);
        self.0.push((key, round, gets, ratio));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::slice;
    use super::*;

    fn turn(round: u64) -> Turn {
        Turn { round, pipeline: 8 }
    }

    /// Another hit ratio in the same round is an error.
    #[test]
    fn a_rounds_second_hit_ratio_is_an_error() {
        let mut all = Hits::default();
        let mut add = |variant, turn, hits| all.check(variant, turn, &slice(100_000, hits));
        add(Variant::Submeter, turn(0), 90_000).expect("the first");
        add(Variant::Memcached, turn(0), 89_500).expect("near enough");
        let error = add(Variant::SubmeterPlain, turn(0), 87_000).expect_err("too far").to_string();
        assert!(error.contains("0.870 for submeter_plain and 0.900 for submeter"), "{error}");
        add(Variant::Submeter, turn(1), 50_000).expect("a round of its own");
        let one = Turn { round: 1, pipeline: 1 };
        add(Variant::Memcached, one, 90_000).expect("a different pipeline");
    }

    #[test]
    fn no_answer_is_an_error() {
        assert!(Hits::default().check(Variant::Submeter, turn(0), &slice(0, 0)).is_err());
    }
}
