//! Whom a bank in etcd trusts, and who it says that it is.

use std::sync::Arc;

use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::error::Cause;
use super::{EtcdBank, EtcdError};

#[derive(Default)]
pub(super) struct Certificates {
    authorities: Option<RootCerts>,
    own: Option<ClientCert>,
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    let items = parse_pem(pem).filter_map(Result::ok);
    let certificate = |item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    };
    items.filter_map(certificate).collect()
}

impl EtcdBank {
    /// Trusts the authorities of these certificates, in PEM, and no others.
    ///
    /// # Errors
    /// When there is no certificate among them, or the URL is not `etcds://…`.
    pub fn with_authorities(mut self, pem: &[u8]) -> Result<Self, EtcdError> {
        let found = certificates(pem);
        if found.is_empty() {
            let why = "the authorities have no certificate in PEM".to_owned();
            return Err(self.failed(Cause::Refused(why)));
        }
        self.certificates.authorities = Some(RootCerts::Specific(Arc::new(found)));
        self.with_certificates("authorities are for a URL of etcds://")
    }

    /// Shows a certificate to the servers, in PEM and followed by its chain, for which this is the
    /// key: servers may ask for one of every client.
    ///
    /// # Errors
    /// When there is no certificate or no key among them, or the URL is not `etcds://…`.
    pub fn with_certificate(mut self, chain: &[u8], key: &[u8]) -> Result<Self, EtcdError> {
        let chain = certificates(chain);
        if chain.is_empty() {
            let why = "the certificate is not in PEM".to_owned();
            return Err(self.failed(Cause::Refused(why)));
        }
        let key = PrivateKey::from_pem(key).map_err(|_| {
            let why = "the certificate's key is not in PEM".to_owned();
            self.failed(Cause::Refused(why))
        })?;
        self.certificates.own = Some(ClientCert::new_with_certs(&chain, key));
        self.with_certificates("certificates are for a URL of etcds://")
    }

    fn with_certificates(mut self, otherwise: &str) -> Result<Self, EtcdError> {
        if !self.is_tls {
            return Err(self.failed(Cause::Refused(otherwise.to_owned())));
        }
        let Certificates { authorities, own } = &self.certificates;
        let mut tls = TlsConfig::builder().client_cert(own.clone());
        if let Some(authorities) = authorities {
            tls = tls.root_certs(authorities.clone());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = tls.unversioned_rustls_crypto_provider(provider).build();
        self.client.encrypt(tls, authorities.is_some());
        Ok(self)
    }
}
