//! TLS for both ports of the server, and for what asks it.

use std::path::Path;
use std::sync::Arc;

use submeter_terminal::Failure;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::secrets;

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Reads a certificate, with those that lead to its authority after it, and its key.
pub(crate) fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Failure> {
    let (chain, _) = certificates("--tls-cert", certificate)?;
    let (secret, _) = private_key("--tls-key", key)?;
    let refused = |error: rustls::Error| {
        Failure::new(format_args!(
            "{} and {} do not serve together: {error} (--tls-cert, --tls-key)",
            certificate.display(),
            key.display()
        ))
    };
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(refused)?;
    Ok(Arc::new(config))
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
        Failure::new(format_args!(
            "{} has no private key in PEM, which begins with \"-----BEGIN PRIVATE KEY-----\" \
             ({flag})",
            path.display()
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
    let text = submeter_terminal::read_file(path).map_err(|error| {
        Failure::new(format_args!("cannot read {name}: {error}; {flag} names the file"))
    })?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(text.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    if found.is_empty() {
        return Err(Failure::new(format_args!(
            "{name} has no certificate in PEM, which begins with \"-----BEGIN CERTIFICATE-----\" \
             ({flag})"
        )));
    }
    Ok((found, text.into_bytes()))
}
