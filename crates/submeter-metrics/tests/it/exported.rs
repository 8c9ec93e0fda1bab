//! The exported text.

use metrics::{Unit, counter, describe_counter, gauge, histogram, with_local_recorder};
use submeter::Buckets;
use submeter_metrics::Slots;

use super::{recorder, text};

/// The text has the program's names, labels and descriptions.
#[test]
fn the_text_has_the_programs_names_and_labels() {
    let (tree, recorder) = recorder(Slots::new().buckets(1000, Buckets::powers(2, 12)));
    let acme = tree.create("/acme").expect("room");
    acme.run(|| {
        with_local_recorder(&recorder, || {
            describe_counter!("http.requests", Unit::Count, "Requests \"answered\"");
            counter!("http.requests", "route" => "/a\n").increment(2);
            gauge!("load").set(-0.125);
            histogram!("wait").record(0.25);
            histogram!("wait").record(100.0);
        });
    });
    let text = text(&tree, &recorder);
    for line in [
        "# TYPE app_http_requests counter",
        "# HELP app_http_requests Requests \\\"answered\\\" (with descendants)",
        "app_http_requests_total{group=\"/acme\",route=\"/a\\n\"} 2",
        "app_http_requests_total{group=\"/\",route=\"/a\\n\"} 2",
        "app_load{group=\"/acme\"} -0.125",
        "app_wait_bucket{group=\"/acme\",le=\"0.256\"} 1",
        "app_wait_bucket{group=\"/acme\",le=\"+Inf\"} 2",
        "app_wait_sum{group=\"/acme\"} 100.25",
        "app_wait_count{group=\"/acme\"} 2",
        "app_metrics_unplaced_updates_total{group=\"/acme\"} 0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line:?} is missing in\n{text}");
    }
    assert!(!text.contains("counter_0"), "a slot's own name in\n{text}");
}

#[test]
fn a_name_of_two_kinds_becomes_two_families() {
    let (tree, recorder) = recorder(Slots::new());
    with_local_recorder(&recorder, || {
        gauge!("x").set(1.0);
        counter!("x").increment(2);
        histogram!("x").record(3.0);
        counter!("metrics_unfit_values").increment(4);
    });
    let text = text(&tree, &recorder);
    for line in [
        "# TYPE app_x gauge",
        "# TYPE app_x_2 counter",
        "# TYPE app_x_3 histogram",
        "app_x{group=\"/\"} 1",
        "app_x_2_total{group=\"/\"} 2",
        "app_x_3_count{group=\"/\"} 1",
        "app_metrics_unfit_values_total{group=\"/\"} 0",
        "app_metrics_unfit_values_2_total{group=\"/\"} 4",
    ] {
        assert!(text.lines().any(|known| known == line), "{line:?} is missing in\n{text}");
    }
    let mut types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let all = types.len();
    types.dedup();
    assert_eq!(types.len(), all, "a family twice in\n{text}");
}
