//! Tables of things that are not in the tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::wire::{CellDoc, ColumnKind, Shape, TreeDoc};
use super::World;
use super::stream::Events;
use crate::{Column, Panel};

fn disks() -> Panel {
    let columns = vec![
        Column::label("disk", "Disk"),
        Column::state("state", "State", "How it is", &["good", "slow"]),
        Column::gauge("free", "Free", "Bytes that are free"),
        Column::counter("reads", "Reads", "Blocks read"),
        Column::text("note", "Note"),
    ];
    Panel::new("disk", "Disks", columns).rows(|| {
        let free = |n: Option<u64>| CellDoc::figure(n, Shape::Bytes);
        let reads = CellDoc::figure(7, Shape::Count);
        let odd = "s\"d\\a\n#".into();
        vec![
            vec![odd, "slow".into(), free(Some(4096)), reads.clone(), "hot".into()],
            vec!["sdb".into(), "good".into(), free(None), reads, "".into()],
        ]
    })
}

#[test]
fn a_table_is_in_the_json_and_in_the_events() {
    let world = World::with(|shown| shown.panel(disks()));
    let tree: TreeDoc = serde_json::from_str(&world.get("/api/tree").body).expect("JSON");
    let [panel] = &tree.panels[..] else { panic!("{:?}", tree.panels) };
    assert_eq!((panel.key.as_str(), panel.title.as_str()), ("disk", "Disks"));
    assert_eq!(panel.columns[1].kind, ColumnKind::State);
    assert_eq!(panel.columns[1].states, ["good", "slow"]);
    assert_eq!(panel.rows, disks().doc().rows);
    let none: TreeDoc = serde_json::from_str(&World::start().get("/api/tree").body).expect("JSON");
    assert!(none.panels.is_empty());
}

#[test]
fn a_notice_is_there_for_as_long_as_it_is_so() {
    let is_so = Arc::new(AtomicBool::new(false));
    let shown = is_so.clone();
    let world = World::with(move |dashboard| {
        // Relaxed, as below: only a flag.
        let learns = move || shown.load(Ordering::Relaxed).then(|| "The bank learns.".to_owned());
        dashboard.notice(|| Some("Metering is off.".to_owned())).notice(learns)
    });
    let mut events = Events::join(&world);
    let (_, first) = events.next().expect("an event");
    assert_eq!(first["server"]["notice"], "Metering is off.");
    is_so.store(true, Ordering::Relaxed);
    let both = "Metering is off. The bank learns.";
    events.find(|_, event| (event["notice"] == both).then_some(()));
    assert_eq!(world.json("/api/tree")["server"]["notice"], both);
    is_so.store(false, Ordering::Relaxed);
    events.find(|_, event| (event["notice"] == "Metering is off.").then_some(()));
}

#[test]
fn a_tables_figures_are_metrics_with_its_labels() {
    let world = World::with(|shown| shown.panel(disks()));
    let odd = "disk=\"s\\\"d\\\\a\\n#\"";
    let open = world.request_with(
        "GET",
        "/metrics",
        &["Host: localhost", "Accept: application/openmetrics-text; version=1.0.0"],
    );
    for line in [
        "# TYPE program_disk_state stateset".to_owned(),
        format!("program_disk_state{{{odd},program_disk_state=\"good\"}} 0"),
        format!("program_disk_state{{{odd},program_disk_state=\"slow\"}} 1"),
        "# HELP program_disk_free Bytes that are free".to_owned(),
        format!("program_disk_free{{{odd}}} 4096"),
        "# TYPE program_disk_reads counter".to_owned(),
        "program_disk_reads_total{disk=\"sdb\"} 7".to_owned(),
    ] {
        assert!(open.body.lines().any(|found| found == line), "{line}: {}", open.body);
    }
    assert!(!open.body.contains("program_disk_free{disk=\"sdb\"}"), "what is not known is no 0");
    assert!(!open.body.contains("_note"), "{}", open.body);
    assert!(open.body.ends_with("# EOF\n") && open.body.matches("# EOF").count() == 1);
    let plain = world.get("/metrics").body;
    for line in ["# TYPE program_disk_state gauge", "# TYPE program_disk_reads_total counter"] {
        assert!(plain.lines().any(|found| found == line), "{line}: {plain}");
    }
}

/// A table without labels has well-formed metrics too.
#[test]
fn a_table_without_labels_has_metrics_too() {
    let columns = vec![
        Column::state("state", "State", "How it is", &["good", "slow"]),
        Column::gauge("free", "Free", "Bytes that are free"),
    ];
    let row = || vec!["slow".into(), CellDoc::figure(7, Shape::Bytes)];
    let disk = Panel::new("disk", "Disk", columns).rows(move || vec![row()]);
    let metrics = World::with(|shown| shown.panel(disk)).get("/metrics").body;
    for line in ["program_disk_state{program_disk_state=\"slow\"} 1", "program_disk_free{} 7"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}
