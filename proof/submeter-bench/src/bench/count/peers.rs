//! The peers, as the table takes them: those in this process, and those in processes of their own.

use submeter_peers::outside::{Process, Program, Sampled, programs};

use super::{Case, Subject, UNIT, counted, params};
use crate::bench::runner::{Absent, Cell, Sample};
use crate::bench::threads::SAMPLE;

/// What this machine has of them.
pub(super) struct Peers {
    programs: Vec<Program>,
    /// What it lacks.
    pub(super) absent: Vec<Absent>,
}

impl Peers {
    /// Compiles the programs that this machine has compilers for, in some seconds.
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

    /// Returns a cell for each program, all of which count by one counter that is at hand.
    pub(super) fn cells(&self, case: Case, name: &'static str, cpus: &[usize]) -> Vec<Cell> {
        match case {
            Case::Held => self.programs.iter().map(|program| cell(program, name, cpus)).collect(),
            Case::Lookup | Case::Levels => Vec::new(),
        }
    }
}

/// Makes a cell of a program, which its first sample starts.
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
        Ok(Sample::of(UNIT, sampled.rate, disturbed(&sampled)))
    };
    Cell::new(params(Case::Held, name), variant, measure)
}

/// Tells whether a thread of it was off its CPU, by the measure of threads of this process.
fn disturbed(sampled: &Sampled) -> bool {
    sampled.apart > SAMPLE / 10 || sampled.longest > SAMPLE / 10
}
