//! Scenes of limits: which tenant is at one, and which can be why another is.

use super::{LOOKS, Second, Server, busy};

/// A tenant at a limit of its own is named, and harms nobody.
#[test]
fn who_is_at_its_own_limit_harms_nobody() {
    let mut server = Server::new(["/a", "/b", "/c"]);
    let over = Second { over_rate: 7770.0, rate: Some(1000.0), ..busy(8770.0) };
    let stalled = Second { stalled: 0.37, ..busy(30.0) };
    let said = server.seconds(2, &[busy(10.0), over, stalled]);
    let refused = "/b is refused 7770 times a second: over its rate of 1000/s.";
    assert_eq!(said, [refused, "/c waits for room: 37 % of the last 10 s."]);
    let nothing = Second { over_rate: 70.0, rate: Some(0.0), ..busy(70.0) };
    let said = server.seconds(6, &[busy(10.0), nothing, busy(10.0)]);
    assert_eq!(said, ["/b is refused 70 times a second: over its rate of 0/s."]);
    let less = Second { stalled: 0.009, ..stalled };
    assert!(server.seconds(5, &[busy(10.0), busy(10.0), less]).is_empty(), "noise");
}

/// Where requests over their rate wait, they are throttled and not refused, however often they ask.
#[test]
fn what_waits_for_its_rate_is_not_refused() {
    let mut server = Server::delaying(["/lim", "/also", "/calm"]);
    server.remedy = Some(std::sync::Arc::new(|of| Some(format!("{:?} {}", of.kind, of.view))));
    let over = |over_rate| Second { over_rate, rate: Some(100.0), ..busy(100.0) };
    let calm = busy(100.0);
    let said = server.seconds(1, &[over(132.0), calm, calm]);
    assert!(said.is_empty(), "found once: {said:?}");
    let said = server.seconds(2, &[over(132.0), calm, calm]);
    assert_eq!(said, ["/lim is throttled: over its rate of 100/s."]);
    assert_eq!(server.docs()[0].remedy.as_deref(), Some("Throttled over"));
    let said = server.seconds(2, &[over(132.0), over(9.0), calm]);
    assert_eq!(said, ["/lim is throttled: over its rate of 100/s; 1 more is throttled."]);
    assert_eq!(
        server.seconds(1, &[calm; 3]),
        ["/lim was throttled: over its rate of 100/s; 1 more was throttled."]
    );
    assert!(!server.views.docs().any(|doc| doc.key == "over" && doc.is_refusal));
    // Waiting for room is something else.
    let both = Second { stalled: 0.2, ..over(9.0) };
    let said = server.seconds(9, &[calm, both, calm]);
    let room = "/also waits for room: 20 % of the last 10 s.";
    assert_eq!(said, ["/also is throttled: over its rate of 100/s.", room]);
}

#[test]
fn who_waits_for_itself_accuses_nobody() {
    let waits = Second { wait_ms: 400.0, ..busy(100.0) };
    let limited = Second { over_rate: 100.0, ..waits };
    let mut server = Server::new(["/large", "/slow"]);
    let said = server.seconds(3, &[busy(90_000.0), limited]);
    assert_eq!(said, ["/slow is refused 100 times a second: over its rate."]);
    let mut server = Server::new(["/alone", "/idle"]);
    assert!(server.seconds(3, &[waits, busy(0.0)]).is_empty(), "behind what it sent itself");
}

/// A level's refusals by its own limit are reported for it, and for none below.
#[test]
fn a_levels_refusals_are_said_of_none_below() {
    let mut server = Server::new(["/acme", "/acme/a", "/acme/b"]);
    let own = Second { over_rate: 500.0, ..Second::default() };
    let said = server.seconds(2, &[own, busy(9.0), busy(9.0)]);
    assert_eq!(said, ["/acme is refused 500 times a second: over its rate."]);
    let below = Second { over_rate: 70.0, ..busy(90.0) };
    let said = server.seconds(5, &[Second::default(), below, busy(9.0)]);
    assert_eq!(said, ["/acme/a is refused 70 times a second: over its rate."]);
}

/// Who takes most of a level's limit is named, and needs a limit of its own.
#[test]
fn who_takes_most_of_a_levels_limit_is_named() {
    let names = ["/acme", "/acme/deep", "/acme/deep/web", "/acme/deep/sib", "/bank"];
    let level = Second { over_rate: 6200.0, rate: Some(500.0), ..Second::default() };
    let said = |level: Second, [web, sib]: [Second; 2]| {
        let mut server = Server::new(names);
        server.remedy = Some(std::sync::Arc::new(|of| {
            Some(format!("{:?} {:?}", of.shared, of.figure("requests")))
        }));
        let said = server.seconds(3, &[level, Second::default(), web, sib, busy(60.0)]);
        (said, server.docs().into_iter().map(|doc| doc.remedy).collect::<Vec<_>>())
    };
    let (named, remedies) = said(level, [busy(6640.0), busy(60.0)]);
    let takes = "/acme/deep/web takes most: 99.1 % of the requests of /acme.";
    let refused = "/acme is refused 6200 times a second: over its rate of 500/s.";
    assert_eq!(named, [takes, refused]);
    assert_eq!(remedies, [Some("Some(500.0) Some(6640.0)".to_owned()), None], "no more for all");
    let (alike, remedies) = said(level, [busy(3400.0), busy(3300.0)]);
    assert_eq!(alike, [refused]);
    assert!(remedies[0].is_some());
    assert_eq!(said(level, [busy(6700.0), busy(0.0)]).0, [refused], "it is alone");
    let own = Second { over_rate: 9.0, ..busy(6640.0) };
    let limited = said(level, [own, busy(60.0)]).0;
    assert!(limited[0].starts_with("/acme is refused"), "at its own limit, too: {limited:?}");
}

/// Who holds the memory of a full server is named, and is not its victim.
#[test]
fn who_leaves_no_room_is_named() {
    let said = |hoard: Second, limit: f64, own: Option<f64>| {
        let mut server = Server::new(["/hoard", "/bank", "/calm"]);
        server.own.limit = Some(limit);
        let bank = Second { no_room: 60.0, memory: 3e4, limit: own, ..busy(60.0) };
        let calm = Second { memory: 3e4, ..busy(60.0) };
        server.seconds(3, &[Second { memory: 1.94e6, ..hoard }, bank, calm])
    };
    let takes = "/hoard takes most: 97 % of all memory.";
    let refused = "/bank is refused 60 times a second: no room.";
    assert_eq!(said(busy(0.0), 2e6, None), [takes, refused], "it is silent");
    let also = Second { no_room: 400.0, ..busy(400.0) };
    assert_eq!(said(also, 2e6, None), [takes, refused], "nor is it named as one");
    assert_eq!(said(busy(0.0), 6e7, None), [refused], "there is room");
    assert_eq!(said(busy(0.0), 2e6, Some(3e4)), [refused], "full at its own limit");
    let kept = Second { protected: Some(2e6), ..busy(0.0) };
    assert_eq!(said(kept, 2e6, None), [refused], "it was promised that much");
}

/// A tenant that takes most of the server, and a level with a limit of its own, one of whose two
/// tenants waits.
const NAMES: [&str; 5] = ["/large", "/acme", "/acme/noisy", "/acme/web", "/quiet"];

/// What `NAMES` do in a second, and what is reported from the second second on.
fn said(large: f64, level: Second, noisy: f64, [web, quiet]: [Second; 2]) -> Vec<String> {
    Server::new(NAMES).seconds(3, &[busy(large), level, busy(noisy), web, quiet])
}

fn waits() -> Second {
    Second { wait_ms: 9.0, ..busy(100.0) }
}

#[test]
fn waits_for_a_levels_rate_blame_none_outside() {
    let level = Second { over_rate: 500.0, rate: Some(1000.0), ..Second::default() };
    let refused = "/acme is refused 500 times a second: over its rate of 1000/s.";
    let calm = busy(100.0);
    let takes = "/acme/noisy takes most: 90 % of the requests of /acme.";
    let own = said(90_000.0, level, 900.0, [waits(), calm]);
    assert_eq!(own, [takes, refused], "of the level's");
    let even = said(90_000.0, level, 100.0, [waits(), calm]);
    assert_eq!(even, [refused]);
    // Another below it takes most of the server, and with it of the rate.
    let takes = "/acme/noisy takes most: 87 % of all requests and 87 % of CPU.";
    let is_late = "/acme/web waits 9.00 ms a request, 900 times as long as its work.";
    let noisy = said(9000.0, level, 60_000.0, [waits(), calm]);
    assert_eq!(noisy, [takes, is_late, refused]);
    // If a tenant without a limit waits too, the server is too busy.
    let takes = "/large takes most: 99 % of all requests and 99 % of CPU.";
    let is_late = "/quiet waits 9.00 ms a request, 900 times as long as its work.";
    let busy = said(90_000.0, level, 900.0, [waits(), waits()]);
    assert_eq!(busy[1..], [is_late, refused]);
    assert!(busy[0].starts_with(takes.trim_end_matches('.')), "{busy:?}");
}

#[test]
fn waits_for_a_levels_memory_blame_none_outside() {
    let level = Second { over_limit: 500.0, limit: Some(2e6), ..Second::default() };
    let refused = "/acme is refused 500 times a second: over its memory of 1.91 MiB.";
    assert_eq!(said(90_000.0, level, 900.0, [waits(), busy(100.0)]), [refused]);
}

#[test]
fn a_wait_for_an_own_limit_blames_nobody() {
    let calm = busy(100.0);
    let over_rate = Second { over_rate: 40.0, rate: Some(100.0), ..waits() };
    let refused = "/acme/web is refused 40 times a second: over its rate of 100/s.";
    assert_eq!(said(9000.0, Second::default(), 60_000.0, [over_rate, calm]), [refused]);
    let over_limit = Second { over_limit: 40.0, limit: Some(1e6), ..waits() };
    let refused = "/acme/web is refused 40 times a second: over its memory of 977 KiB.";
    assert_eq!(said(9000.0, Second::default(), 60_000.0, [over_limit, calm]), [refused]);
    // For room at an unknown limit.
    let stalls = Second { stalled: 0.2, ..waits() };
    let room = "/acme/web waits for room: 20 % of the last 10 s.";
    assert_eq!(said(9000.0, Second::default(), 60_000.0, [stalls, calm]), [room]);
}

#[test]
fn a_wait_for_a_limit_of_all_blames_the_largest() {
    let mut server = Server::new(["/large", "/web"]);
    // No tenant counts the refusals of the root's own limit.
    server.own.over_rate = 500.0;
    let said = server.seconds(3, &[busy(90_000.0), waits()]);
    assert_eq!(said[0], "/large takes most: 99.9 % of all requests and 99.9 % of CPU.");
    assert_eq!(said[1..], ["/web waits 9.00 ms a request, 900 times as long as its work."]);
}

#[test]
fn the_nearest_limit_is_why_its_tenants_wait() {
    const NAMES: [&str; 5] = ["/a", "/a/b", "/a/b/web", "/a/b/calm", "/a/noisy"];
    let limited = Second { over_rate: 50.0, ..Second::default() };
    let said = |outer: Second, inner: Second| {
        let tenants = [outer, inner, waits(), busy(100.0), busy(90_000.0)];
        Server::new(NAMES).seconds(3, &tenants).join("\n")
    };
    let only = said(limited, Second::default());
    assert!(only.contains("/a/noisy takes most") && only.contains("/a is refused"), "{only}");
    let both = said(limited, limited);
    let takes = "/a/noisy takes most: 99.8 % of the requests of /a.";
    let refused = "/a is refused 50 times a second: over its rate; 1 more is refused.";
    assert_eq!(both, format!("{takes}\n{refused}"));
}

/// Several that wait for a level's limit say nothing of the server.
#[test]
fn waits_at_a_level_say_nothing_of_the_server() {
    let mut server = Server::new(["/acme", "/acme/a", "/acme/b", "/other"]);
    let level = Second { over_rate: 50.0, ..Second::default() };
    let said = server.seconds(3, &[level, waits(), waits(), busy(100.0)]);
    assert_eq!(said, ["/acme is refused 50 times a second: over its rate."]);
}

#[test]
fn waits_for_own_limits_hide_no_others_queue() {
    const NAMES: [&str; 20] = [
        "/large", "/slow", "/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/i", "/j", "/k", "/l",
        "/m", "/n", "/o", "/p", "/q", "/r",
    ];
    let limited = Second { over_rate: 9.0, ..busy(100.0) };
    let mut all = [limited; 20];
    (all[0], all[1]) = (busy(90_000.0), waits());
    let said = Server::new(NAMES).seconds(3, &all);
    assert!(said[0].starts_with("/large takes most"), "{said:?}");
}

/// A tenant that is slow, or gets less, at a limit accuses none that has no part in that limit.
#[test]
fn slow_at_a_limit_accuses_none_outside_of_it() {
    let calm = [3000.0, 0.0, 400.0, 300.0].map(busy);
    let said = |level: Second| {
        let mut server = Server::without_waits(["/batch", "/acme", "/acme/a", "/acme/b"]);
        server.seconds(20, &calm);
        let now = [busy(9000.0), level, busy(200.0), busy(300.0)];
        server.seconds(3, &now).join("\n")
    };
    let free = said(Second::default());
    assert!(free.contains("/batch bursts") && free.contains("/acme/a gets less"), "{free}");
    let limited = said(Second { over_rate: 200.0, ..Second::default() });
    assert_eq!(limited, "/acme is refused 200 times a second: over its rate.");
}

#[test]
fn what_a_new_limit_takes_none_outside_took() {
    let memory = |memory: f64, hits: f64| Second { memory, hits: Some(hits), ..busy(1000.0) };
    let said = |level: Second, web: Second| {
        let mut server = Server::new(["/other", "/acme", "/acme/web"]);
        server.seconds(20, &[memory(1e7, 0.9), Second::default(), memory(5e7, 0.95)]);
        for held in [4e7, 3e7, 2e7, 1e7] {
            // Another fills what it may no longer hold.
            let web = Second { memory: held, hits: Some(0.4), ..web };
            server.second(&[memory(6e7 - held, 0.9), level, web]);
        }
        let last = Second { memory: 1e7, hits: Some(0.4), ..web };
        server.seconds(2, &[memory(5e7, 0.9), level, last])
    };
    let (free, limited) = (Second::default(), Second { limit: Some(1e7), ..Second::default() });
    let taken = said(free, busy(1000.0));
    assert!(taken[0].starts_with("/other takes most"), "{taken:?}");
    assert!(said(limited, busy(1000.0)).is_empty(), "the level's limit");
    assert!(said(free, Second { limit: Some(1e7), ..busy(1000.0) }).is_empty(), "its own");
}

/// A figure is said with the level of which it is a part, also when another one is short since.
#[test]
fn a_past_part_is_of_the_level_that_it_was_of() {
    let mut server = Server::new(["/eu", "/eu/hog", "/eu/web", "/us"]);
    server.own.limit = Some(1e7);
    let holds = |memory: f64| Second { memory, ..busy(60.0) };
    let lacks = |memory: f64| Second { no_room: 60.0, ..holds(memory) };
    let eu = |limit: f64| Second { limit: Some(limit), ..Second::default() };
    let said = server.seconds(3, &[eu(2e6), holds(1.9e6), lacks(1e5), holds(1e5)]);
    assert_eq!(said[0], "/eu/hog takes most: 95 % of the memory of /eu.");
    // The level may have more, and the whole server is full.
    server.own.limit = Some(3e6);
    let said = server.seconds(3, &[eu(4e6), holds(1.7e6), holds(1e5), lacks(1.1e6)]);
    assert_eq!(said[0], "/eu/hog takes most: 59 % of all memory.");
    let said = server.seconds(1, &[eu(4e6), holds(1e5), holds(1e5), holds(1e5)]);
    assert_eq!(said[0], "/eu/hog took most: 95 % of the memory of /eu.");
}

/// Of two limits at which one tenant leaves others nothing, that is named of which it has more.
#[test]
fn who_crowds_two_limits_is_said_of_one() {
    for (requests, takes) in [
        (6000.0, "/eu/hog takes most: 99 % of the requests of /eu."),
        (600.0, "/eu/hog takes most: 95 % of the memory of /eu."),
    ] {
        let mut server = Server::new(["/eu", "/eu/hog", "/eu/web", "/us"]);
        let over = Second { over_rate: 500.0, rate: Some(100.0), ..Second::default() };
        let eu = Second { limit: Some(2e6), ..over };
        let hog = Second { memory: 1.9e6, ..busy(requests) };
        let web = Second { no_room: 60.0, memory: 1e5, ..busy(60.0) };
        for second in 0..16 {
            let said = server.seconds(1, &[eu, hog, web, busy(60.0)]);
            assert!(second == 0 || said[0] == takes, "{second}: {said:?}");
        }
    }
}

/// Twice the tenants cost twice the work, also where all of them are refused, or each level has one
/// that leaves others no room.
#[test]
fn the_work_grows_as_the_number_of_tenants() {
    let looks = |groups: usize, has_levels: bool| {
        let mut server = Server::new([]);
        server.own.limit = Some(2e6);
        let lacks = Second { no_room: 60.0, memory: 1.0, ..busy(60.0) };
        let mut all = Vec::new();
        for group in 0..groups {
            let level = format!("/{group}");
            if has_levels {
                let full = Second { limit: Some(2e6), ..Second::default() };
                let hog = Second { memory: 1.9e6, no_room: 60.0, ..busy(60.0) };
                let web = Second { memory: 1e5, ..lacks };
                let below = [("", full), ("/hog", hog), ("/web", web)];
                all.extend(below.map(|(name, second)| (format!("{level}{name}"), second)));
            } else {
                let memory = if group == 0 { 1.9e6 } else { 1.0 };
                all.push((level, Second { memory, ..lacks }));
            }
        }
        let (names, all): (Vec<String>, Vec<Second>) = all.into_iter().unzip();
        server.names = names.into_iter().map(|name| &*name.leak()).collect();
        server.seconds(2, &all);
        LOOKS.set(0);
        let said = server.seconds(1, &all);
        assert!(said[0].contains(" takes most: "), "{said:?}");
        LOOKS.get()
    };
    for has_levels in [false, true] {
        let [few, many] = [50, 200].map(|groups| looks(groups, has_levels));
        assert!(many <= few * 5, "{has_levels}: {few} and {many}");
    }
}
