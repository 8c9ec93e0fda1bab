//! What the slices found, and the rows that become of it.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use super::slice::{Memory, Slice};
use super::{TABLE, Variant, human};
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
    servers: Vec<(Variant, Samples)>,
    /// Of each server, the last one: its round, retrievals and the share of them that hit.
    hits: Vec<(Variant, u64, f64, f64)>,
}

/// Figures of one server, a sample a slice.
#[derive(Clone, Debug, Default)]
struct Samples {
    throughput: Vec<f64>,
    latency_us: [Vec<f64>; QUANTILES.len()],
    cpu_us: Vec<f64>,
    memory: Option<Memory>,
}

impl Record {
    /// Takes down what a filled server weighs.
    pub(super) fn weigh(&mut self, variant: Variant, memory: Option<Memory>) {
        self.samples(variant).memory = memory;
    }

    /// Takes down a slice.
    ///
    /// # Errors
    /// When nothing was answered, or another server's requests of this round hit more or less often: then
    /// they did not do the same.
    pub(super) fn add(&mut self, variant: Variant, round: u64, slice: Slice) -> io::Result<()> {
        let name = variant.name();
        let gets = (slice.hits + slice.misses) as f64;
        if gets == 0.0 {
            return Err(io::Error::other(format!("{name} answers nothing under load")));
        }
        let ratio = slice.hits as f64 / gets;
        self.check_hits(variant, round, gets, ratio)?;
        if round == 0 {
            return Ok(());
        }
        let requests = slice.requests as f64;
        let samples = self.samples(variant);
        samples.throughput.push(requests / slice.took.as_secs_f64());
        for ((_, part), found) in QUANTILES.iter().zip(&mut samples.latency_us) {
            found.push(slice.latency_ns.value_at_quantile(*part) as f64 / 1e3);
        }
        samples.cpu_us.extend(slice.cpu.map(|cpu| cpu.as_nanos() as f64 / 1e3 / requests));
        Ok(())
    }

    fn check_hits(
        &mut self,
        variant: Variant,
        round: u64,
        gets: f64,
        ratio: f64,
    ) -> io::Result<()> {
        for &(other, of_round, other_gets, other_ratio) in &self.hits {
            // Misses come in bunches, as all requests under way for a deleted item miss it: hence six standard
            // deviations of single ones.
            let middle = f64::midpoint(ratio, other_ratio);
            let chance = (middle * (1.0 - middle) * (1.0 / gets + 1.0 / other_gets)).sqrt();
            if of_round == round && (ratio - other_ratio).abs() > HITS_APART + 6.0 * chance {
                let (name, other) = (variant.name(), other.name());
                return Err(io::Error::other(format!(
                    "hit ratios differ, {ratio:.3} of {name} and {other_ratio:.3} of {other}: the servers \
                     did not do the same"
                )));
            }
        }
        self.hits.retain(|(other, ..)| *other != variant);
        self.hits.push((variant, round, gets, ratio));
        Ok(())
    }

    fn samples(&mut self, variant: Variant) -> &mut Samples {
        let place = self.servers.iter().position(|(other, _)| *other == variant);
        let place = place.unwrap_or_else(|| {
            self.servers.push((variant, Samples::default()));
            self.servers.len() - 1
        });
        &mut self.servers[place].1
    }

    /// Returns the rows, all servers of one figure together, as they are read.
    fn rows(&self) -> Vec<Row> {
        let measure = |name| vec![("measure", Param::Word(name))];
        let mut rows = self.of(&measure("throughput"), "requests/s", |s| s.throughput.clone());
        for (place, (name, _)) in QUANTILES.iter().enumerate() {
            let mut params = measure("latency");
            params.push(("quantile", Param::Word(name)));
            rows.extend(self.of(&params, "us", |s| s.latency_us[place].clone()));
        }
        rows.extend(self.of(&measure("cpu"), "us", |s| s.cpu_us.clone()));
        rows.extend(self.of(&measure("memory"), "bytes", |samples| {
            samples.memory.iter().map(|memory| memory.bytes).collect()
        }));
        rows.extend(self.of(&measure("memory_overhead"), "bytes", |samples| {
            samples.memory.iter().map(|memory| memory.overhead_bytes).collect()
        }));
        rows
    }

    fn of(
        &self,
        params: &Params,
        unit: &'static str,
        samples: impl Fn(&Samples) -> Vec<f64>,
    ) -> Vec<Row> {
        // In one order, whichever came first. Who was never under load has no row.
        let servers = Variant::ALL.iter().filter_map(|variant| {
            self.servers.iter().find(|(other, s)| other == variant && !s.throughput.is_empty())
        });
        let row = |(variant, found): &(Variant, Samples)| {
            let samples = samples(found);
            let value = quantile(&sorted(&samples), 0.5)?;
            let (params, variant) = (params.clone(), variant.name());
            Some(Row { table: TABLE, params, variant, value, unit, samples })
        };
        servers.filter_map(row).collect()
    }
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

    #[test]
    fn the_first_round_warms_up_and_others_become_rows() {
        let mut record = Record::default();
        let memory = Memory { bytes: 300.0, overhead_bytes: 50.0 };
        record.weigh(Variant::Submeter, Some(memory));
        for (round, requests) in [(0, 7_000), (1, 10_000), (2, 30_000), (3, 20_000)] {
            record.add(Variant::Submeter, round, slice(requests, requests)).expect("alike");
        }
        let rows = record.rows();
        let values: Vec<(f64, &str)> = rows.iter().map(|row| (row.value, row.unit)).collect();
        assert_eq!(values[0], (10_000.0, "requests/s"));
        assert_eq!(rows[0].samples, [5_000.0, 15_000.0, 10_000.0], "in the order of the rounds");
        // The histogram's digits.
        assert!(
            values[1..4].iter().all(|(us, unit)| (us / 1e3 - 1.0).abs() < 0.01 && *unit == "us")
        );
        assert_eq!(values[4..], [(3.0, "us"), (300.0, "bytes"), (50.0, "bytes")]);
    }

    #[test]
    fn another_hit_ratio_in_the_same_round_is_an_error() {
        let mut record = Record::default();
        record.add(Variant::Submeter, 0, slice(100_000, 90_000)).expect("the first");
        record.add(Variant::Memcached, 0, slice(100_000, 89_500)).expect("near enough");
        let error = record.add(Variant::SubmeterPlain, 0, slice(100_000, 87_000));
        let error = error.expect_err("too far").to_string();
        assert!(error.contains("0.870 of submeter_plain and 0.900 of submeter"), "{error}");
        record.add(Variant::Submeter, 1, slice(100_000, 50_000)).expect("a round of its own");
    }

    #[test]
    fn no_answer_is_an_error_and_no_load_no_row() {
        let mut record = Record::default();
        assert!(record.add(Variant::Submeter, 0, slice(0, 0)).is_err());
        assert_eq!(record.rows(), []);
    }
}
