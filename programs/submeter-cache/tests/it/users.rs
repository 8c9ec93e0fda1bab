//! Users: no access before the login, and afterwards only to their own tenants.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use submeter_cache::{Address, Cache, Config, Server, Users};

use crate::common::{Running, start_with};

const FILE: &str = "# users\n\nacme:correct-horse\nweb:battery-staple /acme/web\nops:tr0ub4dor /\n";

fn users() -> Users {
    Users::parse(FILE, &Config::default()).expect("well-formed")
}

fn server() -> Running {
    start_with(Config::default(), |server| server.users(users()))
}

#[test]
fn nothing_is_executed_before_the_login() {
    let server = server();
    let mut ops = server.connect_as("ops tr0ub4dor");
    assert_eq!(ops.set("acme:k", b"v"), "STORED");
    let mut client = server.connect();
    let value = "v".repeat(600);
    // If it were not skipped, its lines would be commands.
    let large = "flush_all\r\n".repeat(100_000);
    for request in [
        "get acme:k\r\n",
        "gats 0 acme:k\r\n",
        "set acme:k 0 0 2\r\nhi\r\n",
        "set acme:k 0 0 2 noreply\r\nhi\r\n",
        &format!("set acme:k 0 0 600\r\n{value}\r\n"),
        &format!("set acme:k 0 0 {}\r\n{large}\r\n", large.len()),
        "add acme:new 0 0 2\r\nhi\r\n",
        "add a 0 0 18\r\nacme correct-horse\r\n",
        "append a 0 0 18\r\nacme correct-horse\r\n",
        "cas a 0 0 18 1\r\nacme correct-horse\r\n",
        "ms acme:k 2\r\nhi\r\n",
        "mg acme:k v\r\n",
        "me acme:k\r\n",
        "delete acme:k\r\n",
        "incr acme:k 1\r\n",
        "touch acme:k 1\r\n",
        "flush_all\r\n",
        "stats\r\n",
        "stats tenants\r\n",
        "version\r\n",
        "mn\r\n",
        "shutdown\r\n",
        "nonsense\r\n",
    ] {
        let answer = client.ask(request);
        let expected = ["CLIENT_ERROR unauthenticated", "CLIENT_ERROR authentication failure"];
        assert!(expected.contains(&&*answer), "{request:.40?}: {answer}");
    }
    // Nothing was executed, and no value was parsed as a command.
    assert_eq!(ops.get("acme:k").as_deref(), Some(&b"v"[..]));
    assert_eq!(ops.get("acme:new"), None);
    assert_eq!(client.login("acme correct-horse"), "STORED");
    assert_eq!(client.get("acme:k").as_deref(), Some(&b"v"[..]));
}

#[test]
fn users_are_replaced_while_the_server_runs() {
    let (users, config) = (users(), Config::default());
    let handle = users.clone();
    let server = start_with(config.clone(), |server| server.users(users));
    let mut acme = server.connect_as("acme correct-horse");
    let mut web = server.connect_as("web battery-staple");
    let mut ops = server.connect_as("ops tr0ub4dor");
    let next = "acme:new-horse\nweb:battery-staple /acme\nnew:stapler-battery\n";
    handle.replace(&Users::parse(next, &config).expect("well-formed"));
    assert_eq!(ops.rest(), b"", "the user is gone");
    assert_eq!(web.rest(), b"", "the user has another tenant");
    assert_eq!(acme.set("acme:k", b"v"), "STORED", "a new password ends no connection");
    for (who, answer) in [
        ("acme correct-horse", "CLIENT_ERROR authentication failure"),
        ("ops tr0ub4dor", "CLIENT_ERROR authentication failure"),
        ("acme new-horse", "STORED"),
        ("web battery-staple", "STORED"),
        ("new stapler-battery", "STORED"),
    ] {
        assert_eq!(server.connect().login(who), answer, "{who}");
    }
}

#[test]
fn whoever_has_not_logged_in_makes_no_tenant() {
    let server = server();
    // Its users' tenants exist when it serves.
    drop(server.connect_as("ops tr0ub4dor"));
    let groups = server.cache.tree().group_count();
    let large = "v".repeat((1 << 20) + 1);
    for (n, request) in [
        "set evil{}:k 0 0 1\r\nxyz\r\n",
        "set evil{}:k 0 0 1 noreply\r\nxyz\r\n",
        "cas evil{}:k 0 0 1 1\r\nxyz\r\n",
        "ms evil{}:k 1\r\nxyz\r\n",
        "ms evil{}:k 1\r\nx\r\n",
        "ms evil{}:k 1048577\r\nLARGE\r\n",
        "set evil{}:k 0 0 1048577\r\nLARGE\r\n",
        "set evil{}:k 0 0 600\r\nLARGE\r\n",
        "set evil{}:k 0 0 3\r\na b\r\n",
        "mg evil{}:k v\r\nget evil{}:k\r\n",
    ]
    .iter()
    .enumerate()
    {
        let mut client = server.connect();
        let request = request.replace("{}", &n.to_string()).replace("LARGE", &large);
        client.send(request + "quit\r\n");
        client.rest();
    }
    assert_eq!(server.cache.tree().group_count(), groups);
}

#[test]
fn only_the_right_password_of_a_user_is_a_login() {
    let server = server();
    for wrong in [
        "acme correct-hors",
        "acme correct-horse ",
        "acme battery-staple",
        "acme",
        "acme ",
        " correct-horse",
        "nobody correct-horse",
        "acme:correct-horse",
        "",
    ] {
        let mut client = server.connect();
        assert_eq!(client.login(wrong), "CLIENT_ERROR authentication failure", "{wrong:?}");
        assert_eq!(client.ask("get acme:k\r\n"), "CLIENT_ERROR unauthenticated", "{wrong:?}");
    }
    let mut guesser = server.connect();
    guesser.send("set auth 0 0 3\r\na b\r\n".repeat(200) + "quit\r\n");
    let answers = String::from_utf8(guesser.rest()).expect("text");
    assert_eq!(answers.matches("authentication failure").count(), 100, "then it is closed");
}

#[test]
fn a_user_has_one_tenants_keys_and_no_others() {
    let server = server();
    let mut ops = server.connect_as("ops tr0ub4dor");
    for key in ["k", "acmex:k", "other:k", "acme:api:k", "acme:web:k"] {
        assert_eq!(ops.set(key, b"7"), "STORED", "{key}");
    }
    let mut web = server.connect_as("web battery-staple");
    assert_eq!(web.get("acme:web:k").as_deref(), Some(&b"7"[..]));
    assert_eq!(web.set("acme:web:below:k", b"v"), "STORED");
    let mut acme = server.connect_as("acme correct-horse");
    assert_eq!(acme.get("acme:web:k").as_deref(), Some(&b"7"[..]));
    assert_eq!(acme.get("acme:api:k").as_deref(), Some(&b"7"[..]));
    let refused = "CLIENT_ERROR key belongs to another tenant";
    let large = format!("set other:k 0 0 {}\r\n{}\r\n", (1 << 20) + 1, "v".repeat((1 << 20) + 1));
    for key in ["k", "acmex:k", "other:k", "acme", ":acme:k", "ACME:k"] {
        for request in [
            "get {}\r\n",
            "gets acme:web:k {}\r\n",
            "gat 0 {}\r\n",
            "set {} 0 0 1\r\nx\r\n",
            "cas {} 0 0 1 1\r\nx\r\n",
            "delete {}\r\n",
            "incr {} 1\r\n",
            "touch {} 0\r\n",
            "mg {} v\r\n",
            "ms {} 1 q\r\nx\r\n",
            "md {} q\r\n",
            "ma {}\r\n",
            "me {}\r\n",
        ] {
            let request = request.replace("{}", key);
            assert_eq!(acme.ask(&request), refused, "{request:?}");
        }
    }
    assert_eq!(acme.ask(large), refused, "too large as it is, it would drop what is there");
    assert_eq!(acme.ask("mg b3RoZXI6aw== b v\r\n"), refused, "other:k in base64");
    assert_eq!(acme.talk("set k 0 0 1 noreply\r\nx\r\ndelete other:k noreply\r\n"), "");
    for request in ["flush_all\r\n", "stats\r\n", "stats tenants\r\n", "shutdown\r\n"] {
        let answer = acme.ask(request);
        assert_eq!(answer, "CLIENT_ERROR not allowed for users of one tenant", "{request:?}");
    }
    for key in ["k", "acmex:k", "other:k"] {
        assert_eq!(ops.get(key).as_deref(), Some(&b"7"[..]), "{key} is as it was");
    }
    let stores = server.cache.tree().get("/other").expect("ops stored there");
    assert_eq!(stores.sum(server.cache.metrics().cmd_set), 1, "nothing else was charged to it");
}

/// A user has places for tenants, however many names another user invents.
#[test]
fn invented_names_leave_a_user_its_places() {
    let config = Config { tenants_max: 100, ..Config::default() };
    let server = start_with(config, |server| server.users(users()));
    let mut acme = server.connect_as("acme correct-horse");
    for n in 0..200 {
        assert_eq!(acme.set(&format!("acme:j{n}:k"), b"v"), "STORED");
    }
    let mut web = server.connect_as("web battery-staple");
    for key in ["acme:web:k", "acme:web:api:k"] {
        assert_eq!(web.set(key, b"v"), "STORED");
    }
    let tree = server.cache.tree();
    assert_eq!(
        ["/acme/web", "/acme/web/api", "/acme/:other"].map(|it| tree.get(it).is_some()),
        [true; 3]
    );
}

#[test]
fn a_login_is_the_connections_and_never_stored() {
    let server = server();
    let mut acme = server.connect_as("acme correct-horse");
    // The second is a store like any other.
    assert_eq!(acme.login("ops tr0ub4dor"), "CLIENT_ERROR key belongs to another tenant");
    assert_eq!(acme.ask("flush_all\r\n"), "CLIENT_ERROR not allowed for users of one tenant");
    assert_eq!(server.connect().ask("get acme:k\r\n"), "CLIENT_ERROR unauthenticated");
    assert_eq!(server.connect_as("ops tr0ub4dor").get("auth"), None);
}

/// A malformed file causes an error that names line and remedy and no password.
#[test]
fn a_bad_file_is_named_without_a_password() {
    for (text, parts) in [
        ("", &["no user", "acme:password"][..]),
        ("# only\n\n", &["no user"]),
        ("acme:x\nweb secret\n", &["line 2", "USER:PASSWORD"]),
        (":secret\n", &["line 1", "empty"]),
        ("acme:\n", &["line 1", "empty"]),
        ("acme:secret extra words\n", &["line 1", "\"acme\"", "without other spaces"]),
        ("acme:secret tenant\n", &["line 1", "\"acme\""]),
        ("acme:secret\nacme:secret\n", &["line 2", "\"acme\"", "listed twice"]),
        ("acme:secret /a//b\n", &["line 1", "\"/a//b\"", "empty"]),
        ("acme:secret /a/../b\n", &["line 1", "reserved"]),
        ("acme:secret /a:b\n", &["line 1", "delimiter"]),
        ("acme:secret /a/b/c/d/e\n", &["line 1", "deeper than depth_max 4"]),
        ("a/../b:secret\n", &["line 1", "reserved"]),
    ] {
        let error = Users::parse(text, &Config::default()).expect_err(text).to_string();
        for part in parts {
            assert!(error.contains(part), "{error:?} names {part:?}");
        }
        assert!(!error.contains("secret"), "{error:?}");
    }
    let long = format!("acme:{}", "x".repeat(600));
    assert!(Users::parse(&long, &Config::default()).is_err());
    assert!(!format!("{:?}", users()).contains("horse"));
}

/// Returns a path in a folder of its own.
fn path(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("submeter-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder.join("cache.sock")
}

fn listen(path: &Path, mode: u32) -> std::io::Result<(tokio::runtime::Runtime, Server)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let cache = Cache::new(Config::default()).expect("the default configuration");
    let address = Address::Unix { path: path.to_owned(), mode };
    let server = runtime.block_on(Server::listen(&address, cache))?;
    Ok((runtime, server))
}

/// A socket has its permissions and is gone after the server.
#[test]
fn a_socket_has_its_permissions_and_ends() {
    use std::io::{Read, Write};

    let path = path("mode");
    for mode in [0o700, 0o660] {
        let (runtime, server) = listen(&path, mode).expect("it listens");
        let found = std::fs::symlink_metadata(&path).expect("there");
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, mode);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = runtime.spawn(server.run(async move { drop(stopped.await) }));
        let mut client = UnixStream::connect(&path).expect("it accepts");
        client.write_all(b"set k 0 0 1\r\nv\r\nget k\r\nquit\r\n").expect("it reads");
        let mut answers = String::new();
        client.read_to_string(&mut answers).expect("it answers");
        assert_eq!(answers, "STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
        drop(stop);
        runtime.block_on(serving).expect("no panic").expect("it ends well");
        assert!(!path.exists(), "left behind");
    }
}

#[test]
fn only_an_abandoned_socket_is_replaced() {
    let path = path("stale");
    let (_runtime, _server) = listen(&path, 0o700).expect("it listens");
    let second = listen(&path, 0o700).expect_err("in use");
    assert_eq!(second.kind(), std::io::ErrorKind::AddrInUse);
    UnixStream::connect(&path).expect("the first still listens");

    let stale = path.with_extension("stale");
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("a socket"));
    assert!(stale.exists(), "as after a crash");
    drop(listen(&stale, 0o700).expect("replaced"));

    // As when a new server starts before the old one has ended.
    let shared = path.with_extension("shared");
    let (first, second) = (listen(&shared, 0o700).expect("it listens"), {
        std::fs::remove_file(&shared).expect("there");
        listen(&shared, 0o700).expect("it listens")
    });
    drop(first);
    UnixStream::connect(&shared).expect("the first has removed its own file only");
    drop(second);
    assert!(!shared.exists());

    let file = path.with_extension("txt");
    std::fs::write(&file, "precious").expect("written");
    let refused = listen(&file, 0o700).expect_err("not a socket");
    assert!(refused.to_string().contains("is not a socket"), "{refused}");
    assert_eq!(std::fs::read(&file).expect("still there"), b"precious");
}
