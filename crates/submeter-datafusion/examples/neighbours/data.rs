//! TPC-H's tables, generated in memory, and the queries of two tenants.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchReader};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use tpchgen::generators::{CustomerGenerator, LineItemGenerator, OrderGenerator};
use tpchgen_arrow::{CustomerArrow, LineItemArrow, OrderArrow};

/// Number of rows in a batch. DataFusion's 8192 are a good part of the small limits here.
pub(crate) const BATCH_ROWS: usize = 2048;
/// Number of partitions of each table and each query.
pub(crate) const PARTITIONS: usize = 2;

/// Reports and exports: each needs far more memory than its tenant may have.
pub(crate) const ANALYST: [(&str, &str); 3] = [
    (
        "sort",
        "SELECT l_orderkey, l_partkey, l_shipdate, l_extendedprice, l_comment FROM lineitem \
         ORDER BY l_extendedprice, l_comment, l_orderkey",
    ),
    (
        "group",
        "SELECT l_orderkey, l_partkey, sum(l_quantity), max(l_comment) FROM lineitem \
         GROUP BY l_orderkey, l_partkey",
    ),
    ("distinct", "SELECT count(*) FROM (SELECT DISTINCT l_comment, l_suppkey FROM lineitem)"),
];

/// The queries of a page: TPC-H's first, third and sixth. The third has hash tables, which cannot
/// spill.
pub(crate) const DASHBOARD: [(&str, &str); 3] = [
    (
        "q1",
        "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), \
         sum(l_extendedprice * (1 - l_discount)), avg(l_quantity), avg(l_discount), count(*) \
         FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' \
         GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
    ),
    (
        "q3",
        "SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, \
         o_shippriority FROM customer JOIN orders ON c_custkey = o_custkey \
         JOIN lineitem ON l_orderkey = o_orderkey WHERE c_mktsegment = 'BUILDING' \
         AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15' \
         GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate \
         LIMIT 10",
    ),
    (
        "q6",
        "SELECT sum(l_extendedprice * l_discount) FROM lineitem \
         WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' \
         AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
];

/// The tables, shared by every query.
pub(crate) struct Tables(Vec<(&'static str, Arc<MemTable>)>);

impl Tables {
    /// Generates the tables; at scale 1 `lineitem` has six million rows.
    pub(crate) fn generate(scale: f64) -> Result<Tables> {
        let parts = PARTITIONS as i32;
        let each = |make: &dyn Fn(i32) -> (SchemaRef, Vec<RecordBatch>)| {
            let made: Vec<_> = (1..=parts).map(make).collect();
            let schema = Arc::clone(&made[0].0);
            MemTable::try_new(schema, made.into_iter().map(|(_, batches)| batches).collect())
        };
        let lineitem = each(&|part| {
            let rows = LineItemGenerator::new(scale, part, parts);
            batches(LineItemArrow::new(rows).with_batch_size(BATCH_ROWS))
        })?;
        let orders = each(&|part| {
            let rows = OrderGenerator::new(scale, part, parts);
            batches(OrderArrow::new(rows).with_batch_size(BATCH_ROWS))
        })?;
        let customer = each(&|part| {
            let rows = CustomerGenerator::new(scale, part, parts);
            batches(CustomerArrow::new(rows).with_batch_size(BATCH_ROWS))
        })?;
        let tables = [("lineitem", lineitem), ("orders", orders), ("customer", customer)];
        Ok(Tables(tables.map(|(name, table)| (name, Arc::new(table))).into()))
    }

    pub(crate) fn register(&self, context: &SessionContext) -> Result<()> {
        for (name, table) in &self.0 {
            context.register_table(*name, Arc::clone(table) as _)?;
        }
        Ok(())
    }
}

fn batches(made: impl RecordBatchReader) -> (SchemaRef, Vec<RecordBatch>) {
    let schema = made.schema();
    (schema, made.map(|batch| batch.expect("a generated batch is well formed")).collect())
}
