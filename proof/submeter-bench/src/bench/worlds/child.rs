//! The process of a world: what it reports about itself, what it is asked for, and how it answers.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use submeter_program::World;
use submeter_sys::clock::{self, Source};
use submeter_sys::cpu::affinity;
use submeter_sys::{Barrier, SelfTest, probe};

use super::operations::{Naive, Operation, Ours};
use crate::bench::asked::Asked;
use crate::bench::threads::{Work, rates_after};

/// What a process finds in its world.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Said {
    pub(super) build: String,
    pub(super) backend: String,
    pub(super) backend_reason: String,
    /// Whether one of its self-tests was inconclusive, as on a machine that is too busy.
    pub(super) is_inconclusive: bool,
    pub(super) by_visits: bool,
    /// Whether a perf page tells a thread that it was switched out.
    pub(super) by_page: bool,
    pub(super) clock: String,
    pub(super) clock_reason: String,
}

impl Said {
    fn now() -> Said {
        let (probe, clock) = (probe(), clock::choice());
        Said {
            build: Said::build(),
            backend: probe.backend.id().to_owned(),
            backend_reason: probe.reason.clone(),
            is_inconclusive: probe.self_test == SelfTest::Inconclusive || clock.is_inconclusive,
            by_visits: probe.barrier == Barrier::Visits,
            by_page: clock.source == Source::PerfPage,
            clock: clock.source.name().to_owned(),
            clock_reason: clock.reason.clone(),
        }
    }

    /// Returns what this program was built from.
    pub(super) fn build() -> String {
        let commit = submeter_terminal::COMMIT.unwrap_or("an unknown commit");
        let profile = if cfg!(debug_assertions) { ", debug" } else { "" };
        format!("{commit} by {}{profile}", env!("SUBMETER_RUSTC"))
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, as {}; CPU time: {}", self.backend, self.backend_reason, self.clock)
    }
}

/// A request for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) operation: Operation,
    pub(super) all_cpus: bool,
    /// Whether it is for the naive equivalent of the operation.
    pub(super) naive: bool,
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [all, naive] = [self.all_cpus, self.naive].map(u8::from);
        write!(f, "{} {all} {naive}", self.operation as usize)
    }
}

impl Ask {
    fn parse(line: &str) -> Option<Ask> {
        let mut numbers = line.split_whitespace().map(str::parse::<usize>);
        let mut next = || numbers.next()?.ok();
        let operation = *Operation::ALL.get(next()?)?;
        Some(Ask { operation, all_cpus: next()? == 1, naive: next()? == 1 })
    }
}

/// A process in its world.
pub(super) struct Child {
    asked: Asked,
    pub(super) said: Said,
}

impl Child {
    /// Starts `program`, which is this one, in `world`.
    ///
    /// # Errors
    /// The system's error, or the first line that the process printed instead of an answer.
    pub(super) fn start(world: &World, program: &Path) -> io::Result<Child> {
        let mut command = world.command(program);
        command.args(["--world", world.name]);
        let (asked, said) = Asked::start(command, |line| serde_json::from_str(line).ok())?;
        Ok(Child { asked, said })
    }

    /// Makes the process take a sample: the nanoseconds of one operation, and whether it was
    /// disturbed.
    ///
    /// # Errors
    /// When the process has ended, or cannot measure.
    pub(super) fn ask(&mut self, ask: Ask) -> io::Result<(f64, bool)> {
        self.asked.ask(&ask)
    }
}

/// Enters the world of this name.
///
/// # Errors
/// There is no such world, or it lacks something.
pub(crate) fn enter(name: &str) -> io::Result<()> {
    let world = World::named(name);
    let world = world.ok_or_else(|| io::Error::other(format!("there is no world {name}")))?;
    world.enter().map_err(io::Error::other)
}

/// Reports what this process finds in its world, and takes the samples that standard input asks
/// for until that ends.
///
/// # Errors
/// A measurement lacks something.
pub(crate) fn measure_in_world() -> io::Result<()> {
    let answer = |line: &dyn fmt::Display| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush())
    };
    let measured = Measured::new()?;
    answer(&serde_json::to_string(&Said::now())?)?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let ask = Ask::parse(&line).ok_or_else(|| io::Error::other(format!("{line:?}")))?;
        let (ns, disturbed) = measured.sample(ask)?;
        answer(&format_args!("{ns} {disturbed}"))?;
    }
    Ok(())
}

/// The operations that a process measures.
struct Measured {
    cpus: Vec<usize>,
    _ours: Ours,
    /// By operation: ours, and the naive equivalent.
    works: Vec<[Work; 2]>,
}

impl Measured {
    fn new() -> io::Result<Measured> {
        let (ours, naive) = (Ours::new()?, Arc::new(Naive::new()));
        let both = |&operation| Ok([ours.work(operation)?, naive.work(operation)]);
        let works = Operation::ALL.iter().map(both).collect::<io::Result<_>>()?;
        Ok(Measured { cpus: affinity()?, _ours: ours, works })
    }

    fn sample(&self, ask: Ask) -> io::Result<(f64, bool)> {
        let work = &self.works[ask.operation as usize][usize::from(ask.naive)];
        let cpus = if ask.all_cpus { &self.cpus[..] } else { &self.cpus[..1] };
        let batch = ask.operation.batch();
        // A thread's first update is not the operation: it registers, opens the page of its clock,
        // and finds nothing in its caches.
        let first = |_| work(batch);
        let (rates, disturbed) = rates_after(cpus, batch, &first, &|_, times| work(times))?;
        Ok((cpus.len() as f64 * 1e9 / rates.iter().sum::<f64>(), disturbed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_what_is_measured() {
        for operation in Operation::ALL {
            for (all_cpus, naive) in [(false, false), (true, false), (false, true)] {
                let ask = Ask { operation, all_cpus, naive };
                assert_eq!(Ask::parse(&ask.to_string()), Some(ask));
            }
        }
        for line in ["", "9 0 0", "0 0", "x"] {
            assert_eq!(Ask::parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn operations_take_time_here_and_in_a_peer() {
        let measured = Measured::new().expect("address space");
        for operation in Operation::ALL {
            for (all_cpus, naive) in [(false, false), (true, false), (false, true), (true, true)] {
                let (ns, _) = measured.sample(Ask { operation, all_cpus, naive }).expect("pinned");
                assert!(ns > 0.0 && ns.is_finite(), "{operation:?}: {ns}");
            }
        }
    }
}
