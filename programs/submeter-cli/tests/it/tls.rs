//! TLS on both ports, and the errors if it is not available.

use crate::support::{FREE, SUBMETER, secret};

const CERTIFICATE: &str = include_str!("../../../submeter-cache/tests/certificates/server.pem");
const KEY: &str = include_str!("../../../submeter-cache/tests/certificates/server.key");

#[cfg(not(feature = "tls"))]
#[test]
fn a_build_without_tls_says_how_to_get_one() {
    let (certificate, key) = (secret("no.pem", CERTIFICATE), secret("no.key", KEY));
    let flags = ["--tls-cert", certificate.path(), "--tls-key", key.path()];
    SUBMETER.refuses(&[&FREE[..], &flags].concat(), &[certificate.path(), "--features tls"]);
    SUBMETER.refuses(&["top", "--once", "https://127.0.0.1:1"], &["--features tls"]);
    let ca = ["stat", "-e", "task-clock", "--ca-file", certificate.path()];
    SUBMETER.refuses(&ca, &["--features tls"]);
    SUBMETER.refuses(&["serve", "--tls-cert", "x.pem"], &["--tls-key"]);
    let bank = ["fleet", "status", "--bank", "rediss://:s3cr3t@127.0.0.1:1"];
    let feature = if cfg!(feature = "redis") { "--features tls" } else { "--features redis,tls" };
    SUBMETER.refuses(&bank, &["error: cannot ask rediss://127.0.0.1:1: ", feature]);
}

#[cfg(feature = "tls")]
mod with {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    #[cfg(feature = "redis")]
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use submeter_program::{Running, TempFile, text};
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    use super::{CERTIFICATE, FREE, KEY, SUBMETER, secret};
    use crate::fleet::{Service, lacks, until};
    use crate::support::{cache_address, make_pipe, once_read};

    const AUTHORITY: &str =
        include_str!("../../../submeter-cache/tests/certificates/authority.pem");
    const STRANGER: &str = include_str!("../../../submeter-cache/tests/certificates/stranger.pem");
    const STRANGERS_KEY: &str =
        include_str!("../../../submeter-cache/tests/certificates/stranger.key");

    type Client = StreamOwned<ClientConnection, TcpStream>;

    /// A server with TLS, and the addresses of its page and its cache.
    struct Server {
        running: Running,
        page: String,
        cache: SocketAddr,
        _files: [TempFile; 2],
    }

    fn server(name: &str, more: &[&str]) -> Server {
        let certificate = secret(&format!("{name}.pem"), CERTIFICATE);
        let key = secret(&format!("{name}.key"), KEY);
        let tls = ["--tls-cert", certificate.path(), "--tls-key", key.path()];
        let mut running = SUBMETER.start(&[&FREE[..], &tls, more].concat());
        let line = running.line_with("https://");
        let page = line.split_whitespace().last().expect("an address");
        let page = page.trim_end_matches('/').to_owned();
        let cache = cache_address(&mut running);
        Server { running, page, cache, _files: [certificate, key] }
    }

    fn connect(addr: SocketAddr) -> Client {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(AUTHORITY.as_bytes()).expect("PEM");
        roots.add(authority).expect("an authority");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = "localhost".try_into().expect("a name");
        let tcp = TcpStream::connect(addr).expect("it listens");
        tcp.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).expect("a client"), tcp)
    }

    fn expect(client: &mut Client, answer: &str) {
        let mut got = vec![0; answer.len()];
        client.read_exact(&mut got).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&got), answer);
    }

    #[test]
    fn requests_and_answers_of_any_size_pass() {
        let server = server("sizes", &[]);
        let mut client = connect(server.cache);
        let value = "v".repeat(1 << 20);
        client.write_all(format!("set k 0 0 {}\r\n{value}\r\n", 1 << 20).as_bytes()).expect("sent");
        expect(&mut client, "STORED\r\n");
        // Requests more than sockets and records hold before it reads anything.
        client.write_all(&b"get k\r\n".repeat(64)).expect("sent");
        for _ in 0..64 {
            expect(&mut client, &format!("VALUE k 0 {}\r\n{value}\r\nEND\r\n", 1 << 20));
        }
        // One byte at a time, each in a record of its own.
        for byte in b"mn\r\n" {
            client.write_all(&[*byte]).expect("sent");
            client.flush().expect("sent");
        }
        expect(&mut client, "MN\r\n");
        client.write_all(b"quit\r\n").expect("sent");
        assert_eq!(client.read(&mut [0]).expect("told of the end"), 0);
    }

    /// A key with a passphrase is refused, with the remedy.
    #[test]
    fn a_key_with_a_passphrase_has_a_remedy() {
        let certificate = secret("passphrase.pem", CERTIFICATE);
        for head in ["ENCRYPTED PRIVATE KEY-----", "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED"] {
            let key = secret("passphrase.key", &format!("-----BEGIN {head}\n\nMIIB\n"));
            let flags = ["serve", "--tls-cert", certificate.path(), "--tls-key", key.path()];
            SUBMETER.refuses(&flags, &["has a passphrase", "openssl pkey -in ", key.path()]);
        }
    }

    /// A renewed certificate is shown after a hangup; a bad one is not.
    #[test]
    fn a_hangup_renews_the_certificate() {
        let mut server = server("renewed", &[]);
        let [certificate, key] = &server._files;
        let write = |file: &TempFile, text: &str| std::fs::write(&file.0, text).expect("written");
        let shown = |addr: SocketAddr| {
            let mut client = connect(addr);
            let done = client.write_all(b"mn\r\n").and_then(|()| client.read_exact(&mut [0]));
            done.map(|()| client)
        };
        let page: SocketAddr = server.page["https://".len()..].parse().expect("an address");
        let mut before = shown(server.cache).expect("trusted");
        // One of the two alone does not match the other.
        write(certificate, STRANGER);
        server.running.signal("HUP");
        write(key, STRANGERS_KEY);
        server.running.signal("HUP");
        server.running.line_with("  tls     read again");
        assert!(shown(server.cache).is_err() && shown(page).is_err(), "a stranger's by now");
        before.write_all(b"version\r\n").expect("a connection stays");
        expect(&mut before, "N\r\nVERSION");
        server.running.end_by("INT");
    }

    /// The certificate for a bank is read again after a hangup; a bad one is not used.
    #[cfg(feature = "redis")]
    #[test]
    fn a_hangup_renews_the_banks_certificate() {
        let authority = secret("bank.authority", CERTIFICATE);
        let [certificate, key] =
            [("bank.pem", CERTIFICATE), ("bank.key", KEY)].map(|(name, text)| secret(name, text));
        let bank = ["--bank", "rediss://127.0.0.1:1", "--limit-fleet", "/acme=rate=5/s"];
        let files =
            ["--bank-ca", authority.path(), "--bank-cert", certificate.path(), "--bank-key"];
        let auth = secret("bank.users", "acme:correct-horse\n");
        let more = [key.path(), "--auth-file", auth.path()];
        let flags = [&FREE[..], &bank, &files, &more].concat();
        let mut server = SUBMETER.start(&flags);
        cache_address(&mut server);
        std::fs::write(&authority.0, "none").expect("written");
        let users = "  users   read again";
        server.signal("HUP");
        server.line_with(users);
        std::fs::write(&authority.0, CERTIFICATE).expect("written");
        server.signal("HUP");
        server.line_with("  bank    read again");
        server.signal("INT");
        let (code, out) = server.end();
        assert_eq!((code, out.matches(users).count()), (Some(0), 2), "{out}");
        assert!(out.contains("the bank's certificates stay as they were: "), "{out}");
    }

    /// A key that is read late does not replace a newer one.
    #[test]
    fn a_late_key_replaces_no_newer_one() {
        let mut server = server("late", &[]);
        let [certificate, key] = &server._files;
        make_pipe(key.path());
        server.running.signal("HUP");
        let mut late = once_read(key.path());
        for (file, text) in [(certificate, STRANGER), (key, STRANGERS_KEY)] {
            std::fs::remove_file(&file.0).expect("ours");
            std::fs::write(&file.0, text).expect("a folder of ours");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&file.0, mode).expect("ours");
        }
        server.running.signal("HUP");
        server.running.line_with("  tls     read again");
        late.write_all(KEY.as_bytes()).expect("somebody reads it");
        drop(late);
        for _ in 0..20 {
            let mut client = connect(server.cache);
            assert!(client.conn.complete_io(&mut client.sock).is_err(), "trusted, as before");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A bank is asked while authorities are read from a pipe that nothing writes to.
    #[cfg(feature = "redis")]
    #[test]
    fn an_unwritten_pipe_keeps_the_bank_going() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let bank = format!("rediss://{}", listener.local_addr().expect("bound"));
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        let authority = secret("pipe.authority", CERTIFICATE);
        let flags = ["--bank", &bank, "--bank-ca", authority.path(), "--limit-fleet"];
        let mut server = SUBMETER.start(&[&FREE[..], &flags, &["/acme=rate=5/s"]].concat());
        cache_address(&mut server);
        make_pipe(authority.path());
        server.signal("HUP");
        let silent = once_read(authority.path());
        // Each is a failing exchange. Several may have begun before.
        let asked = || asked.load(Ordering::SeqCst);
        let enough = asked() + 3;
        until("the bank is asked", || asked() >= enough);
        drop(silent);
        server.end_by("INT");
    }

    /// A superfluous client of the page is told so over TLS.
    #[test]
    fn a_client_too_many_is_told_so_in_tls() {
        let server = server("crowded", &[]);
        let page: SocketAddr = server.page["https://".len()..].parse().expect("an address");
        let ask = |target: &str, status| {
            let mut client = connect(page);
            write!(client, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
            expect(&mut client, status);
            client
        };
        // These keep no one out.
        let _silent: Vec<TcpStream> =
            (0..256).map(|_| TcpStream::connect(page).expect("it listens")).collect();
        let _stay: Vec<_> = (0..256).map(|_| ask("/api/totals", "HTTP/1.1 200 ")).collect();
        ask("/healthz", "HTTP/1.1 200 ");
        ask("/api/tree", "HTTP/1.1 503 ");
    }

    #[test]
    fn users_log_in_through_it() {
        let users = secret("tls.users", "acme:correct-horse\n");
        let server = server("users", &["--auth-file", users.path()]);
        let mut client = connect(server.cache);
        client.write_all(b"get acme:k\r\nset a 0 0 18\r\nacme correct-horse\r\n").expect("sent");
        expect(&mut client, "CLIENT_ERROR unauthenticated\r\nSTORED\r\n");
    }

    #[test]
    fn without_it_nothing_is_answered() {
        let server = server("plain", &[]);
        for request in ["version\r\n", "GET / HTTP/1.1\r\n\r\n"] {
            let mut plain = TcpStream::connect(server.cache).expect("it listens");
            plain.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
            plain.write_all(request.as_bytes()).expect("sent");
            let mut answer = Vec::new();
            match plain.read_to_end(&mut answer) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
            }
            let answer = String::from_utf8_lossy(&answer);
            assert!(!answer.contains("VERSION") && !answer.contains("ERROR"), "{answer:?}");
        }
        expect_version(&server);
    }

    fn expect_version(server: &Server) {
        let mut client = connect(server.cache);
        client.write_all(b"mn\r\n").expect("sent");
        expect(&mut client, "MN\r\n");
    }

    /// A server ends even if clients are silent in the middle of something.
    #[test]
    fn silent_clients_do_not_hold_up_the_end() {
        let server = server("silent", &[]);
        let mut idle = connect(server.cache);
        idle.write_all(b"mn\r\n").expect("sent");
        expect(&mut idle, "MN\r\n");
        let _no_handshake = TcpStream::connect(server.cache).expect("it listens");
        let mut half = connect(server.cache);
        half.write_all(b"mn\r\n").expect("sent");
        expect(&mut half, "MN\r\n");
        // The header of a record whose rest never comes.
        half.sock.write_all(&[23, 3, 3, 0, 100, 1, 2, 3]).expect("sent");
        server.running.end_by("INT");
    }

    #[test]
    fn the_page_is_shown_to_who_trusts_its_authority() {
        let token = secret("tls.token", "correct-horse-battery\n");
        let server = server("page", &["--token-file", token.path()]);
        let (authority, stranger) =
            (TempFile::new("authority.pem", AUTHORITY), TempFile::new("stranger.pem", STRANGER));
        let with = ["--token-file", token.path(), "--ca-file", authority.path(), &server.page];
        for command in [&["top", "--once"][..], &["stat", "-e", "task-clock", "--timeout", "50"]] {
            let shown = SUBMETER.run(&[command, &with].concat());
            assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
            SUBMETER.refuses(&[command, &[&server.page]].concat(), &["--ca-file FILE"]);
            let strange = ["--ca-file", stranger.path(), &server.page];
            SUBMETER.refuses(&[command, &strange].concat(), &[&server.page, "certificate"]);
        }
        let plain = server.page.replace("https:", "http:");
        SUBMETER.refuses(&["top", "--once", &plain], &[&plain, "https://"]);
    }

    #[test]
    fn files_that_do_not_serve_are_one_line() {
        let (certificate, key) = (secret("f.pem", CERTIFICATE), secret("f.key", KEY));
        let stranger = secret("stranger.key", STRANGERS_KEY);
        let empty = secret("empty.pem", "\n");
        let serve = |certificate: &str, key: &str, parts: &[&str]| {
            let flags = ["--tls-cert", certificate, "--tls-key", key];
            SUBMETER.refuses(&[&FREE[..], &flags].concat(), parts);
        };
        let missing = "/no/such.pem";
        serve(missing, key.path(), &[missing, "--tls-cert"]);
        serve(certificate.path(), missing, &[missing, "--tls-key"]);
        serve(empty.path(), key.path(), &[empty.path(), "BEGIN CERTIFICATE"]);
        serve(certificate.path(), empty.path(), &[empty.path(), "BEGIN PRIVATE KEY"]);
        serve(certificate.path(), stranger.path(), &[stranger.path(), "cannot use "]);
        let open = TempFile::new("open.key", KEY);
        std::fs::set_permissions(&open.0, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .expect("open");
        serve(certificate.path(), open.path(), &[open.path(), "chmod o="]);
        let top = ["top", "--once", "--ca-file", missing, "https://127.0.0.1:1"];
        SUBMETER.refuses(&top, &[missing, "--ca-file"]);
    }

    #[test]
    fn a_trusted_bank_in_redis_is_asked_through_tls() {
        if lacks("redis") {
            return;
        }
        let files = [("r.pem", CERTIFICATE), ("r.key", KEY), ("a.pem", AUTHORITY)];
        let [certificate, key, trusted] = files.map(|(name, text)| secret(name, text));
        let stranger = secret("s.pem", STRANGER);
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.expect("a free port").port().to_string();
        let mut redis = Command::new("redis-server");
        redis.args(["--port", "0", "--save", "", "--requirepass", "s3cr3t", "--tls-port", &port]);
        redis.args(["--tls-cert-file", certificate.path(), "--tls-key-file", key.path()]);
        redis.args(["--tls-ca-cert-file", trusted.path(), "--tls-auth-clients", "yes"]);
        let Ok(child) = redis.stdout(Stdio::null()).spawn() else {
            println!("skipped: a bank in Redis: apt-get install redis-server");
            return;
        };
        let _redis = Service(child);
        until("Redis listens", || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
        let url = format!("rediss://:s3cr3t@localhost:{port}/0");
        let bare = ["fleet", "set", "/acme", "memory=1m", "--bank", &url];
        let own = ["--bank-cert", certificate.path(), "--bank-key", key.path()];
        let set = [&bare[..], &own[..]].concat();
        let output = SUBMETER.run(&[&set[..], &["--bank-ca", trusted.path()]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let by = |ca| SUBMETER.run(&[&set[..], &["--bank-ca", ca]].concat());
        let untrusted = by(stranger.path());
        assert_eq!(untrusted.status.code(), Some(2));
        let error = text(&untrusted.stderr);
        assert!(error.contains("no trusted authority") && error.lines().count() == 1, "{error}");
        let none = text(&by(key.path()).stderr);
        assert!(none.contains("no PEM certificate") && none.contains("--bank-ca"), "{none}");
        let unknown = SUBMETER.run(&[&bare[..], &["--bank-ca", trusted.path()]].concat());
        assert_eq!(unknown.status.code(), Some(2), "it shows no certificate");
        let unknown = text(&unknown.stderr);
        assert_eq!(unknown.lines().count(), 1, "{unknown}");
        for error in [error, none, unknown] {
            assert!(!error.contains("s3cr3t"), "{error}");
        }
        let plain = ["fleet", "status", "--bank", "redis://h", "--bank-ca", trusted.path()];
        SUBMETER.refuses(&plain, &["redis://h", "--bank-ca", "rediss://"]);
        let plain = [&["fleet", "status", "--bank", "redis://h"], &own[..]].concat();
        SUBMETER.refuses(&plain, &["redis://h", "--bank-cert", "rediss://"]);
        SUBMETER.refuses(&[&bare[..], &own[..2]].concat(), &["--bank-key"]);
        let no_key = ["--bank-cert", certificate.path(), "--bank-key", certificate.path()];
        SUBMETER.refuses(&[&bare[..], &no_key[..]].concat(), &["no PEM private key", "--bank-key"]);
    }
}
