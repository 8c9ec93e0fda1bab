//! Scenes of what is said while a finding lasts and after it: in which tense, once, and with which
//! remedy.

use super::{Second, Server, busy};

#[test]
fn the_program_is_asked_for_the_ending_limit() {
    let mut server = Server::new(["/hog", "/quiet"]);
    server.remedy = Some(std::sync::Arc::new(|offence| {
        let requests = offence.figure("requests").filter(|_| offence.kind.is_blame())?;
        assert_eq!((offence.view, offence.figure("none")), ("requests", None));
        Some(format!("rate={}/s", requests / 2.0))
    }));
    let waits = Second { wait_ms: 9.0, ..busy(100.0) };
    server.seconds(3, &[busy(90_000.0), waits]);
    let remedies: Vec<_> = server.docs().into_iter().map(|doc| doc.remedy).collect();
    assert_eq!(
        remedies,
        [Some("rate=45000/s".to_owned()), None],
        "no limit would help the tenant that is harmed"
    );
}

/// A remedy is made of what was found: not of the second after it, nor of the last one, in which it
/// ended.
#[test]
fn a_remedy_is_made_of_what_was_found() {
    let mut server = Server::new(["/over", "/hog", "/quiet"]);
    server.remedy = Some(std::sync::Arc::new(|offence| {
        Some(format!("{}", offence.figure("requests")?.round()))
    }));
    let over = |requests, over_rate| Second { over_rate, rate: Some(1e3), ..busy(requests) };
    let waits = Second { wait_ms: 9.0, ..busy(100.0) };
    let mut proposed = |over: Second, hog: f64, quiet: Second| {
        server.second(&[over, busy(hog), quiet]);
        let docs = server.docs().into_iter().filter(|doc| !doc.kind.is_harm());
        docs.filter_map(|doc| doc.remedy).collect::<Vec<_>>().join(" ")
    };
    for _ in 0..3 {
        proposed(over(3e3, 2e3), 9e4, waits);
    }
    assert_eq!(proposed(over(900.0, 100.0), 5e4, waits), "90000 3000", "it ends in this second");
    for _ in 0..3 {
        assert_eq!(proposed(over(9.0, 0.0), 0.0, busy(100.0)), "90000 3000", "it is over");
    }
    assert_eq!(proposed(over(9.0, 0.0), 0.0, busy(100.0)), "", "nothing is left to end");
    let mut lasting = |hog: f64| proposed(over(9.0, 0.0), hog, waits);
    (0..20).for_each(|_| drop(lasting(9e4)));
    (0..9).for_each(|_| drop(lasting(6e4)));
    assert_eq!(lasting(6e4), "60000", "it has long been so");
}

/// A tenant is said to burst or to take most, not both; and so is a level or one below it.
#[test]
fn one_to_blame_has_one_sentence() {
    let mut server = Server::new(["/hog", "/quiet"]);
    let waits = Second { wait_ms: 9.0, ..busy(100.0) };
    server.seconds(20, &[busy(50_000.0), busy(100.0)]);
    for _ in 0..9 {
        for (requests, verb) in [(120_000.0, " bursts"), (90_000.0, " takes most")] {
            let said = server.seconds(2, &[busy(requests), waits]);
            assert!(said[0].starts_with(&format!("/hog{verb}")), "{said:?}");
            assert!(said[1].starts_with("/quiet waits"), "{said:?}");
        }
    }
    assert!(server.verdicts.past.is_empty(), "it was to blame all along");
    let mut server =
        Server::new(["/team", "/team/a", "/team/b", "/team/c", "/team/d", "/team/e", "/quiet"]);
    let level = Second::default();
    let all = |first: f64, each: f64| {
        let each = busy(each);
        [level, busy(first), each, each, each, each, Second { wait_ms: 9.0, ..busy(100.0) }]
    };
    let one = server.seconds(3, &all(90_000.0, 1000.0));
    assert!(one[0].starts_with("/team/a takes most"), "{one:?}");
    for _ in 0..2 {
        let said = server.seconds(1, &all(20_000.0, 18_000.0));
        assert!(said[0].starts_with("/team/a took most") && !said[0].contains("more"), "{said:?}");
    }
    let said = server.seconds(3, &all(20_000.0, 18_000.0));
    assert!(said[0].starts_with("/team takes most") && said.len() == 2, "{said:?}");
}

/// A finding that is held is said in the past tense, and one that lasts with its newest figures.
#[test]
fn what_is_held_is_said_in_the_past() {
    let mut server = Server::new(["/over", "/also"]);
    let over = |over_rate| Second { over_rate, ..busy(900.0) };
    server.seconds(3, &[over(433.0), over(0.0)]);
    let said = server.seconds(1, &[over(0.0), over(0.0)]);
    assert_eq!(said, ["/over was refused 433 times a second: over its rate."]);
    assert_eq!(server.docs()[0].short, " is refused.", "not read aloud each second");
    let said = server.seconds(2, &[over(0.0), over(50.0)]);
    assert_eq!(said, ["/over was refused 433 times a second: over its rate; 1 more is refused."]);
    let said = server.seconds(1, &[over(12.0), over(0.0)]);
    assert_eq!(said, ["/over is refused 12 times a second: over its rate; 1 more was refused."]);
    let mut server = Server::new(["/a", "/b", "/c"]);
    server.seconds(20, &[300.0, 400.0, 3000.0].map(|n| busy(n * 10.0)));
    let waits = Second { wait_ms: 6.4, ..busy(3000.0) };
    server.seconds(3, &[busy(90_000.0), busy(4000.0), waits]);
    let said = server.seconds(1, &[busy(40_000.0), busy(4000.0), waits]);
    assert!(said[0].starts_with("/a bursts: 85 % of all requests"), "{said:?}");
    let said = server.seconds(1, &[300.0, 400.0, 3000.0].map(|n| busy(n * 10.0)));
    assert!(said[0].starts_with("/a burst: 93 % of all requests"), "{said:?}");
    assert!(said[1].starts_with("/c waited 6.40 ms a request"), "{said:?}");
}
