//! Engines behind TLS: which authorities are trusted, and what an error says.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use submeter_bank::{EtcdBank, Operate, RedisBank, RedisError};

use crate::etcd;
use crate::redis::{Server, shown};

const TTL: Duration = Duration::from_secs(2);
const PASSWORD: &str = "open-sesame";
const CERTIFICATES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../programs/submeter-cache/tests/certificates");

fn read(name: &str) -> Vec<u8> {
    std::fs::read(format!("{CERTIFICATES}/{name}")).expect("a file of the sources")
}

/// Renews a bank's certificates: first with good ones, then with bad ones, which must change
/// nothing.
fn renew<E: std::fmt::Debug>(
    mut renew: impl FnMut(Option<&[u8]>, Option<(&[u8], &[u8])>) -> Result<(), E>,
) {
    let [authority, chain, key] = ["authority.pem", "server.pem", "server.key"].map(read);
    renew(Some(&authority), Some((&chain, &key))).expect("PEM");
    renew(Some(&authority), Some((&chain, b"none"))).expect_err("no key");
    renew(Some(b"none"), Some((&chain, &key))).expect_err("no certificate");
}

/// A Redis with a certificate for 127.0.0.1 and localhost, and its port; it asks clients for theirs
/// if `asks` is yes.
fn redis(asks: &str) -> Option<(Server, u16)> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = port.expect("a free port").port();
    let [certificate, key, authority] =
        ["server.pem", "server.key", "authority.pem"].map(|name| format!("{CERTIFICATES}/{name}"));
    let server = Server::start(&[
        "--requirepass",
        PASSWORD,
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &authority,
        "--tls-auth-clients",
        asks,
    ])?;
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "redis-server has no TLS");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some((server, port))
}

fn bank(port: u16, more: &str) -> RedisBank {
    let url = format!("rediss://:{PASSWORD}@127.0.0.1:{port}/0{more}");
    RedisBank::new(&url, "test", TTL).expect("a URL")
}

fn refused(bank: &RedisBank, port: u16) -> RedisError {
    let error = bank.limits().expect_err("it is not trusted");
    let text = shown(&error);
    assert!(!text.contains("sesame"), "{text}");
    assert!(error.to_string().starts_with(&format!("cannot ask 127.0.0.1:{port} (TLS): ")));
    error
}

#[test]
fn redis_is_asked_through_tls_if_it_is_trusted() {
    let Some((_server, port)) = redis("no") else { return };
    let trusting = bank(port, "").with_authorities(&read("authority.pem")).expect("certificates");
    crate::operate::check(&trusting);
    assert!(!format!("{trusting:?}").contains("sesame"), "{trusting:?}");
}

#[test]
fn redis_is_shown_a_certificate_it_asks_for() {
    let Some((_server, port)) = redis("yes") else { return };
    let trusting = || bank(port, "").with_authorities(&read("authority.pem")).expect("PEM");
    let error = trusting().limits().expect_err("it shows none");
    assert!(!shown(&error).contains("sesame"), "{}", shown(&error));
    let known = trusting().with_certificate(&read("server.pem"), &read("server.key"));
    assert_eq!(known.expect("PEM").limits().expect("a list"), []);
    // As the files of a long-lived bank are renewed.
    let mut renewed = trusting();
    renew(|authority, own| renewed.renew(authority, own));
    assert_eq!(renewed.limits().expect("as it was renewed"), []);
    // The order of the calls does not matter.
    let known = bank(port, "").with_certificate(&read("server.pem"), &read("server.key"));
    let known = known.expect("PEM").with_authorities(&read("authority.pem")).expect("PEM");
    assert_eq!(known.limits().expect("a list"), []);
    let strange = trusting().with_certificate(&read("stranger.pem"), &read("stranger.key"));
    strange.expect("PEM").limits().expect_err("no authority has signed it");
    for (chain, key, why) in [
        ("server.key", "server.key", "the certificate is not in PEM"),
        ("server.pem", "server.pem", "the certificate's key is not in PEM"),
    ] {
        let error = bank(port, "").with_certificate(&read(chain), &read(key)).expect_err(why);
        assert!(error.to_string().ends_with(why), "{error}");
    }
}

#[test]
fn etcd_that_asks_for_a_certificate_is_shown_one() {
    let options = [
        "--cert-file",
        "server.pem",
        "--key-file",
        "server.key",
        "--client-cert-auth",
        "--trusted-ca-file",
        "authority.pem",
    ];
    let options = options.map(|option| match option.strip_prefix("--") {
        Some(_) => option.to_owned(),
        None => format!("{CERTIFICATES}/{option}"),
    });
    let Some(server) = etcd::Server::start(&options) else { return };
    let trusting = || {
        let url = format!("etcds://localhost:{}", server.port());
        let bank = EtcdBank::new(&url, "test", TTL).expect("a URL");
        bank.with_authorities(&read("authority.pem")).expect("PEM")
    };
    trusting().limits().expect_err("it shows none");
    let known = trusting().with_certificate(&read("server.pem"), &read("server.key"));
    assert_eq!(known.expect("PEM").limits().expect("a list"), []);
    // As the files of a long-lived bank are renewed.
    let mut renewed = trusting();
    renew(|authority, own| renewed.renew(authority, own));
    assert_eq!(renewed.limits().expect("as it was renewed"), []);
    let strange = trusting().with_certificate(&read("stranger.pem"), &read("stranger.key"));
    strange.expect("PEM").limits().expect_err("no authority has signed it");
    for (chain, key, why) in [
        ("server.key", "server.key", "the certificate is not in PEM"),
        ("server.pem", "server.pem", "the certificate's key is not in PEM"),
    ] {
        let error = trusting().with_certificate(&read(chain), &read(key)).expect_err(why);
        assert!(error.to_string().ends_with(why), "{error}");
    }
    let plain = EtcdBank::new("etcd://h:1", "test", TTL).expect("a URL");
    let error = plain.with_certificate(&read("server.pem"), &read("server.key"));
    assert!(error.expect_err("no TLS").to_string().contains("etcds://"));
}

/// An authority that did not sign the certificate gives one clear error.
#[test]
fn a_wrong_authority_is_one_clear_error() {
    let Some((_server, port)) = redis("no") else { return };
    for untrusting in [
        bank(port, "").with_authorities(&read("stranger.pem")).expect("certificates"),
        // The system's authorities know nothing of the tests'.
        bank(port, ""),
    ] {
        let error = refused(&untrusting, port);
        assert!(error.to_string().contains("no trusted authority has signed"), "{}", shown(&error));
    }
    // There is no way around it.
    let error = refused(&bank(port, "#insecure"), port);
    assert!(shown(&error).contains("insecure"), "{error:?}");
}

#[test]
fn a_server_without_tls_is_not_asked_without_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let plain = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().expect("a client");
        let mut bytes = [0; 4096];
        let n = stream.read(&mut bytes).expect("its greeting");
        stream.write_all(b"-ERR unknown command\r\n").expect("sent");
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    });
    let trusting = bank(port, "").with_authorities(&read("authority.pem")).expect("certificates");
    let error = refused(&trusting, port);
    assert!(error.to_string().contains("start it, or wait for it"), "{error}");
    assert!(!plain.join().expect("no panic").contains("sesame"), "the password was sent");
}

#[test]
fn authorities_that_are_none_are_refused() {
    let bank = |url| RedisBank::new(url, "test", TTL).expect("a URL");
    let error = bank("rediss://:sesame@h").with_authorities(b"nothing").expect_err("no PEM");
    assert_eq!(error.to_string(), "h:6379 (TLS): the authorities contain no PEM certificate");
    let plain = bank("redis://:sesame@h").with_authorities(&read("authority.pem"));
    let error = plain.expect_err("no TLS");
    assert!(
        error.to_string().contains("rediss://") && !shown(&error).contains("sesame"),
        "{error}"
    );
}

/// etcd is reached through TLS only if its authority is trusted.
#[test]
fn etcd_needs_a_trusted_authority() {
    let options = ["--cert-file", "server.pem", "--key-file", "server.key"];
    let options = options.map(|option| match option.strip_prefix("--") {
        Some(_) => option.to_owned(),
        None => format!("{CERTIFICATES}/{option}"),
    });
    let Some(server) = etcd::Server::start(&options) else { return };
    let port = server.port();
    let bank = || {
        let url = format!("etcds://u:sesame@127.0.0.1:{port}");
        EtcdBank::new(&url, "test", TTL).expect("a URL")
    };
    let trusting = bank().with_authorities(&read("authority.pem")).expect("certificates");
    // It is reached, but has no users.
    let error = trusting.limits().expect_err("no users");
    assert!(error.to_string().contains("authentication is not enabled"), "{error}");
    let url = format!("etcds://localhost:{port}");
    let trusting = EtcdBank::new(&url, "test", TTL).expect("a URL");
    let trusting = trusting.with_authorities(&read("authority.pem")).expect("certificates");
    assert_eq!(trusting.limits().expect("a list"), []);
    let strangers = bank().with_authorities(&read("stranger.pem")).expect("certificates");
    for (untrusting, why) in [
        (strangers, "no trusted authority has signed"),
        (bank(), "specify those of its certificate"),
    ] {
        let error = untrusting.limits().expect_err("it is not trusted");
        assert!(error.to_string().contains(why), "{}", etcd::shown(&error));
        assert!(!etcd::shown(&error).contains("sesame"), "{error:?}");
    }
    let error = bank().with_authorities(b"nothing").expect_err("no PEM");
    assert!(error.to_string().contains("no PEM certificate"), "{error}");
    let plain = EtcdBank::new("etcd://h:1", "test", TTL).expect("a URL");
    assert!(plain.with_authorities(&read("authority.pem")).is_err());
}
