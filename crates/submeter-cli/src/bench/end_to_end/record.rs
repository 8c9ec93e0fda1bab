//! What the slices found, and the rows that become of it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use super::slice::{Memory, Slice, Turn};
use super::{PIPELINES, TABLE, Variant, human, params};
use crate::bench::row::{Param, Params, Row, quantile, sorted};
use crate::bench::runner::Own;

/// The quantiles of the response time that have a row.
pub(super) const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
/// How far hit ratios may be apart beyond what chance does: those of another workload are further.
const HITS_APART: f64 = 0.01;

/// The record that all cells write.
pub(super) type SharedRecord = Rc<RefCell<Record>>;

/// The slices of all servers. Those of the first round warm up, and are only checked.
#[derive(Debug, Default)]
pub(super) struct Record {
    servers: Vec<(Key, Samples)>,
    memory: Vec<(Variant, Memory)>,
    /// The last slice of each: its round, retrievals and the share of them that hit.
    hits: Vec<(Key, u64, f64, f64)>,
}

/// A server, and the requests under way on each of its connections.
type Key = (Variant, usize);

/// Figures of one server, a sample a slice.
#[derive(Clone, Debug, Default)]
struct Samples {
    throughput: Vec<f64>,
    latency_us: [Vec<f64>; QUANTILES.len()],
    cpu_us: Vec<f64>,
}

impl Record {
    /// Takes down what a filled server weighs.
    pub(super) fn weigh(&mut self, variant: Variant, memory: Option<Memory>) {
        self.memory.extend(memory.map(|memory| (variant, memory)));
    }

    /// Takes down a slice.
    ///
    /// # Errors
    /// When nothing was answered, or another server's requests of this round hit more or less often: then
    /// they did not do the same.
    pub(super) fn add(&mut self, variant: Variant, turn: Turn, slice: &Slice) -> io::Result<()> {
        let name = variant.name();
        let gets = (slice.hits + slice.misses) as f64;
        if gets == 0.0 {
            return Err(io::Error::other(format!("{name} answers nothing under load")));
        }
        let ratio = slice.hits as f64 / gets;
        let key = (variant, turn.pipeline);
        self.check_hits(key, turn.round, gets, ratio)?;
        if turn.round == 0 {
            return Ok(());
        }
        let requests = slice.requests as f64;
        let samples = self.samples(key);
        samples.throughput.push(requests / slice.took.as_secs_f64());
        for ((_, part), found) in QUANTILES.iter().zip(&mut samples.latency_us) {
            found.push(slice.latency_ns.value_at_quantile(*part) as f64 / 1e3);
        }
        samples.cpu_us.extend(slice.cpu.map(|cpu| cpu.as_nanos() as f64 / 1e3 / requests));
        Ok(())
    }

    fn check_hits(&mut self, key: Key, round: u64, gets: f64, ratio: f64) -> io::Result<()> {
        for &(other, of_round, other_gets, other_ratio) in &self.hits {
            // Misses come in bunches, as all requests under way for a deleted item miss it: hence six standard
            // deviations of single ones.
            let middle = f64::midpoint(ratio, other_ratio);
            let chance = (middle * (1.0 - middle) * (1.0 / gets + 1.0 / other_gets)).sqrt();
            let same = of_round == round && other.1 == key.1;
            if same && (ratio - other_ratio).abs() > HITS_APART + 6.0 * chance {
                let (name, other) = (key.0.name(), other.0.name());
                return Err(io::Error::other(format!(
                    "hit ratios differ, {ratio:.3} of {name} and {other_ratio:.3} of {other}: the servers \
                     did not do the same"
                )));
            }
        }
        self.hits.retain(|(other, ..)| *other != key);
        self.hits.push((key, round, gets, ratio));
        Ok(())
    }

    fn samples(&mut self, key: Key) -> &mut Samples {
        let place = self.servers.iter().position(|(other, _)| *other == key);
        let place = place.unwrap_or_else(|| {
            self.servers.push((key, Samples::default()));
            self.servers.len() - 1
        });
        &mut self.servers[place].1
    }

    /// Returns the rows, all servers of one figure together, as they are read.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for pipeline in PIPELINES {
            let mut params = params(pipeline);
            rows.extend(self.slices(pipeline, &params, "requests/s", |s| &s.throughput));
            params[0].1 = Param::Word("cpu");
            rows.extend(self.slices(pipeline, &params, "us", |s| &s.cpu_us));
            params[0].1 = Param::Word("latency");
            for (place, (name, _)) in QUANTILES.iter().enumerate() {
                let mut params = params.clone();
                params.push(("quantile", Param::Word(name)));
                rows.extend(self.slices(pipeline, &params, "us", |s| &s.latency_us[place]));
            }
        }
        type Weigh = fn(&Memory) -> f64;
        let weights: [(&str, Weigh); 2] =
            [("memory", |m| m.bytes), ("memory_overhead", |m| m.overhead_bytes)];
        for (name, weight) in weights {
            let params = vec![("measure", Param::Word(name))];
            // Who was never under load has no row.
            let loaded = |variant| self.servers.iter().any(|((other, _), _)| *other == variant);
            let memory = |variant| self.memory.iter().find(|(other, _)| *other == variant);
            let weighed = Variant::ALL.into_iter().filter(|&v| loaded(v)).filter_map(memory);
            rows.extend(
                weighed.filter_map(|(variant, m)| row(*variant, &params, "bytes", &[weight(m)])),
            );
        }
        rows
    }

    /// Returns the rows of a figure, in one order, whichever server came first.
    fn slices(
        &self,
        pipeline: usize,
        params: &Params,
        unit: &'static str,
        samples: impl Fn(&Samples) -> &Vec<f64>,
    ) -> Vec<Row> {
        let of = |variant| {
            let found = self.servers.iter().find(|(key, _)| *key == (variant, pipeline));
            row(variant, params, unit, samples(&found?.1))
        };
        Variant::ALL.into_iter().filter_map(of).collect()
    }
}

/// Makes a row, where there are samples.
fn row(variant: Variant, params: &Params, unit: &'static str, samples: &[f64]) -> Option<Row> {
    let value = quantile(&sorted(samples), 0.5)?;
    let (params, variant, samples) = (params.clone(), variant.name(), samples.to_vec());
    Some(Row { table: TABLE, params, variant, value, unit, samples })
}

/// The figures of all servers.
pub(super) struct Found(pub(super) SharedRecord);

impl Own for Found {
    fn rows(&self) -> Vec<Row> {
        self.0.borrow().rows()
    }

    fn human(&self, rows: &[Row]) -> String {
        human::human(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::*;

    fn slice(requests: u64, hits: u64) -> Slice {
        let mut latency_ns = Histogram::new(3).expect("a histogram");
        latency_ns.record(1_000_000).expect("it grows");
        let (took, cpu) = (Duration::from_secs(2), Some(Duration::from_micros(requests * 3)));
        Slice { took, requests, hits, misses: requests - hits, cpu, latency_ns }
    }

    fn turn(round: u64) -> Turn {
        Turn { round, pipeline: 8 }
    }

    #[test]
    fn the_first_round_warms_up_and_others_become_rows() {
        let mut record = Record::default();
        let memory = Memory { bytes: 300.0, overhead_bytes: 50.0 };
        record.weigh(Variant::Submeter, Some(memory));
        for (round, requests) in [(0, 7_000), (1, 10_000), (2, 30_000), (3, 20_000)] {
            let slice = slice(requests, requests);
            record.add(Variant::Submeter, turn(round), &slice).expect("alike");
        }
        let rows = record.rows();
        let values: Vec<(f64, &str)> = rows.iter().map(|row| (row.value, row.unit)).collect();
        assert_eq!(values[..2], [(10_000.0, "requests/s"), (3.0, "us")]);
        assert_eq!(rows[0].samples, [5_000.0, 15_000.0, 10_000.0], "in the order of the rounds");
        // The histogram's digits.
        let is_a_millisecond =
            |(us, unit): &(f64, &str)| (us / 1e3 - 1.0).abs() < 0.01 && *unit == "us";
        assert!(values[2..5].iter().all(is_a_millisecond), "{values:?}");
        assert_eq!(values[5..], [(300.0, "bytes"), (50.0, "bytes")]);
    }

    #[test]
    fn another_hit_ratio_in_the_same_round_is_an_error() {
        let mut record = Record::default();
        let mut add = |variant, turn, hits| record.add(variant, turn, &slice(100_000, hits));
        add(Variant::Submeter, turn(0), 90_000).expect("the first");
        add(Variant::Memcached, turn(0), 89_500).expect("near enough");
        let error = add(Variant::SubmeterPlain, turn(0), 87_000).expect_err("too far").to_string();
        assert!(error.contains("0.870 of submeter_plain and 0.900 of submeter"), "{error}");
        add(Variant::Submeter, turn(1), 50_000).expect("a round of its own");
        let one = Turn { round: 1, pipeline: 1 };
        add(Variant::Memcached, one, 90_000).expect("another number of requests under way");
    }

    #[test]
    fn no_answer_is_an_error_and_no_load_no_row() {
        let mut record = Record::default();
        record.weigh(Variant::Memcached, Some(Memory { bytes: 9.0, overhead_bytes: 1.0 }));
        assert!(record.add(Variant::Submeter, turn(0), &slice(0, 0)).is_err());
        assert_eq!(record.rows(), []);
    }
}
