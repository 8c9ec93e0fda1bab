//! Whole queries: with correct results, spilled, cancelled, panicked or refused.

use std::sync::Arc;

use datafusion::arrow::array::{Array, Int64Array};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use submeter::Group;
use submeter_datafusion::{GroupPool, TenantPools};

use crate::World;

const SORT: &str = "SELECT n FROM generate_series(1, 300000) AS t(n) ORDER BY (n * 7919) % 300007";
const GROUP: &str = "SELECT k, count(*), sum(n) FROM \
    (SELECT n, (n * 7919) % 100003 AS k FROM generate_series(1, 300000) AS t(n)) \
    GROUP BY k ORDER BY k";
const JOIN: &str = "SELECT count(*) FROM generate_series(1, 300000) AS a(n) \
    JOIN generate_series(1, 300000) AS b(m) ON n = m";

fn context(runtime: Arc<RuntimeEnv>) -> SessionContext {
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_batch_size(1024)
        .with_sort_spill_reservation_bytes(64 << 10);
    SessionContext::new_with_config_rt(config, runtime)
}

/// Runs a query to its end; returns its rows, and how often it spilled.
async fn run(context: &SessionContext, sql: &str) -> Result<(Vec<RecordBatch>, usize)> {
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    let mut stream = execute_stream(Arc::clone(&plan), context.task_ctx())?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        batches.push(batch?);
    }
    Ok((batches, spills(&plan)))
}

fn spills(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.spill_count()).unwrap_or(0);
    own + plan.children().into_iter().map(spills).sum::<usize>()
}

fn values(batches: &[RecordBatch]) -> Vec<i64> {
    let all = batches.iter().flat_map(|batch| batch.columns().iter().map(move |c| (batch, c)));
    all.flat_map(|(_, column)| {
        let column = column.as_any().downcast_ref::<Int64Array>().expect("a column of i64");
        column.values().to_vec()
    })
    .collect()
}

fn group_of(context: &SessionContext) -> Group {
    GroupPool::of(&context.runtime_env()).expect("a pool of a query").group().clone()
}

/// A query at its limit spills, and returns the same as without a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_at_its_limit_spills() {
    for (sql, limit) in [(SORT, 1 << 20), (GROUP, 4 << 20)] {
        let (right, spilled) = run(&context(Arc::default()), sql).await.expect("there is no limit");
        assert_eq!(spilled, 0);
        let world = World::new();
        let acme = world.tenant("/acme", limit);
        let context = context(TenantPools::new(&acme, world.memory).query().expect("it lives"));
        let group = group_of(&context);
        let (batches, spilled) = run(&context, sql).await.expect("it can spill");
        assert!(spilled > 0, "{sql}: it holds more than its limit");
        let (got, want) = (rows(&batches), rows(&right));
        assert!(got == want && want.len() > 90_000, "{sql}: {} of {} rows", got.len(), want.len());
        let usage = acme.usage(world.memory);
        assert!(usage.peak <= limit && usage.peak > limit / 2, "{sql}: {usage:?}");
        drop(context);
        assert!(group.is_killed() && world.current(&acme) == 0);
    }
}

/// Returns each row's values in order, whatever the batches.
fn rows(batches: &[RecordBatch]) -> Vec<Vec<i64>> {
    let row = |batch: &RecordBatch, at: usize| values(&[batch.slice(at, 1)]);
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |at| row(batch, at))).collect()
}

/// A query that cannot spill is refused, and its neighbour is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_cannot_spill_is_refused_alone() {
    let world = World::new();
    world.tree.root().set_limit(world.memory, Some(1 << 30));
    let (small, large) = (world.tenant("/small", 1 << 20), world.tenant("/large", 1 << 29));
    let [small_pools, large_pools] =
        [&small, &large].map(|tenant| TenantPools::new(tenant, world.memory));
    let refused = run(&context(small_pools.query().expect("it lives")), JOIN).await;
    let refused = refused.expect_err("a hash table of 300,000 rows in 1 MB");
    let DataFusionError::ResourcesExhausted(text) = refused.find_root() else {
        panic!("{refused}: not for lack of memory")
    };
    assert!(text.contains("for HashJoinInput") && text.contains("the limit of /small: "), "{text}");
    let (batches, _) =
        run(&context(large_pools.query().expect("it lives")), JOIN).await.expect("it fits");
    assert_eq!(values(&batches), [300_000]);
    assert_eq!(
        [&small, &large].map(|tenant| (world.current(tenant), tenant.child_count())),
        [(0, 0); 2]
    );
    assert!(small.usage(world.memory).refused > 0 && large.usage(world.memory).refused == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_dropped_half_way_gives_all_back() {
    let world = World::new();
    let acme = world.tenant("/acme", 1 << 20);
    let context = context(TenantPools::new(&acme, world.memory).query().expect("it lives"));
    let group = group_of(&context);
    let plan = context.sql(SORT).await.expect("it parses").create_physical_plan().await;
    let mut stream = execute_stream(plan.expect("a plan"), context.task_ctx()).expect("it starts");
    let first = stream.next().await.expect("a batch").expect("it can spill");
    assert!(first.num_rows() > 0 && world.current(&acme) > 0, "in the middle of it");
    drop((stream, context));
    // Aborted tasks end at their next poll, on threads of the runtime.
    for _ in 0..10_000 {
        if group.is_killed() && world.current(&acme) == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{} bytes are held after 10 s", world.current(&acme));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_panics_gives_all_back() {
    let world = World::new();
    let acme = world.tenant("/acme", 1 << 20);
    let context = context(TenantPools::new(&acme, world.memory).query().expect("it lives"));
    let panics = |arguments: &[ColumnarValue]| -> Result<ColumnarValue> {
        let ColumnarValue::Array(values) = &arguments[0] else { panic!("a column") };
        let values = values.as_any().downcast_ref::<Int64Array>().expect("a column of i64");
        assert!(values.iter().flatten().all(|n| n < 250_000), "on purpose");
        Ok(arguments[0].clone())
    };
    let types = (vec![DataType::Int64], DataType::Int64);
    context.register_udf(create_udf(
        "panics",
        types.0,
        types.1,
        Volatility::Volatile,
        Arc::new(panics),
    ));
    let sql =
        "SELECT panics(n) FROM generate_series(1, 300000) AS t(n) ORDER BY (n * 7919) % 300007, 1";
    let ended = tokio::spawn(async move { run(&context, sql).await.map(|_| ()) }).await;
    assert!(!matches!(ended, Ok(Ok(()))), "it panics");
    for _ in 0..10_000 {
        if acme.child_count() == 0 && world.current(&acme) == 0 {
            assert!(acme.usage(world.memory).peak > 100_000, "it panicked with memory reserved");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("{} bytes are held after 10 s", world.current(&acme));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_of_one_tenant_at_once_share_its_limit() {
    let world = World::new();
    let acme = world.tenant("/acme", 8 << 20);
    let pools = TenantPools::new(&acme, world.memory);
    let queries: Vec<_> = (0..4)
        .map(|_| {
            let context = context(pools.query().expect("it lives"));
            tokio::spawn(async move { run(&context, SORT).await })
        })
        .collect();
    let (mut ended, mut spilled) = (0, 0);
    for query in queries {
        match query.await.expect("no panic") {
            Ok((batches, spills)) => {
                assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 300_000);
                ended += 1;
                spilled += spills;
            }
            // A merge cannot spill, and may find its room taken.
            Err(error) => {
                let text = error.find_root().to_string();
                assert!(text.contains("would exceed the limit of /acme: "), "{text}");
            }
        }
    }
    let usage = acme.usage(world.memory);
    assert!(ended > 0 && spilled > 0 && usage.peak <= 8 << 20, "{ended}, {spilled}, {usage:?}");
    assert_eq!((usage.current, acme.child_count()), (0, 0));
}
