//! Two tenants at work for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;

use crate::data::{ANALYST, BATCH_ROWS, DASHBOARD, PARTITIONS, Tables};
use crate::variants::{Pools, Tenant};

/// How long a person looks at a page before opening the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Longer than any query takes that makes progress. Near a limit, operators may wait for each other
/// forever.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a query ended.
pub(crate) enum End {
    Done(Done),
    /// Refused for lack of memory.
    Refused,
    /// Did not end, and was dropped.
    Stuck,
}

/// The results of a query.
pub(crate) struct Done {
    pub(crate) rows: usize,
    pub(crate) spilled_bytes: usize,
}

/// What a tenant's queries did in one round.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) latencies: Vec<Duration>,
    pub(crate) spilled_bytes: usize,
    pub(crate) refused: usize,
    pub(crate) stuck: usize,
}

/// One round of one variant.
pub(crate) struct Round {
    pub(crate) seconds: f64,
    pub(crate) analyst: Work,
    pub(crate) dashboard: Work,
    pub(crate) peak: u64,
}

/// Runs one query to its end.
pub(crate) async fn attempt(tables: &Tables, runtime: Arc<RuntimeEnv>, sql: &str) -> Result<End> {
    match tokio::time::timeout(PATIENCE, execute(tables, runtime, sql)).await {
        Err(_) => Ok(End::Stuck),
        Ok(Ok(done)) => Ok(End::Done(done)),
        Ok(Err(error)) => match error.find_root() {
            DataFusionError::ResourcesExhausted(text) => {
                // Kept out of the tables: the operator named differs from run to run.
                eprintln!("refused: {text}");
                Ok(End::Refused)
            }
            _ => Err(error),
        },
    }
}

async fn execute(tables: &Tables, runtime: Arc<RuntimeEnv>, sql: &str) -> Result<Done> {
    let config = SessionConfig::new()
        .with_target_partitions(PARTITIONS)
        .with_batch_size(BATCH_ROWS)
        .with_sort_spill_reservation_bytes(1 << 20);
    let context = SessionContext::new_with_config_rt(config, runtime);
    tables.register(&context)?;
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    let mut stream = execute_stream(Arc::clone(&plan), context.task_ctx())?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows();
    }
    Ok(Done { rows, spilled_bytes: spilled_bytes(&plan) })
}

/// Lets both tenants work for this time; without the analyst, the dashboard has everything to
/// itself.
pub(crate) async fn round(
    tables: &Arc<Tables>,
    pools: Pools,
    with_analyst: bool,
    time: Duration,
) -> Result<Round> {
    let (pools, stop) = (Arc::new(pools), Arc::new(AtomicBool::new(false)));
    let start = Instant::now();
    let spawn = |tenant| {
        let (tables, pools, stop) = (Arc::clone(tables), Arc::clone(&pools), Arc::clone(&stop));
        tokio::spawn(async move { work(&tables, &pools, tenant, &stop).await })
    };
    let analyst = with_analyst.then(|| spawn(Tenant::Analyst));
    let dashboard = spawn(Tenant::Dashboard);
    tokio::time::sleep(time).await;
    // Relaxed: only a flag; `await` hands over what the tasks did.
    stop.store(true, Ordering::Relaxed);
    let joined = |error: tokio::task::JoinError| DataFusionError::External(Box::new(error));
    let dashboard = dashboard.await.map_err(joined)??;
    let analyst = match analyst {
        Some(task) => task.await.map_err(joined)??,
        None => Work::default(),
    };
    Ok(Round { seconds: start.elapsed().as_secs_f64(), analyst, dashboard, peak: pools.peak() })
}

/// Runs one query after the other, until the round is over.
async fn work(tables: &Tables, pools: &Pools, tenant: Tenant, stop: &AtomicBool) -> Result<Work> {
    let queries = match tenant {
        Tenant::Analyst => &ANALYST,
        Tenant::Dashboard => &DASHBOARD,
    };
    let mut work = Work::default();
    for (_, sql) in queries.iter().cycle() {
        // Relaxed: as above.
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        match attempt(tables, pools.query(tenant)?, sql).await? {
            End::Done(done) => {
                work.latencies.push(start.elapsed());
                work.spilled_bytes += done.spilled_bytes;
            }
            End::Refused => work.refused += 1,
            End::Stuck => work.stuck += 1,
        }
        if tenant == Tenant::Dashboard {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(work)
}

/// Returns the bytes that all operators of a plan spilled.
fn spilled_bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.spilled_bytes()).unwrap_or(0);
    own + plan.children().into_iter().map(spilled_bytes).sum::<usize>()
}
