//! Two tenants in one process: an analyst, whose queries need far more memory than there is, and a
//! dashboard, whose queries are small. With DataFusion's pools both share one; with submeter the
//! analyst has a limit below that of both, at which its queries spill.
//!
//! Options: `--scale` of TPC-H's tables, `--rounds` of each variant, `--seconds` of each round,
//! `--megabytes` for both tenants.

mod data;
mod run;
mod table;
mod texts;
mod variants;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;

use data::{ANALYST, Tables};
use run::{End, Round};
use variants::{Kind, Tenant};

/// Number of operators that are registered and idle, such as eight queries of eight partitions with
/// slow clients.
const IDLE: usize = 64;

/// Number of queries of one tenant that run at once, in a crowd.
const CROWD: usize = 4;

/// How the queries of a crowd ended.
#[derive(Default)]
pub(crate) struct Crowd {
    pub(crate) done: usize,
    pub(crate) refused: usize,
    pub(crate) stuck: usize,
    pub(crate) spilled_bytes: usize,
}

/// What to run.
struct Options {
    scale: f64,
    rounds: usize,
    seconds: f64,
    megabytes: usize,
}

/// A sort beside idle operators.
pub(crate) struct Sort {
    pub(crate) seconds: f64,
    /// `None` if it was refused.
    pub(crate) spilled_bytes: Option<usize>,
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!(
                "neighbours: {why}: --scale 0.1 --rounds 5 --seconds 6 --megabytes 64 are usual"
            );
            return ExitCode::from(2);
        }
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let done = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(compare(&options)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("neighbours: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the variants in turn, and prints the results.
async fn compare(options: &Options) -> Result<()> {
    let bytes = options.megabytes << 20;
    let tables = Arc::new(Tables::generate(options.scale)?);
    let time = Duration::from_secs_f64(options.seconds);
    let mut alone = Vec::new();
    let mut rounds: [Vec<Round>; 4] = Default::default();
    let mut sorts: [[Vec<Sort>; 2]; 4] = Default::default();
    let mut crowds: [Crowd; 4] = Default::default();
    for turn in 0..options.rounds {
        alone.push(run::round(&tables, Kind::Greedy.make(bytes), false, time).await?);
        for at in 0..Kind::ALL.len() {
            // Each variant comes first in some turn.
            let at = (at + turn) % Kind::ALL.len();
            let kind = Kind::ALL[at];
            rounds[at].push(run::round(&tables, kind.make(bytes), true, time).await?);
            for (idle, sorts) in [0, IDLE].into_iter().zip(&mut sorts[at]) {
                sorts.push(sort(&tables, kind, bytes, idle).await?);
            }
            crowd(&tables, kind, bytes, &mut crowds[at]).await?;
        }
    }
    let Options { scale, rounds: turns, seconds, megabytes } = options;
    let most = megabytes / 4 * 3;
    println!(
        "TPC-H at scale {scale}; {megabytes} MB for both tenants, {most} for the analyst in groups."
    );
    println!(
        "{turns} rounds of {seconds} s, in turns; medians (lowest..highest). {}\n",
        table::machine()
    );
    table::neighbours(&alone, &rounds);
    println!("\nA sort alone, beside {IDLE} operators that are registered and hold nothing:\n");
    table::idle(&sorts);
    println!("\n{CROWD} aggregates of the analyst at once:\n");
    table::crowds(&crowds);
    println!("\nWhat joins are told once a sort of the analyst holds what it can get:\n");
    texts::print(bytes);
    Ok(())
}

/// Runs the analyst's sort alone, beside this many idle operators of other queries.
async fn sort(tables: &Tables, kind: Kind, bytes: usize, idle: usize) -> Result<Sort> {
    let pools = kind.make(bytes);
    let other = pools.query(Tenant::Analyst)?;
    let operator = |n| MemoryConsumer::new(format!("ExternalSorter[{n}]")).with_can_spill(true);
    let _idle: Vec<_> = (0..idle).map(|n| operator(n).register(&other.memory_pool)).collect();
    let start = Instant::now();
    let end = run::attempt(tables, pools.query(Tenant::Analyst)?, ANALYST[0].1).await?;
    let seconds = start.elapsed().as_secs_f64();
    let spilled_bytes = match end {
        End::Done(done) => {
            assert!(done.rows > 0, "there is something to sort");
            Some(done.spilled_bytes)
        }
        End::Refused | End::Stuck => None,
    };
    Ok(Sort { seconds, spilled_bytes })
}

/// Runs several of the analyst's aggregates at once.
async fn crowd(tables: &Arc<Tables>, kind: Kind, bytes: usize, crowd: &mut Crowd) -> Result<()> {
    let pools = kind.make(bytes);
    let mut queries = Vec::new();
    for _ in 0..CROWD {
        let (tables, runtime) = (Arc::clone(tables), pools.query(Tenant::Analyst)?);
        let query = async move { run::attempt(&tables, runtime, ANALYST[1].1).await };
        queries.push(tokio::spawn(query));
    }
    for query in queries {
        match query.await.map_err(|error| DataFusionError::External(Box::new(error)))?? {
            End::Done(done) => {
                crowd.done += 1;
                crowd.spilled_bytes += done.spilled_bytes;
            }
            End::Refused => crowd.refused += 1,
            End::Stuck => crowd.stuck += 1,
        }
    }
    Ok(())
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { scale: 0.1, rounds: 5, seconds: 6.0, megabytes: 64 };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
            let wrong = || format!("{name} {value}: not a number above 0");
            let number: f64 = value.parse().map_err(|_| wrong())?;
            if !(number > 0.0 && number < 1e6) {
                return Err(wrong());
            }
            match name.as_str() {
                "--scale" => options.scale = number,
                "--rounds" => options.rounds = number.ceil() as usize,
                "--seconds" => options.seconds = number,
                "--megabytes" => options.megabytes = number.ceil() as usize,
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}
