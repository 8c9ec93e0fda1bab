//! Which authorities to trust, and which certificate to show.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, Error};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::builder::Builder;
use crate::error::SettingError;

/// Files in PEM that were read and checked.
pub(super) struct Files {
    /// `None` for the authorities of the system.
    authorities: Option<Vec<u8>>,
    /// A certificate with its chain, and its key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Files {
    pub(super) fn read(settings: &Builder) -> Result<Files, SettingError> {
        let authorities = settings.certificate.as_deref().map(authorities).transpose()?;
        let identity = match (&settings.client_certificate, &settings.client_key) {
            (Some(certificate), Some(key)) => Some(identity(certificate, key)?),
            (None, None) => None,
            (Some(one), None) => return Err(alone(one, "OTEL_EXPORTER_OTLP_CLIENT_KEY")),
            (None, Some(one)) => return Err(alone(one, "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")),
        };
        Ok(Files { authorities, identity })
    }

    pub(super) fn http(&self) -> Result<TlsConfig, SettingError> {
        let trusted = match &self.authorities {
            Some(pem) => certificates(pem),
            None => system()?,
        };
        let trusted = trusted.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        let mut config = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(trusted)))
            .unversioned_rustls_crypto_provider(provider());
        if let Some((chain, key)) = &self.identity {
            let chain = certificates(chain);
            let chain: Vec<_> =
                chain.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
            let key = PrivateKey::from_pem(key)
                .map_err(|error| SettingError::new(format!("client key: {error}: use PKCS#8")))?;
            config = config.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        Ok(config.build())
    }

    #[cfg(feature = "grpc")]
    pub(super) fn grpc(&self) -> Result<tonic::transport::ClientTlsConfig, SettingError> {
        use tonic::transport::{Certificate, ClientTlsConfig, Identity};

        let config = match &self.authorities {
            Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
            None => {
                // It loads them itself; only the error is needed here.
                system()?;
                ClientTlsConfig::new().with_native_roots()
            }
        };
        Ok(match &self.identity {
            Some((chain, key)) => config.identity(Identity::from_pem(chain, key)),
            None => config,
        })
    }
}

/// Returns the remedy for an error of TLS.
pub(super) fn remedy(error: &Error) -> Option<&'static str> {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            Some("set OTEL_EXPORTER_OTLP_CERTIFICATE to the file of its authority")
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some("use the name in its certificate, or make one for this name"),
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => Some("renew its certificate"),
        // This cause has a type of a crate below rustls.
        Error::InvalidCertificate(CertificateError::Other(error))
            if error.to_string().contains("CaUsedAsEndEntity") =>
        {
            Some(
                "its certificate is a CA certificate, the default of `openssl req -x509`: make one \
                 with basicConstraints=CA:FALSE",
            )
        }
        Error::InvalidMessage(_) => Some("if it has no TLS, use http"),
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::HandshakeFailure,
        ) => Some(
            "it requires a client certificate that it trusts: set \
             OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY",
        ),
        _ => None,
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn system() -> Result<Vec<CertificateDer<'static>>, SettingError> {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() {
        let text = "this system has no CA certificates: install `ca-certificates`, or set \
                    OTEL_EXPORTER_OTLP_CERTIFICATE to a file";
        return Err(SettingError::new(text.into()));
    }
    Ok(found)
}

fn authorities(file: &Path) -> Result<Vec<u8>, SettingError> {
    let pem = read(file)?;
    if certificates(&pem).is_empty() {
        return Err(no_certificate(file));
    }
    Ok(pem)
}

fn identity(certificate: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), SettingError> {
    let (chain_pem, key_pem) = (read(certificate)?, read(key)?);
    let chain = certificates(&chain_pem);
    if chain.is_empty() {
        return Err(no_certificate(certificate));
    }
    let wrong = |what: String| SettingError::new(format!("client key {key:?}: {what}"));
    let secret = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|_| {
        wrong("not a PEM key, which begins with \"-----BEGIN PRIVATE KEY-----\"".into())
    })?;
    // ureq panics if the two do not belong together.
    CertifiedKey::from_der(chain, secret, &provider())
        .map_err(|error| wrong(format!("does not belong to {certificate:?}: {error}")))?;
    Ok((chain_pem, key_pem))
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().unwrap_or_default()
}

fn read(file: &Path) -> Result<Vec<u8>, SettingError> {
    fs::read(file).map_err(|error| {
        SettingError::io(format!("cannot read {file:?}: {error}: specify a PEM file"), error)
    })
}

fn no_certificate(file: &Path) -> SettingError {
    SettingError::new(format!(
        "{file:?} contains no PEM certificate, which begins with \"-----BEGIN CERTIFICATE-----\""
    ))
}

fn alone(file: &Path, missing: &str) -> SettingError {
    SettingError::new(format!("{file:?} is useless alone: set {missing} too"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Below(&'static str);

    impl std::error::Error for Below {}

    impl std::fmt::Display for Below {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    #[test]
    fn each_fault_of_a_certificate_has_a_remedy() {
        let other = |what| CertificateError::Other(rustls::OtherError(Arc::new(Below(what))));
        for (error, told) in [
            (other("CaUsedAsEndEntity"), Some("CA:FALSE")),
            (other("Unknown"), None),
            (CertificateError::UnknownIssuer, Some("OTEL_EXPORTER_OTLP_CERTIFICATE")),
            (CertificateError::Expired, Some("renew")),
            (CertificateError::NotValidForName, Some("the name in its certificate")),
        ] {
            let said = remedy(&Error::InvalidCertificate(error));
            let is_told =
                told.map_or(said.is_none(), |told| said.is_some_and(|s| s.contains(told)));
            assert!(is_told, "{told:?}: {said:?}");
        }
    }
}
