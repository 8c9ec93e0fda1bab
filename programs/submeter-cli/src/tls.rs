//! TLS for both ports of the server, and for its clients.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use submeter_terminal::Failure;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::secrets;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// How both ports are encrypted.
#[derive(Clone)]
pub(crate) struct Served {
    config: Arc<ServerConfig>,
    shown: Arc<Shown>,
}

/// The certificate that clients are shown, with its key. A new one is shown to later connections;
/// connections that have agreed on keys keep them.
#[derive(Debug)]
struct Shown(Mutex<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock()))
    }
}

impl Served {
    /// Reads a certificate, followed by those that lead to its authority, and its key.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Served, Failure> {
        let shown = Arc::new(Shown(Mutex::new(read(certificate, key)?)));
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(certificate, key, &error))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Shown>::clone(&shown));
        Ok(Served { config: Arc::new(config), shown })
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Replaces the certificate with that of `new`.
    pub(crate) fn replace(&self, new: &Served) {
        let new = Arc::clone(&new.shown.0.lock());
        *self.shown.0.lock() = new;
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, Failure> {
    let (chain, _) = certificates("--tls-cert", certificate)?;
    let (secret, _) = private_key("--tls-key", key)?;
    let both = CertifiedKey::from_der(chain, secret, &provider());
    both.map(Arc::new).map_err(|error| refused(certificate, key, &error))
}

fn refused(certificate: &Path, key: &Path, error: &rustls::Error) -> Failure {
    Failure::new(format_args!(
        "cannot use {} with {}: {error} (--tls-cert, --tls-key)",
        certificate.display(),
        key.display()
    ))
}

/// Trusts only the authorities of a file.
pub(crate) fn client(authorities: &Path) -> Result<TlsConfig, Failure> {
    let (trusted, _) = certificates("--ca-file", authorities)?;
    let trusted = trusted.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(trusted)))
        .unversioned_rustls_crypto_provider(provider())
        .build())
}

/// Reads a key, and returns it with its text in PEM.
pub(crate) fn private_key(
    flag: &str,
    path: &Path,
) -> Result<(PrivateKeyDer<'static>, Vec<u8>), Failure> {
    let text = secrets::read(flag, path)?.into_bytes();
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        let name = path.display();
        // `ENCRYPTED PRIVATE KEY`, or the header of an older format.
        if text.windows(9).any(|word| word == b"ENCRYPTED") {
            return Failure::new(format_args!(
                "the key in {name} has a passphrase, which a server cannot ask for: remove it with \
                 openssl pkey -in {name} -out {name} ({flag})"
            ));
        }
        Failure::new(format_args!(
            "{name} contains no PEM private key, which begins with \"-----BEGIN PRIVATE KEY-----\" \
             ({flag})"
        ))
    })?;
    Ok((key, text))
}

/// Reads certificates, and returns them with their text in PEM.
pub(crate) fn certificates(
    flag: &str,
    path: &Path,
) -> Result<(Vec<CertificateDer<'static>>, Vec<u8>), Failure> {
    let name = path.display();
    let text = submeter_terminal::read_file(path)
        .map_err(|error| Failure::new(format_args!("cannot read {name}: {error} ({flag})")))?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    if found.is_empty() {
        return Err(Failure::new(format_args!(
            "{name} contains no PEM certificate, which begins with \"-----BEGIN CERTIFICATE-----\" \
             ({flag})"
        )));
    }
    Ok((found, text.into_bytes()))
}
