//! `https`, and files that cannot be used.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use submeter::Count;
use submeter_otlp::{Exporter, Protocol};

use super::receiver::Receiver;
use super::sums::total;
use super::tree;

macro_rules! pem {
    ($name:literal) => {
        include_str!(concat!("../../../../programs/submeter-cache/tests/certificates/", $name))
    };
}

pub(crate) const AUTHORITY: &str = pem!("authority.pem");
pub(crate) const CERTIFICATE: &str = pem!("server.pem");
pub(crate) const KEY: &str = pem!("server.key");
const STRANGER: &str = pem!("stranger.pem");
const STRANGERS_KEY: &str = pem!("stranger.key");

/// A directory of PEM files, removed when it is dropped.
pub(crate) struct Files(PathBuf);

pub(crate) fn files(name: &str) -> Files {
    let directory =
        std::env::temp_dir().join(format!("submeter-otlp-{}-{name}", std::process::id()));
    fs::create_dir_all(&directory).expect("a place for files");
    for (name, text) in [
        ("authority.pem", AUTHORITY),
        ("server.pem", CERTIFICATE),
        ("server.key", KEY),
        ("stranger.pem", STRANGER),
        ("stranger.key", STRANGERS_KEY),
        ("empty", ""),
    ] {
        fs::write(directory.join(name), text).expect("a directory of the test");
    }
    Files(directory)
}

impl Files {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The directory may have been removed already.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A receiver that accepts only clients with a certificate.
fn receiver() -> Receiver {
    let provider = Arc::new(ring::default_provider());
    let certificates = |pem: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().expect("PEM")
    };
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(certificates(AUTHORITY));
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).expect("PEM");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients.build().expect("an authority"))
        .with_single_cert(certificates(CERTIFICATE), key)
        .expect("a pair");
    Receiver::encrypted(Arc::new(config))
}

#[test]
fn https_trusts_as_told_and_shows_itself() {
    let (mut key, files, receiver) = (None, files("https"), receiver());
    let tree = tree(|schema| key = Some(schema.counter::<Count>("n", "")));
    tree.root().add(key.expect("declared"), 3);
    let url = format!("https://localhost:{}/v1/metrics", receiver.address().port());
    let to = |url: &str, ca: &str| {
        let hour = Duration::from_secs(3600);
        Exporter::builder(&tree).endpoint(url).interval(hour).certificate(files.path(ca))
    };
    let known = || {
        to(&url, "authority.pem")
            .client_certificate(files.path("server.pem"), files.path("server.key"))
    };
    let exporter = known().start().expect("valid");
    exporter.export().expect("accepted");
    assert_eq!(total(&receiver.taken(), "n"), 3);

    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    let no_tls = format!("https://{}/v1/metrics", plain.local_addr().expect("bound"));
    let answers = thread::spawn(move || {
        let (mut stream, _) = plain.accept().expect("a client");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it waits for an answer");
        // Until the client leaves; otherwise it would lose the answer.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    for (builder, url, remedy) in [
        (to(&url, "stranger.pem"), url.clone(), "OTEL_EXPORTER_OTLP_CERTIFICATE"),
        (to(&url, "authority.pem"), url.clone(), "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
        (to(&no_tls, "authority.pem"), no_tls.clone(), "use http"),
    ] {
        let exporter = builder.start().expect("valid");
        let error = exporter.export().expect_err(remedy);
        let text = error.to_string();
        assert!(!error.is_refused(), "{text}");
        assert!(text.contains(&url) && text.contains(remedy), "{text}");
    }
    answers.join().expect("no panic");
}

/// Renewed certificates are used after a failed export; bad ones change nothing.
#[test]
fn renewed_certificates_are_used() {
    let (mut key, files, receiver) = (None, files("renewed"), receiver());
    let tree = tree(|schema| key = Some(schema.counter::<Count>("n", "")));
    tree.root().add(key.expect("declared"), 3);
    let write = |names: [&str; 2], texts: [&str; 2]| {
        for (name, text) in names.into_iter().zip(texts) {
            fs::write(files.path(name), text).expect("a file of the test");
        }
    };
    let own = ["own.pem", "own.key"];
    write(own, [STRANGER, STRANGERS_KEY]);
    let exporter = Exporter::builder(&tree)
        .endpoint(&format!("https://localhost:{}/v1/metrics", receiver.address().port()))
        .interval(Duration::from_secs(3600))
        .certificate(files.path("authority.pem"))
        .client_certificate(files.path(own[0]), files.path(own[1]))
        .start()
        .expect("valid");
    for bad in [[STRANGER, STRANGERS_KEY], [CERTIFICATE, STRANGERS_KEY], ["", ""]] {
        write(own, bad);
        let error = exporter.export().expect_err("no authority has signed it");
        assert!(!error.is_refused(), "{error}");
    }
    write(own, [CERTIFICATE, KEY]);
    exporter.export().expect("renewed");
    assert_eq!(total(&receiver.taken(), "n"), 3);
}

#[test]
fn unusable_files_are_named_with_a_remedy() {
    let files = files("wrong");
    let tree = tree(|_| {});
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let to = || Exporter::builder(&tree).protocol(protocol).endpoint("https://localhost:1");
        let (pem, key) = (files.path("server.pem"), files.path("server.key"));
        for (builder, says) in [
            (to().certificate(files.path("none")), ["none", "PEM"]),
            (to().certificate(files.path("empty")), ["empty", "BEGIN CERTIFICATE"]),
            (to().client_certificate(&pem, files.path("empty")), ["empty", "BEGIN PRIVATE KEY"]),
            (
                to().client_certificate(&pem, files.path("stranger.key")),
                ["stranger.key", "server.pem"],
            ),
            (to().client_certificate(files.path("empty"), &key), ["empty", "BEGIN CERTIFICATE"]),
        ] {
            let error = builder.start().expect_err(says[0]).to_string();
            assert!(says.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
