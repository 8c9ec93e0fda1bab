//! OpenTelemetry: counters of the SDK's meter provider, with the tenant as an attribute.
//!
//! The reader collects only on request and exports nothing, as in a program that is scraped rarely.
//! The SDK's cap of 2,000 attribute sets stays: a bench with fewer tenants does not reach it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, MeterProvider};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics};
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{
    InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Temporality,
};

use crate::{Case, Peer};

/// Returns a counter with prepared attributes, and one whose attributes are built from the tenant's
/// name.
///
/// There is none for levels: the program that stores the metrics sums them over attributes.
pub(crate) fn peers() -> [Peer; 2] {
    let (held, held_counter) = provider();
    let (lookup, counter) = provider();
    let attributes = [KeyValue::new("tenant", "tenant-0000")];
    [
        Peer::new(
            "opentelemetry",
            Case::Held,
            move |requests| requests.iter().for_each(|_| held_counter.add(1, &attributes)),
            move |_| vec![held.total()],
        ),
        Peer::new(
            "opentelemetry",
            Case::Lookup,
            move |requests| {
                for tenant in requests {
                    counter.add(1, &[KeyValue::new("tenant", tenant.clone())]);
                }
            },
            move |_| vec![lookup.total()],
        ),
    ]
}

/// A provider. Dropping it stops its counters.
struct Provided {
    reader: Reader,
    _provider: SdkMeterProvider,
}

fn provider() -> (Provided, Counter<u64>) {
    let reader = Reader(Arc::new(ManualReader::builder().build()));
    let provider = SdkMeterProvider::builder().with_reader(reader.clone()).build();
    let counter = provider.meter("submeter-peers").u64_counter("requests").build();
    (Provided { reader, _provider: provider }, counter)
}

impl Provided {
    fn total(&self) -> u64 {
        let mut collected = ResourceMetrics::default();
        self.reader.collect(&mut collected).expect("the reader is not shut down");
        let metrics = collected.scope_metrics().flat_map(|scope| scope.metrics());
        let sum = |data: &AggregatedMetrics| -> u64 {
            match data {
                AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                    sum.data_points().map(|point| point.value()).sum()
                }
                other => panic!("a counter of u64 became {other:?}"),
            }
        };
        metrics.map(|metric| sum(metric.data())).sum()
    }
}

/// A reader that the test can use while the provider holds it.
#[derive(Clone, Debug)]
struct Reader(Arc<ManualReader>);

impl MetricReader for Reader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}
