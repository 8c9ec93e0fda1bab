//! Tests of the places among the connections of a server with users.

use std::time::Duration;

use submeter_cache::{Config, Users};

use crate::common::{Client, Running, eventually, start_with};

const FILE: &str = "acme:correct-horse\nops:tr0ub4dor /\n";

fn server(config: Config) -> Running {
    let users = Users::parse(FILE, &config).expect("well-formed");
    start_with(config, |server| server.users(users))
}

#[test]
fn clients_that_never_log_in_keep_nobody_out() {
    let server = server(Config { connections_max: 8, ..Config::default() });
    let mut silent: Vec<Client> = (0..9).map(|_| server.connect()).collect();
    for _ in 0..3 {
        let mut ops = server.connect_as("ops tr0ub4dor");
        assert_eq!(ops.ask("mn\r\n"), "MN");
    }
    assert_eq!(silent[0].rest(), b"", "the first one's place was another's");
    let mut ops = server.connect_as("ops tr0ub4dor");
    assert!(ops.stat("login_kicks") >= 1);
    assert_eq!(ops.stat("rejected_connections"), 0);
    assert!(ops.stat("login_pending") > 0);
}

/// A client that does not log in in time is closed; one that has stays.
#[test]
fn who_does_not_log_in_in_time_is_closed() {
    let time = Duration::from_millis(300);
    let server = server(Config { login_timeout: time, ..Config::default() });
    let mut ops = server.connect_as("ops tr0ub4dor");
    let (mut silent, mut guessing) = (server.connect(), server.connect());
    assert_eq!(guessing.login("ops wrong"), "CLIENT_ERROR authentication failure");
    // Neither silence nor an occasional guess buys time.
    assert_eq!((silent.rest(), guessing.rest()), (Vec::new(), Vec::new()));
    assert_eq!(ops.stat("login_kicks"), 2);
}

#[test]
fn one_users_connections_leave_places_to_others() {
    let server = server(Config { connections_max: 16, ..Config::default() });
    let mut held: Vec<Client> = (0..14).map(|_| server.connect_as("acme correct-horse")).collect();
    let mut more = server.connect();
    let refusal = "SERVER_ERROR too many connections for this user";
    assert_eq!(more.login("acme correct-horse"), refusal);
    assert_eq!(more.rest(), b"");
    let mut ops = server.connect_as("ops tr0ub4dor");
    let places = server.cache.connection_places();
    assert_eq!((places.max, places.refused), (16, 1));
    assert_eq!(server.cache.largest_holder(), Some(("user \"acme\"".to_owned(), 14)));
    let usage = server.cache.tree().root().usage(server.cache.metrics().connections);
    assert_eq!((usage.limit, usage.current >= 15), (Some(16), true));
    assert_eq!(ops.stat("rejected_connections"), 1);
    held.truncate(8);
    eventually("the user has room again", || {
        server.connect().login("acme correct-horse") == "STORED"
    });
}
