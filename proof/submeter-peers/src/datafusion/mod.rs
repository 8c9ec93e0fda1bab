//! DataFusion's memory pools, in a program that is compiled only on request: with its dependencies,
//! that takes minutes.

mod process;

use std::env;
use std::io;
use std::path::PathBuf;
use std::process::Command;

pub use process::{Process, Sampled};

/// The variable that names the program.
const VARIABLE: &str = "SUBMETER_DATAFUSION";
/// The command that builds it.
const HINT: &str = "cargo build --release --locked --manifest-path \
    proof/submeter-peers/datafusion/Cargo.toml, and name its program in SUBMETER_DATAFUSION";

/// The program that charges DataFusion's pools.
#[derive(Clone, Debug)]
pub struct DataFusion(PathBuf);

/// One of its pools, and the distance from the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name in records.
    pub variant: &'static str,
    /// Whether it is the pool that gives each consumer its share, or the greedy one.
    pub fair: bool,
    /// Whether its limit is far away; otherwise one charge fits and every second one is refused.
    pub far: bool,
}

impl DataFusion {
    /// Finds the program.
    ///
    /// # Errors
    /// One line: how to get it.
    pub fn find() -> Result<DataFusion, String> {
        named(env::var_os(VARIABLE).map(PathBuf::from))
    }

    /// Starts it on these CPUs, and waits until it has warmed up. Its samples count charges:
    /// requested, and granted.
    ///
    /// # Errors
    /// When it does not start, or does not report that it is ready.
    pub fn start(
        &self,
        pool: Pool,
        cpus: &[usize],
        sample_ns: u64,
        batch: u32,
    ) -> io::Result<Process> {
        let mut command = Command::new(&self.0);
        command.args([if pool.fair { "fair" } else { "greedy" }]);
        command.args([if pool.far { "far" } else { "limit" }]);
        command.args([sample_ns.to_string(), batch.to_string()]);
        command.args(cpus.iter().map(usize::to_string));
        Process::start(pool.variant, command, cpus)
    }
}

fn named(program: Option<PathBuf>) -> Result<DataFusion, String> {
    match program {
        None => Err(format!("its program is not built: {HINT}")),
        Some(path) if path.is_file() => Ok(DataFusion(path)),
        Some(path) => Err(format!("{VARIABLE}={}: no such file: {HINT}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use submeter_sys::cpu::affinity;

    use super::*;

    /// Each pool grants what fits, or says how to build it.
    #[test]
    fn each_pool_grants_what_fits_or_is_unbuilt() {
        let program = match DataFusion::find() {
            Ok(program) => program,
            Err(reason) => return println!("skipped: DataFusion's pools: {reason}"),
        };
        let cpus = &affinity().expect("this process may run somewhere")[..1];
        for (fair, far) in [(false, true), (false, false), (true, true), (true, false)] {
            let pool = Pool { variant: "datafusion", fair, far };
            let mut process = program.start(pool, cpus, 1_000_000, 64).expect("it is ready");
            let sampled = process.sample().expect("a sample");
            let granted = if far { sampled.asked } else { sampled.asked / 2 };
            assert!(sampled.asked > 0 && sampled.counted == granted, "{pool:?} {sampled:?}");
        }
    }

    #[test]
    fn an_absent_program_is_reported_with_a_remedy() {
        for program in [None, Some(PathBuf::from("/nonexistent/peer"))] {
            let error = named(program).expect_err("there is none");
            assert!(error.contains("--manifest-path") && !error.contains('\n'), "{error}");
        }
    }
}
