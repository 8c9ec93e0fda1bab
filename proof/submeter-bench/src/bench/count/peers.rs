//! The peers: those in this process, and those in processes of their own.

use submeter_peers::outside::{Process, Program, programs};

use super::{Case, Subject, UNIT, counted, params};
use crate::bench::runner::{Absent, Cell, Sample};
use crate::bench::threads::{SAMPLE, ran_together};

/// The peers that this machine can run.
pub(super) struct Peers {
    programs: Vec<Program>,
    /// The peers that it cannot run.
    pub(super) absent: Vec<Absent>,
}

impl Peers {
    /// Compiles the programs that this machine has compilers for, which takes a few seconds.
    pub(super) fn new() -> Peers {
        let (programs, absent) = programs();
        let absent = absent.into_iter().map(|absence| {
            let submeter_peers::Absence { variant, reason } = absence;
            Absent { variant, reason }
        });
        Peers { programs, absent: absent.collect() }
    }

    /// Returns new counters of all peers in this process.
    pub(super) fn subjects(&self) -> Vec<Subject> {
        let subject = |peer: submeter_peers::Peer| {
            let submeter_peers::Peer { variant, case, count, totals } = peer;
            let case = match case {
                submeter_peers::Case::Held => Case::Held,
                submeter_peers::Case::Lookup => Case::Lookup,
                submeter_peers::Case::Levels => Case::Levels,
            };
            Subject { variant, case, count, totals }
        };
        submeter_peers::peers().into_iter().map(subject).collect()
    }

    /// Returns a cell for each program; all of them count with a held counter.
    pub(super) fn cells(&self, case: Case, name: &'static str, cpus: &[usize]) -> Vec<Cell> {
        match case {
            Case::Held => self.programs.iter().map(|program| cell(program, name, cpus)).collect(),
            Case::Lookup | Case::Levels => Vec::new(),
        }
    }
}

/// Makes a cell for a program, which the first sample starts.
fn cell(program: &Program, name: &'static str, cpus: &[usize]) -> Cell {
    let (variant, program, cpus) = (program.variant, program.clone(), cpus.to_vec());
    let mut running: Option<Process> = None;
    let measure = move || {
        let process = match &mut running {
            Some(process) => process,
            None => {
                let sample_ns = SAMPLE.as_nanos() as u64;
                running.insert(program.start(&cpus, sample_ns, Case::Held.batch())?)
            }
        };
        let sampled = process.sample()?;
        counted(variant, Case::Held, sampled.asked, &[sampled.counted])?;
        Ok(Sample::of(UNIT, sampled.rate, !ran_together(sampled.apart, sampled.longest)))
    };
    Cell::new(params(Case::Held, name), variant, measure)
}
