//! DataFusion's pools, in a process of their own.

use submeter_peers::datafusion::{DataFusion, Pool, Process};

use super::limiter::{Expected, Tally};
use super::{Setting, unit};
use crate::bench::runner::{Absent, Cell, Sample};
use crate::bench::threads::{SAMPLE, ran_together};
use crate::row::Params;

/// The pools with their names in records, and whether each is the fair one.
const POOLS: [(&str, bool); 2] = [("datafusion_greedy", false), ("datafusion_fair", true)];
/// Charges between two clock reads.
const BATCH: u32 = 256;

/// The pools, if their program exists.
pub(super) struct Peers {
    program: Option<DataFusion>,
    pub(super) absent: Vec<Absent>,
}

impl Peers {
    /// Finds the program.
    pub(super) fn new() -> Peers {
        match DataFusion::find() {
            Ok(program) => Peers { program: Some(program), absent: Vec::new() },
            Err(reason) => {
                let absent = |(variant, _)| Absent { variant, reason: reason.clone() };
                Peers { program: None, absent: POOLS.map(absent).to_vec() }
            }
        }
    }

    /// Returns a cell for each pool, which has one level.
    pub(super) fn cells(
        &self,
        params: &Params,
        setting: &Setting<'_>,
        expected: Expected,
    ) -> Vec<Cell> {
        let program = self.program.iter().filter(|_| setting.levels == 1);
        let far = expected == Expected::Granted;
        let cells = program.flat_map(|program| {
            POOLS.map(|(variant, fair)| {
                cell(program, Pool { variant, fair, far }, params, setting.cpus, expected)
            })
        });
        cells.collect()
    }
}

/// Makes a cell whose process the first sample starts.
fn cell(
    program: &DataFusion,
    pool: Pool,
    params: &Params,
    cpus: &[usize],
    expected: Expected,
) -> Cell {
    let (program, cpus, unit) = (program.clone(), cpus.to_vec(), unit(expected));
    let mut running: Option<Process> = None;
    Cell::new(params.clone(), pool.variant, move || {
        let process = match &mut running {
            Some(process) => process,
            None => running.insert(program.start(pool, &cpus, SAMPLE.as_nanos() as u64, BATCH)?),
        };
        let sampled = process.sample()?;
        let refused = sampled.asked.saturating_sub(sampled.counted);
        expected.check(pool.variant, Tally { granted: sampled.counted, refused, over: 0 })?;
        Ok(Sample::of(unit, sampled.rate, !ran_together(sampled.apart, sampled.longest)))
    })
}
