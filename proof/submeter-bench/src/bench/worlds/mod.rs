//! The `worlds` table: what operations cost in the worlds that programs are deployed in, beside
//! what a program without submeter would do.
//!
//! Each world is a process, which this program starts and which stays up; a sample is requested by
//! a line and answered by a line. All worlds therefore take turns within milliseconds, and a
//! process sleeps between its samples.

mod child;
mod operations;

use std::cell::RefCell;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use submeter_program::World;

use super::runner::{Absent, Cell, Plan, Sample};
use super::threads::settings;
use crate::row::{Param, Params};
use child::{Ask, Child, Said};
use operations::Operation;

pub(crate) use child::{enter, measure_in_world};

const TABLE: &str = "worlds";
/// The variant that is not a world: it is measured in the first available one.
const NAIVE: &str = "naive";
/// How often a world is retried if one of its self-tests is inconclusive, as where other programs
/// want the CPUs.
const TRIES: u32 = 5;

/// Returns the table's plan, with a process for each world.
///
/// # Errors
/// When the CPUs of this process cannot be determined, or a world is not what it should be although
/// this machine lacks nothing: the row would then show a world other than its name says.
pub(crate) fn plan() -> io::Result<Plan> {
    let (mut up, mut notes, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    let mut complete = false;
    for world in &World::ALL {
        let (child, why) = match start(world) {
            Ok((child, why)) => (Some(child), why),
            Err(error) => (None, Some(error)),
        };
        match (child, why) {
            (Some(child), None) => {
                complete |= *world == World::BEST;
                notes.push(format!("{} is {}", world.name, child.said));
                up.push((world.name, Rc::new(RefCell::new(child))));
            }
            // On this machine only a mistake can explain the difference.
            (Some(child), Some(why))
                if complete && world.libc.is_none() && !child.said.is_inconclusive =>
            {
                return Err(io::Error::other(format!("{} is another world: {why}", world.name)));
            }
            (_, why) => {
                absent.push(Absent { variant: world.name, reason: why.unwrap_or_default() });
            }
        }
    }
    let mut groups = Vec::new();
    // A world to measure the naive peers in.
    if let Some((_, first)) = up.first() {
        for (cpus, _) in settings()? {
            let all_cpus = cpus == "all";
            for operation in Operation::ALL.into_iter().filter(|o| !all_cpus || o.is_shared()) {
                let worlds = up.iter().map(|(name, child)| (*name, child, false));
                let cell = |(variant, child, naive)| {
                    cell(variant, child, Ask { operation, all_cpus, naive })
                };
                groups
                    .push(std::iter::once((NAIVE, first, true)).chain(worlds).map(cell).collect());
            }
        }
    }
    let rounds_max = if up.is_empty() { 0 } else { usize::MAX };
    Ok(Plan { table: TABLE, groups, mixed: false, rounds_max, notes, absent })
}

fn cell(variant: &'static str, child: &Rc<RefCell<Child>>, ask: Ask) -> Cell {
    let child = Rc::clone(child);
    let params = [
        ("operation", Param::word(ask.operation.name())),
        ("cpus", Param::word(if ask.all_cpus { "all" } else { "1" })),
    ];
    Cell::new(Params::from(params), variant, move || {
        let (ns, disturbed) = child.borrow_mut().ask(ask)?;
        Ok(Sample::of("ns", ns, disturbed))
    })
}

/// Starts the process of a world, or another one if its self-test was inconclusive. Says how it
/// differs from its world, or why there is none.
fn start(world: &'static World) -> Result<(Child, Option<String>), String> {
    let own = env::current_exe().map_err(|error| error.to_string())?;
    let program = match world.libc {
        None => own,
        Some(libc) => built_for(&own, libc)?,
    };
    let mut tries = 1;
    loop {
        let child = Child::start(world, &program).map_err(|error| error.to_string())?;
        let why = difference(world, &child.said);
        if why.is_none() || !child.said.is_inconclusive || tries == TRIES {
            return Ok((child, why));
        }
        tries += 1;
    }
}

/// Finds the build of this program for another libc, in the same profile.
fn built_for(own: &Path, libc: &str) -> Result<PathBuf, String> {
    let triple = format!("{}-unknown-linux-{libc}", env::consts::ARCH);
    let found = || {
        let profile = own.parent()?;
        let folder = profile.parent()?.join(&triple).join(profile.file_name()?);
        Some(folder.join(own.file_name()?)).filter(|program| program.is_file())
    };
    found().ok_or_else(|| {
        format!(
            "no {triple} build of this program beside it: rustup target add {triple}, and the \
             build of this one again with --target {triple}"
        )
    })
}

/// Says how a process differs from its world.
fn difference(world: &World, said: &Said) -> Option<String> {
    let (backend, by_page) = (world.backend, !world.refuses_perf_events);
    if said.build != Said::build() {
        return Some(format!("it was built from {}: build it again", said.build));
    }
    if said.backend != backend {
        return Some(format!("{} and not {backend}: {}", said.backend, said.backend_reason));
    }
    if said.by_visits != world.by_visits {
        return Some(format!("its barrier is another one: {}", said.backend_reason));
    }
    let page = if by_page { "no perf page" } else { "a perf page" };
    let right = said.by_page == by_page;
    (!right).then(|| format!("{page} tells of switches: {}", said.clock_reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(backend: &str, by_page: bool) -> Said {
        Said {
            build: Said::build(),
            backend: backend.to_owned(),
            backend_reason: "SUBMETER_RSEQ=off".to_owned(),
            is_inconclusive: false,
            by_visits: false,
            by_page,
            clock: "a clock".to_owned(),
            clock_reason: "perf page: refused".to_owned(),
        }
    }

    /// A process in a world other than its row's is reported.
    #[test]
    fn a_process_in_another_world_is_told() {
        let world = |name| World::named(name).expect("known");
        let differs = |name, said: &Said| difference(world(name), said);
        assert_eq!(differs("best", &said("libc_rseq", true)), None);
        assert_eq!(differs("no_perf_events", &said("libc_rseq", false)), None);
        assert_eq!(differs("locked_by_cpu", &said("locked_by_cpu", true)), None);
        let by_visits = Said { by_visits: true, ..said("libc_rseq", false) };
        assert_eq!(differs("both", &by_visits), None);
        for (name, said, part) in [
            ("best", said("locked_by_cpu", true), "not libc_rseq: SUBMETER_RSEQ=off"),
            ("best", said("libc_rseq", false), "no perf page tells of switches: perf page: ref"),
            ("no_perf_events", said("libc_rseq", true), "a perf page tells"),
            ("no_rseq", said("locked_by_cpu", false), "not locked_by_thread"),
            ("both", said("libc_rseq", false), "its barrier is another one"),
            ("no_perf_events", by_visits, "its barrier is another one"),
            ("musl", Said { build: "1234".to_owned(), ..said("own_rseq", true) }, "build it again"),
        ] {
            let why = differs(name, &said).unwrap_or_default();
            assert!(why.contains(part), "{name}: {why:?}");
        }
    }

    #[test]
    fn another_libcs_program_is_sought_beside_this() {
        let error = built_for(Path::new("/nowhere/release/submeter-bench"), "musl");
        let error = error.expect_err("there is nothing");
        assert!(error.contains("rustup target add") && error.contains("-linux-musl"), "{error}");
    }
}
