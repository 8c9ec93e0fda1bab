//! Tests of the three formats, character by character.

use super::*;

fn clock(ns: u64) -> CountDoc {
    CountDoc {
        group: Some("/acme/web".to_owned()),
        event: "task-clock".to_owned(),
        state: StateDoc::Counted { value: ns },
        enabled_ns: ns,
        running_ns: ns,
    }
}

fn shared(value: u64, enabled_ns: u64, running_ns: u64) -> CountDoc {
    let event = "cycles:u".to_owned();
    CountDoc { group: None, event, state: StateDoc::Counted { value }, enabled_ns, running_ns }
}

fn missing() -> CountDoc {
    let state = StateDoc::NotSupported { reason: "no such counter".to_owned() };
    let event = "instructions".to_owned();
    CountDoc { group: None, event, state, enabled_ns: 0, running_ns: 0 }
}

fn line(format: Format, at_ns: Option<u64>, count: &CountDoc) -> String {
    Printer::new(format, "http://x".to_owned(), at_ns.is_some(), Destination::Output).line(
        at_ns,
        count,
        2_000_000_000,
    )
}

#[test]
fn text_output_matches_perf() {
    let at = Some(1_000_123_456);
    assert_eq!(
        line(Format::People, None, &clock(1_500_000_000)),
        "          1,500.00 msec task-clock                /acme/web            #    0.750 CPUs utilized\n"
    );
    assert_eq!(
        line(Format::People, at, &shared(1_000_000, 4_000_000, 1_000_000)),
        "     1.000123456          4,000,000      cycles:u                                        (25.00%)\n"
    );
    assert_eq!(line(Format::People, None, &missing()), "   <not supported>      instructions\n");
}

/// A name from right to left moves no figure beside it, and columns are as wide as what is in them.
#[test]
fn names_leave_figures_in_their_places() {
    let of = |name: &str| CountDoc { group: Some(name.to_owned()), ..clock(1_500_000_000) };
    let line = |is_terminal, name: &str| {
        let mut printer = Printer::new(Format::People, String::new(), false, Destination::Output);
        printer.is_terminal = is_terminal;
        printer.line(None, &of(name), 2_000_000_000)
    };
    let start = "          1,500.00 msec task-clock                ";
    let end = " #    0.750 CPUs utilized\n";
    for (is_terminal, name, shown) in [
        (true, "/שלום 1", "/\u{2068}שלום 1\u{2069}             "),
        (false, "/שלום 1", "/שלום 1             "),
        (true, "/租", "/租                 "),
        (true, "/a\u{202e}", "/a\\u{202e}          "),
    ] {
        assert_eq!(line(is_terminal, name), format!("{start}{shown}{end}"), "{name}");
    }
}

#[test]
fn fields_are_in_perfs_order() {
    let fields = || Format::Fields(",".to_owned());
    assert_eq!(
        line(fields(), Some(2_000_000_000), &clock(1_500_000_000)),
        "2.000000000,1500.000000,msec,task-clock,/acme/web,1500000000,100.00,0.750,CPUs utilized\n"
    );
    assert_eq!(line(fields(), None, &shared(3, 40, 10)), "12,,cycles:u,,10,25.00,,\n");
    assert_eq!(line(fields(), None, &missing()), "<not supported>,,instructions,,0,0.00,,\n");
}

#[test]
fn json_has_perfs_names() {
    assert_eq!(
        line(Format::Json, Some(500_000_000), &clock(1_000_000)),
        "{\"interval\":0.5,\"counter-value\":\"1.000000\",\"unit\":\"msec\",\"event\":\"task-clock\",\
         \"cgroup\":\"/acme/web\",\"event-runtime\":1000000,\"pcnt-running\":100.0,\
         \"metric-value\":\"0.001\",\"metric-unit\":\"CPUs utilized\"}\n"
    );
    assert_eq!(
        line(Format::Json, None, &missing()),
        "{\"counter-value\":\"<not supported>\",\"unit\":\"\",\"event\":\"instructions\",\
         \"event-runtime\":0,\"pcnt-running\":0.0}\n"
    );
}

fn totals(elapsed_ns: u64, is_due: bool, counted_ns: u64) -> StatDoc {
    StatDoc { elapsed_ns, is_due, threads: 1, counts: vec![clock(counted_ns)] }
}

#[test]
fn an_interval_begins_where_the_last_one_ended() {
    let mut printer =
        Printer::new(Format::Fields(",".to_owned()), String::new(), true, Destination::Output);
    assert_eq!(
        printer.interval(totals(1_000_000_000, true, 250_000_000)),
        "1.000000000,250.000000,msec,task-clock,/acme/web,250000000,100.00,0.250,CPUs utilized\n"
    );
    // Totals between intervals are kept for the end, and do not shorten the next interval.
    assert!(printer.add(totals(1_100_000_000, false, 300_000_000)).expect("written"));
    assert_eq!(printer.shown, Some(totals(1_000_000_000, true, 250_000_000)));
    assert_eq!(printer.last, Some(totals(1_100_000_000, false, 300_000_000)));
    assert_eq!(
        printer.interval(totals(1_500_000_000, false, 750_000_000)),
        "1.500000000,500.000000,msec,task-clock,/acme/web,500000000,100.00,1.000,CPUs utilized\n"
    );
}

#[test]
fn several_runs_are_mean_and_variation() {
    let run = |ns| totals(1_000_000_000, true, ns);
    let (mean, varies) = repeated(&[run(90), run(100), run(110)]);
    assert_eq!(mean.counts, [clock(100)]);
    let part = varies[0].expect("counted in each");
    assert!((part - 10.0 / 3f64.sqrt() / 100.0).abs() < 1e-9, "{part}");
    assert_eq!(repeated(&[run(90)]), (run(90), vec![None]));
    let lacks = StatDoc { counts: vec![missing()], ..run(5) };
    assert_eq!(repeated(&[lacks.clone(), lacks]).1, [None]);
}

#[test]
fn events_that_lack_for_one_reason_are_one_line() {
    let lacks = |event: &str| CountDoc { event: event.to_owned(), ..missing() };
    let counts = vec![lacks("cycles"), clock(7), lacks("branches"), lacks("cycles")];
    let mut printer = Printer::new(Format::Json, String::new(), true, Destination::Output);
    let totals = StatDoc { counts, ..totals(1, false, 0) };
    printer.explain(&totals);
    printer.explain(&totals);
    assert_eq!(printer.told, ["cycles, branches: no such counter"]);
}
