//! Access to the server: users, a token, a socket with permissions, and the warnings about ports
//! that are open to other machines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Output;

use submeter_program::{TempFile, text};

use crate::support::{FREE, SUBMETER, Server, cache_address, line, secret};

#[test]
fn only_users_of_the_file_are_served() {
    let users = secret("users", "acme:correct-horse\n");
    let server = Server::start(&["--auth-file", users.path()]);
    for (request, answer) in [
        ("get acme:k\r\n", "CLIENT_ERROR unauthenticated"),
        ("set auth 0 0 18\r\nacme correct-horse\r\n", "STORED"),
        ("set acme:k 0 0 1\r\nv\r\n", "STORED"),
        ("set web:k 0 0 1\r\nv\r\n", "CLIENT_ERROR key belongs to another tenant"),
    ] {
        assert_eq!(server.ask(request), answer, "{request:?}");
    }
}

#[test]
fn an_addresss_token_is_decoded_and_not_printed() {
    let token = secret("address.token", "correct-horse-battery\n");
    let server = Server::start(&["--token-file", token.path()]);
    let page = server.url();
    let at = page.trim_start_matches("http://");
    let bill = TempFile::new("address.bill", "");
    let all = |url: &str| {
        [
            &["top", "--once", url][..],
            &["top", "--once", "--json", url],
            &["stat", "-e", "task-clock", "--timeout", "50", url],
            &["stat", "-e", "task-clock", "--timeout", "50", "--json", url],
            &["fleet", "top", "--once", url, url],
            &["fleet", "bill", url, "--file", bill.path()],
        ]
        .map(|args| (args.join(" "), SUBMETER.run(args)))
    };
    let said = |output: &Output| format!("{}{}", text(&output.stdout), text(&output.stderr));
    for url in [
        format!("http://x:%63orrect-horse%2Dbattery@{at}"),
        format!("x:correct-horse-battery@{at}/"),
    ] {
        for (args, output) in all(&url) {
            let said = said(&output);
            assert!(output.status.success(), "{args}: {said}");
            assert!(!said.contains("battery") && !said.contains("Y29ycmVjdC"), "{args}: {said}");
        }
    }
    // A wrong token, one unfit to be sent, a server that is none, and an invalid address.
    for (url, named) in [
        (format!("http://x:wrong-horse-battery@{at}"), at),
        (format!("http://x:horse-battery%@{at}"), "write %25"),
        ("http://x:horse-battery@127.0.0.1:1".to_owned(), "http://127.0.0.1:1"),
        (format!("ftp://x:horse-battery@{at}"), "ftp://127.0.0.1"),
        (format!("http://x:horse-battery@{at}/?token=battery"), at),
        (format!("https://x:horse-battery@{at}"), at),
        (format!("http://x:horse/battery@{at}"), "http://…"),
    ] {
        for (args, output) in all(&url) {
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{args}: {said}");
            assert!(said.contains(named), "{args}: {said} names {named}");
            assert!(!said.contains("battery"), "{args}: {said}");
        }
    }
}

#[test]
fn a_client_of_another_protocol_is_told_of_once() {
    let mut server = SUBMETER.start(&FREE);
    let addr = cache_address(&mut server);
    for first in [&b"\x16\x03\x01"[..], b"\x16\x03\x01", b"\x80\0", b"\x80\0"] {
        let mut client = TcpStream::connect(addr).expect("it listens");
        client.write_all(first).expect("sent");
        assert_eq!(client.read(&mut [0]).expect("the end"), 0);
    }
    let out = server.end_by("INT");
    let told: Vec<&str> = out.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(told.len(), 2, "{out}");
    assert!(told[0].contains("speaks TLS") && told[0].contains("--tls-cert"), "{out}");
    assert!(told[1].contains("binary protocol") && told[1].contains("text protocol"), "{out}");
}

#[test]
fn only_who_has_the_token_is_shown_the_page() {
    let token = secret("token", "correct-horse-battery\n");
    let server = Server::start(&["--token-file", token.path()]);
    let page = server.url();
    SUBMETER.refuses(&["top", "--once", &page], &[&page, "--token-file FILE"]);
    SUBMETER.refuses(&["stat", "-e", "task-clock", &page], &[&page, "--token-file FILE"]);
    let variable = ("SUBMETER_TOKEN_FILE", token.path());
    let hinted = text(&SUBMETER.run_in(&["top", "--once", &page], &[variable]).stderr);
    assert!(hinted.contains("SUBMETER_TOKEN_FILE is read by submeter serve alone"), "{hinted}");
    let wrong = secret("wrong", "correct-horse-batterx\n");
    SUBMETER.refuses(
        &["top", "--once", "--token-file", wrong.path(), &page],
        &[&page, "requires its token"],
    );
    let shown = SUBMETER.run(&["top", "--once", "--token-file", token.path(), &page]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    let counted = ["stat", "-e", "task-clock", "--timeout", "50", "--token-file", token.path()];
    let counted = SUBMETER.run(&[&counted[..], &[&page]].concat());
    assert_eq!(counted.status.code(), Some(0), "{}", text(&counted.stderr));
}

/// A hangup reads users and token again; a bad file changes nothing.
#[test]
fn a_hangup_reads_users_and_token_again() {
    let users = secret("renewed.users", "acme:correct-horse\nweb:battery-staple\n");
    let token = secret("renewed.token", "correct-horse-battery\n");
    let flags = ["--auth-file", users.path(), "--token-file", token.path()];
    let mut server = Server::start(&flags);
    let (page, addr) = (server.url(), server.cache_address());
    let connect = || TcpStream::connect(addr).expect("it listens");
    let login = |stream: &TcpStream, login: &str| {
        let mut stream = stream;
        write!(stream, "set auth 0 0 {}\r\n{login}\r\n", login.len()).expect("sent");
        line(stream)
    };
    let shown = || SUBMETER.run(&["top", "--once", "--token-file", token.path(), &page]);
    let write = |file: &TempFile, text: &str| std::fs::write(&file.0, text).expect("written");
    let (acme, web) = (connect(), connect());
    assert_eq!(login(&acme, "acme correct-horse"), "STORED");
    assert_eq!(login(&web, "web battery-staple"), "STORED");

    write(&users, "acme:new-horse\nops\n");
    write(&token, "staple-battery-horse\n");
    server.signal("HUP");
    server.line_with("  token   read again");
    assert_eq!(shown().status.code(), Some(0), "{}", text(&shown().stderr));
    assert_eq!(login(&connect(), "acme correct-horse"), "STORED", "the users stay");

    write(&users, "acme:new-horse\n");
    write(&token, "short\n");
    server.signal("HUP");
    server.line_with("  users   read again, 1 of them");
    assert_eq!((&web).read(&mut [0]).expect("the end"), 0, "the user is gone");
    assert_eq!(login(&connect(), "acme correct-horse"), "CLIENT_ERROR authentication failure");
    assert_eq!(login(&connect(), "acme new-horse"), "STORED");
    (&acme).write_all(b"version\r\n").expect("sent");
    assert!(line(&acme).starts_with("VERSION"), "a connection stays");
    write(&token, "staple-battery-horse\n");
    assert_eq!(shown().status.code(), Some(0), "the token stays");
    let out = server.end_by("INT");
    let bad = format!("the users stay as they were: {}, line 2: no ':'", users.path());
    let short = format!("the token stays as it was: {} has no valid token: use 16", token.path());
    assert!(out.contains(&bad) && out.contains(&short), "{out}");
    assert!(!out.contains("horse"), "{out}");
}

/// More users than places for tenants are refused, and the error names the flag that allows more.
#[test]
fn too_many_users_are_refused_with_the_flag() {
    let users = secret("many.users", "acme:secret\nbob:secret /team/bob\nops:secret /\n");
    let args = [&FREE[..], &["--seconds", "0.1", "--auth-file", users.path()]].concat();
    let most = |n| [&args[..], &["--tenants-max", n]].concat();
    let told = "3 tenants have limits or users, more than --tenants-max 2: raise it";
    SUBMETER.refuses(&most("2"), &[users.path(), told, "--auth-file"]);
    assert_eq!(SUBMETER.run(&most("3")).status.code(), Some(0));
}

#[test]
fn a_socket_file_has_the_permissions_asked_for() {
    let file = TempFile::new("cache.sock", "");
    std::fs::remove_file(&file.0).expect("there");
    let listen = format!("unix:{}", file.path());
    let args = ["serve", "--http", "127.0.0.1:0", "--listen", &listen, "--unix-mode", "660"];
    let mut server = SUBMETER.start(&args);
    let line = server.line_with("  cache  ");
    assert!(line.contains(&listen), "{line}");
    let mode = std::fs::metadata(&file.0).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let stream = UnixStream::connect(&file.0).expect("it listens");
    (&stream).write_all(b"mn\r\n").expect("sent");
    let answer = BufReader::new(&stream).lines().next().expect("an answer").expect("readable");
    assert_eq!(answer, "MN");
    SUBMETER.refuses(&args, &[&listen, "another server is listening there"]);
    server.end_by("INT");
    assert!(!file.0.exists(), "left behind");
}

/// A door that is open to other machines causes a warning of one line.
#[test]
fn an_open_door_is_warned_of_in_one_line() {
    let users = secret("warned", "acme:correct-horse\n");
    let args = ["serve", "--listen", "0.0.0.0:0", "--http", "127.0.0.1:0", "--seconds", "0.1"];
    let open = text(&SUBMETER.run(&args).stderr);
    assert!(open.starts_with("warning: ") && open.lines().count() == 1, "{open:?}");
    assert!(open.contains("0.0.0.0:") && open.contains("--auth-file"), "{open:?}");
    let guarded = text(&SUBMETER.run(&[&args[..], &["--auth-file", users.path()]].concat()).stderr);
    assert!(guarded.starts_with("warning: ") && guarded.lines().count() == 1, "{guarded:?}");
    assert!(guarded.contains("passwords") && guarded.contains("--tls-cert"), "{guarded:?}");
    let home = text(&SUBMETER.run(&[&FREE[..], &["--seconds", "0.1"]].concat()).stderr);
    assert_eq!(home, "");
}

#[test]
fn what_is_wrong_with_a_secret_is_one_line() {
    let missing = "/no/such.secret";
    for flag in ["--auth-file", "--token-file"] {
        SUBMETER.refuses(&[&FREE[..], &[flag, missing]].concat(), &[missing, "No such file", flag]);
        let open = TempFile::new(&format!("open{flag}"), "acme:correct-horse-battery\n");
        for mode in [0o604, 0o602, 0o666] {
            std::fs::set_permissions(&open.0, PermissionsExt::from_mode(mode)).expect("open");
            let chmod = format!("chmod o= {}", open.path());
            SUBMETER.refuses(&[&FREE[..], &[flag, open.path()]].concat(), &[&chmod, flag]);
        }
        let empty = secret(&format!("empty{flag}"), "\n");
        SUBMETER.refuses(&[&FREE[..], &[flag, empty.path()]].concat(), &[empty.path(), flag]);
    }
    let bad = secret("bad.users", "acme:correct-horse\nweb\n");
    let args = [&FREE[..], &["--auth-file", bad.path()]].concat();
    SUBMETER.refuses(&args, &[bad.path(), "line 2", "USER:PASSWORD"]);
    SUBMETER.refuses(&[&args[..], &["--load", "2"]].concat(), &["--auth-file", "--load"]);
    let short = secret("short.token", "guess\n");
    SUBMETER.refuses(&[&FREE[..], &["--token-file", short.path()]].concat(), &[short.path(), "16"]);
    SUBMETER.refuses(&["serve", "--listen", "unix:"], &["unix:", "unix:/PATH"]);
    SUBMETER.refuses(&["serve", "--unix-mode", "rw"], &["rw", "660"]);
    SUBMETER.refuses(&["serve", "--unix-mode", "4777"], &["4777"]);
    let socket = ["serve", "--listen", "unix:/tmp/x", "--http", "127.0.0.1:0", "--load", "1"];
    SUBMETER.refuses(&socket, &["--load", "unix:/tmp/x"]);
    let nowhere = ["serve", "--listen", "unix:/no/such/x", "--http", "127.0.0.1:0"];
    SUBMETER.refuses(&nowhere, &["unix:/no/such/x", "No such file"]);
    SUBMETER.refuses(&["top", "--once", "--token-file", missing], &[missing, "--token-file"]);
}
