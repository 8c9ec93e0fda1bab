//! Whom a bank in Redis trusts, and who it says that it is.

use redis::{Client, ClientTlsConfig, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::Cause;
use super::{RedisBank, RedisError};

/// In PEM.
#[derive(Default)]
pub(super) struct Certificates {
    /// None for the system's.
    authorities: Option<Vec<u8>>,
    own: Option<Own>,
}

struct Own {
    chain: Vec<u8>,
    key: Vec<u8>,
}

fn has_certificate(pem: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(pem).next().is_some_and(|found| found.is_ok())
}

impl RedisBank {
    /// Trusts the authorities of these certificates, in PEM, and no others.
    ///
    /// # Errors
    /// When there is no certificate among them, or the URL is not `rediss://…`.
    pub fn with_authorities(mut self, pem: &[u8]) -> Result<Self, RedisError> {
        // The client takes no certificate for none, and then trusts nobody.
        if !has_certificate(pem) {
            let why = "the authorities have no certificate in PEM".to_owned();
            return Err(self.failed(Cause::Refused(why)));
        }
        self.certificates.authorities = Some(pem.to_vec());
        self.with_certificates("authorities are for a URL of rediss://")
    }

    /// Shows a certificate to the server, in PEM and followed by its chain, for which this is the
    /// key: servers may ask for one of every client.
    ///
    /// # Errors
    /// When there is no certificate or no key among them, or the URL is not `rediss://…`.
    pub fn with_certificate(mut self, chain: &[u8], key: &[u8]) -> Result<Self, RedisError> {
        let lacks = if !has_certificate(chain) {
            Some("the certificate is not in PEM")
        } else if PrivateKeyDer::from_pem_slice(key).is_err() {
            Some("the certificate's key is not in PEM")
        } else {
            None
        };
        if let Some(why) = lacks {
            return Err(self.failed(Cause::Refused(why.to_owned())));
        }
        self.certificates.own = Some(Own { chain: chain.to_vec(), key: key.to_vec() });
        self.with_certificates("certificates are for a URL of rediss://")
    }

    fn with_certificates(mut self, otherwise: &'static str) -> Result<Self, RedisError> {
        let Certificates { authorities, own } = &self.certificates;
        let own = own.as_ref().map(|own| ClientTlsConfig {
            client_cert: own.chain.clone(),
            client_key: own.key.clone(),
        });
        let certificates = TlsCertificates { client_tls: own, root_cert: authorities.clone() };
        let info = self.client.get_connection_info().clone();
        self.client = Client::build_with_tls(info, certificates)
            .map_err(|error| self.failed(Cause::Redis(otherwise, error)))?;
        Ok(self)
    }
}
