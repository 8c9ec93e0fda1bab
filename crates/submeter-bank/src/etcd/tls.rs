//! The certificates that a bank in etcd trusts, and its own.

use std::sync::Arc;

use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::error::Cause;
use super::{EtcdBank, EtcdError};

#[derive(Clone, Default)]
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

const OTHERWISE: &str = "certificates require an etcds:// URL";

impl EtcdBank {
    /// Trusts the authorities of these certificates, in PEM, and no others.
    ///
    /// # Errors
    /// When there is no certificate among them, or the URL is not `etcds://…`.
    pub fn with_authorities(mut self, pem: &[u8]) -> Result<Self, EtcdError> {
        let authorities = Some(self.authorities(pem)?);
        let certificates = Certificates { authorities, ..self.certificates.clone() };
        self.encrypt(certificates, "authorities require an etcds:// URL")?;
        Ok(self)
    }

    /// Shows the servers this certificate, in PEM and followed by its chain, with its key: servers
    /// may ask every client for one.
    ///
    /// # Errors
    /// When there is no certificate or no key among them, or the URL is not `etcds://…`.
    pub fn with_certificate(mut self, chain: &[u8], key: &[u8]) -> Result<Self, EtcdError> {
        let own = Some(self.own(chain, key)?);
        let certificates = Certificates { own, ..self.certificates.clone() };
        self.encrypt(certificates, OTHERWISE)?;
        Ok(self)
    }

    /// Replaces the certificates, from the next connection on: trusts these authorities and shows
    /// this certificate with its key, or none.
    ///
    /// # Errors
    /// The same as [`with_authorities`](Self::with_authorities) and
    /// [`with_certificate`](Self::with_certificate); nothing changes then.
    pub fn renew(
        &mut self,
        authorities: Option<&[u8]>,
        own: Option<(&[u8], &[u8])>,
    ) -> Result<(), EtcdError> {
        let authorities = authorities.map(|pem| self.authorities(pem)).transpose()?;
        let own = own.map(|(chain, key)| self.own(chain, key)).transpose()?;
        self.encrypt(Certificates { authorities, own }, OTHERWISE)
    }

    fn authorities(&self, pem: &[u8]) -> Result<RootCerts, EtcdError> {
        let found = certificates(pem);
        if found.is_empty() {
            let why = "the authorities contain no PEM certificate".to_owned();
            return Err(self.failed(Cause::Refused(why)));
        }
        Ok(RootCerts::Specific(Arc::new(found)))
    }

    fn own(&self, chain: &[u8], key: &[u8]) -> Result<ClientCert, EtcdError> {
        let chain = certificates(chain);
        if chain.is_empty() {
            let why = "the certificate is not in PEM".to_owned();
            return Err(self.failed(Cause::Refused(why)));
        }
        let key = PrivateKey::from_pem(key).map_err(|_| {
            let why = "the certificate's key is not in PEM".to_owned();
            self.failed(Cause::Refused(why))
        })?;
        Ok(ClientCert::new_with_certs(&chain, key))
    }

    fn encrypt(&mut self, certificates: Certificates, otherwise: &str) -> Result<(), EtcdError> {
        if !self.is_tls {
            return Err(self.failed(Cause::Refused(otherwise.to_owned())));
        }
        let Certificates { authorities, own } = &certificates;
        let mut tls = TlsConfig::builder().client_cert(own.clone());
        if let Some(authorities) = authorities {
            tls = tls.root_certs(authorities.clone());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = tls.unversioned_rustls_crypto_provider(provider).build();
        self.client.encrypt(tls, authorities.is_some());
        self.certificates = certificates;
        Ok(())
    }
}
