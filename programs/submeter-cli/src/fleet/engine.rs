//! The bank of an address.

use std::error::Error;
use std::fmt;

use submeter_bank::{
    Answer, Bank, Budget, EtcdBank, EtcdError, Lent, Limit, Operate, RedisBank, RedisError,
    Request, SocketBank, SocketError,
};
use submeter_terminal::Failure;

use crate::cli::{NO_TLS, SecretAddress, ServiceArgs};

/// A bank behind a socket, in Redis, or in etcd.
pub(crate) enum Engine {
    Socket(SocketBank),
    Redis(Box<RedisBank>),
    Etcd(Box<EtcdBank>),
}

/// Has a bank of either kind trust and show what the flags name.
#[cfg(feature = "tls")]
macro_rules! with_certificates {
    ($bank:expr, $certificates:expr, $wrong:expr) => {{
        let mut bank = $bank;
        if let Some(pem) = $certificates.authorities {
            bank = bank.with_authorities(&pem).map_err(|error| $wrong(error.into()))?;
        }
        if let Some((chain, key)) = $certificates.own {
            bank = bank.with_certificate(&chain, &key).map_err(|error| $wrong(error.into()))?;
        }
        bank
    }};
}

impl Engine {
    /// Names the bank. Does not connect.
    pub(crate) fn new(address: &SecretAddress, service: &ServiceArgs) -> Result<Engine, Failure> {
        let text = address.secret();
        let is = |schemes: &[&str]| schemes.iter().any(|scheme| text.starts_with(scheme));
        let is_tls = is(&["rediss://", "valkeys://", "etcds://"]);
        let flag = match (&service.bank_ca, &service.bank_cert) {
            (Some(_), _) => Some("--bank-ca"),
            (None, Some(_)) => Some("--bank-cert"),
            (None, None) => None,
        };
        if (is_tls || flag.is_some()) && !cfg!(feature = "tls") {
            return Err(Failure::new(format_args!("cannot ask {address}: {NO_TLS} (--bank)")));
        }
        if let Some(flag) = flag.filter(|_| !is_tls) {
            return Err(Failure::new(format_args!(
                "{address} has no certificate to look at: leave out {flag}, or write rediss:// or \
                 etcds://"
            )));
        }
        let wrong =
            |error: EngineError| Failure::new(format_args!("{error}, not {address} (--bank)"));
        #[cfg(feature = "tls")]
        let certificates = Certificates::read(service)?;
        if let Some(path) = text.strip_prefix("unix:").filter(|path| path.starts_with('/')) {
            return Ok(Engine::Socket(SocketBank::new(path)));
        }
        if is(&["etcd://", "etcds://"]) {
            let bank = EtcdBank::new(text, &service.fleet, service.lease);
            let bank = bank.map_err(|error| wrong(error.into()))?;
            #[cfg(feature = "tls")]
            if is_tls && certificates.authorities.is_none() {
                return Err(Failure::new(format_args!(
                    "{address} needs --bank-ca FILE, whose authorities are trusted"
                )));
            }
            #[cfg(feature = "tls")]
            let bank = with_certificates!(bank, certificates, wrong);
            return Ok(Engine::Etcd(Box::new(bank)));
        }
        if is(&["redis://", "rediss://", "redis+unix://", "valkey://", "valkeys://"]) {
            let bank = RedisBank::new(text, &service.fleet, service.lease);
            let bank = bank.map_err(|error| wrong(error.into()))?;
            #[cfg(feature = "tls")]
            let bank = with_certificates!(bank, certificates, wrong);
            return Ok(Engine::Redis(Box::new(bank)));
        }
        Err(Failure::new(format_args!(
            "{address} is no bank: write unix:/PATH of `submeter fleet bank`, redis://HOST:PORT or \
             etcd://HOST:PORT (--bank)"
        )))
    }
}

/// What the files of the flags have, in PEM.
#[cfg(feature = "tls")]
struct Certificates {
    authorities: Option<Vec<u8>>,
    /// With its key.
    own: Option<(Vec<u8>, Vec<u8>)>,
}

#[cfg(feature = "tls")]
impl Certificates {
    fn read(service: &ServiceArgs) -> Result<Certificates, Failure> {
        use crate::tls::{certificates, private_key};
        let authorities = service.bank_ca.as_ref().map(|path| certificates("--bank-ca", path));
        let authorities = authorities.transpose()?.map(|(_, pem)| pem);
        let own = service.bank_cert.as_ref().zip(service.bank_key.as_ref());
        let own = own.map(|(chain, key)| {
            Ok((certificates("--bank-cert", chain)?.1, private_key("--bank-key", key)?.1))
        });
        Ok(Certificates { authorities, own: own.transpose()? })
    }
}

/// Runs the same on each.
macro_rules! each {
    ($engine:expr, $bank:ident => $call:expr) => {
        match $engine {
            Engine::Socket($bank) => $call.map_err(EngineError::from),
            Engine::Redis($bank) => $call.map_err(EngineError::from),
            Engine::Etcd($bank) => $call.map_err(EngineError::from),
        }
    };
}

impl Bank for Engine {
    type Error = EngineError;

    fn exchange(&self, request: &Request) -> Result<Answer, EngineError> {
        each!(self, bank => bank.exchange(request))
    }
}

impl Operate for Engine {
    fn set(&self, limit: &Limit) -> Result<(), EngineError> {
        each!(self, bank => bank.set(limit))
    }

    fn set_if_none(&self, limit: &Limit) -> Result<(), EngineError> {
        each!(self, bank => bank.set_if_none(limit))
    }

    fn limits(&self) -> Result<Vec<Limit>, EngineError> {
        each!(self, bank => bank.limits())
    }

    fn holders(&self, budget: &Budget) -> Result<Vec<Lent>, EngineError> {
        each!(self, bank => bank.holders(budget))
    }
}

/// Why a bank has not answered, or has refused: an error with its causes, in one line.
#[derive(Debug)]
pub(crate) struct EngineError {
    line: String,
    is_refused: bool,
}

impl EngineError {
    /// Makes one of a bank that refuses.
    pub(crate) fn refused(line: String) -> EngineError {
        EngineError { line, is_refused: true }
    }

    /// Returns whether the bank was there, and refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }
}

pub(super) fn in_one_line(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

impl From<SocketError> for EngineError {
    fn from(error: SocketError) -> EngineError {
        EngineError { line: in_one_line(&error), is_refused: error.is_refused() }
    }
}

impl From<EtcdError> for EngineError {
    fn from(error: EtcdError) -> EngineError {
        EngineError { line: in_one_line(&error), is_refused: error.is_refused() }
    }
}

impl From<RedisError> for EngineError {
    fn from(error: RedisError) -> EngineError {
        EngineError { line: in_one_line(&error), is_refused: error.is_refused() }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl Error for EngineError {}
