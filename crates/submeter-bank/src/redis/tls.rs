//! The certificates that a bank in Redis trusts, and its own.

use redis::{Client, ClientTlsConfig, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::Cause;
use super::{RedisBank, RedisError};

/// The certificates, in PEM.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    /// `None` for the system's.
    authorities: Option<Vec<u8>>,
    own: Option<Own>,
}

#[derive(Clone)]
struct Own {
    chain: Vec<u8>,
    key: Vec<u8>,
}

fn has_certificate(pem: &[u8]) -> bool {
    CertificateDer::pem_slice_iter(pem).next().is_some_and(|found| found.is_ok())
}

const OTHERWISE: &str = "certificates require a rediss:// URL";

impl RedisBank {
    /// Trusts the authorities of these certificates, in PEM, and no others.
    ///
    /// # Errors
    /// When there is no certificate among them, or the URL is not `rediss://…`.
    pub fn with_authorities(mut self, pem: &[u8]) -> Result<Self, RedisError> {
        let authorities = Some(self.authorities(pem)?);
        let certificates = Certificates { authorities, ..self.certificates.clone() };
        self.encrypt(certificates, "authorities require a rediss:// URL")?;
        Ok(self)
    }

    /// Shows the server this certificate, in PEM and followed by its chain, with its key: servers
    /// may ask every client for one.
    ///
    /// # Errors
    /// When there is no certificate or no key among them, or the URL is not `rediss://…`.
    pub fn with_certificate(mut self, chain: &[u8], key: &[u8]) -> Result<Self, RedisError> {
        let own = Some(self.own(chain, key)?);
        let certificates = Certificates { own, ..self.certificates.clone() };
        self.encrypt(certificates, OTHERWISE)?;
        Ok(self)
    }

    /// Replaces the certificates, from the next connection on: trusts these authorities, or the
    /// system's, and shows this certificate with its key, or none. Everything known of the fleet
    /// stays.
    ///
    /// # Errors
    /// The same as [`with_authorities`](Self::with_authorities) and
    /// [`with_certificate`](Self::with_certificate); nothing changes then.
    pub fn renew(
        &mut self,
        authorities: Option<&[u8]>,
        own: Option<(&[u8], &[u8])>,
    ) -> Result<(), RedisError> {
        let authorities = authorities.map(|pem| self.authorities(pem)).transpose()?;
        let own = own.map(|(chain, key)| self.own(chain, key)).transpose()?;
        self.encrypt(Certificates { authorities, own }, OTHERWISE)
    }

    fn authorities(&self, pem: &[u8]) -> Result<Vec<u8>, RedisError> {
        // The client accepts an empty list, and then trusts no server.
        if !has_certificate(pem) {
            let why = "the authorities contain no PEM certificate".to_owned();
            return Err(self.failed(Cause::Refused(why)));
        }
        Ok(pem.to_vec())
    }

    fn own(&self, chain: &[u8], key: &[u8]) -> Result<Own, RedisError> {
        let lacks = if !has_certificate(chain) {
            Some("the certificate is not in PEM")
        } else if PrivateKeyDer::from_pem_slice(key).is_err() {
            Some("the certificate's key is not in PEM")
        } else {
            None
        };
        match lacks {
            Some(why) => Err(self.failed(Cause::Refused(why.to_owned()))),
            None => Ok(Own { chain: chain.to_vec(), key: key.to_vec() }),
        }
    }

    fn encrypt(
        &mut self,
        certificates: Certificates,
        otherwise: &'static str,
    ) -> Result<(), RedisError> {
        let Certificates { authorities, own } = &certificates;
        let own = own.as_ref().map(|own| ClientTlsConfig {
            client_cert: own.chain.clone(),
            client_key: own.key.clone(),
        });
        let files = TlsCertificates { client_tls: own, root_cert: authorities.clone() };
        let info = self.client.get_connection_info().clone();
        self.client = Client::build_with_tls(info, files)
            .map_err(|error| self.failed(Cause::Redis(otherwise, error)))?;
        self.certificates = certificates;
        Ok(())
    }
}
