//! An export in which each group has its own counts from its first scrape on.

use std::collections::HashMap;

use submeter::export::Export;

use crate::export::{World, one, samples, world};

/// With `exact`, a group has its own counts from its first scrape, and each scrape adds up.
#[test]
fn exact_series_start_complete_and_add_up() {
    let World { tree, requests, .. } = world();
    let export = Export::new("app").exact();
    let scrape = || {
        let mut text = String::new();
        export.write(&tree, &mut text).expect("a string");
        let of = |name: &str| {
            let all = samples(&text).filter(|(series, _)| series.starts_with(name));
            all.map(|(series, value)| (series.to_owned(), value)).collect::<HashMap<_, _>>()
        };
        (of("app_requests_total"), of("app_requests_created"))
    };
    let (mut last, mut ever) = (0.0, HashMap::new());
    for round in 1..=6_u64 {
        let at = |name: &str| tree.get_or_create(&format!("/{name}")).expect("room");
        at("stays").add(requests, 10);
        // One group lives for one scrape, one is created again and again under its name, one lives
        // between scrapes.
        at(&format!("once{round}")).add(requests, round);
        at("again").add(requests, 2);
        let brief = at("brief");
        brief.add(requests, 1);
        brief.kill().expect("not the root");
        drop(brief);
        let (values, created) = scrape();
        let value = |group: &str| values[&one(group)];
        assert_eq!(value("/stays"), 10.0 * round as f64);
        assert_eq!(value(&format!("/once{round}")), round as f64, "at once");
        assert_eq!(value("/again"), 2.0 * round as f64, "goes on");
        assert_eq!(value("//other"), round as f64);
        // The series of groups that ended keep their last values.
        ever.extend(values.clone());
        assert_eq!(ever.values().sum::<f64>(), tree.root().sum(requests) as f64, "{ever:?}");
        // Not earlier than the scrape that lacked it.
        let since = created[&format!("app_requests_created{{group=\"/once{round}\"}}")];
        assert!(since >= last, "{since} is before {last}");
        last = since;
        for name in [format!("once{round}"), "again".to_owned()] {
            at(&name).kill().expect("not the root");
        }
        tree.flush();
    }
}
