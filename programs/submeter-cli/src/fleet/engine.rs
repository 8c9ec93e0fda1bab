//! The bank at an address.

use std::error::Error;
use std::fmt;

use submeter_address::{Address, AddressError, Url};
use submeter_bank::{Answer, Bank, Budget, Lent, Limit, Operate, Request, SocketBank, SocketError};
#[cfg(feature = "etcd")]
use submeter_bank::{EtcdBank, EtcdError};
#[cfg(feature = "redis")]
use submeter_bank::{RedisBank, RedisError};
use submeter_terminal::Failure;

use crate::cli::ServiceArgs;

/// A bank behind a socket, in Redis, or in etcd.
pub(crate) enum Engine {
    Socket(SocketBank),
    #[cfg(feature = "redis")]
    Redis(Box<RedisBank>),
    #[cfg(feature = "etcd")]
    Etcd(Box<EtcdBank>),
}

/// A part that a build may lack: the feature, its name for people, and whether this build has it.
type Part = (&'static str, &'static str, bool);
const ETCD: Part = ("etcd", "etcd", cfg!(feature = "etcd"));
const REDIS: Part = ("redis", "Redis", cfg!(feature = "redis"));
const TLS: Part = ("tls", "TLS", cfg!(feature = "tls"));

/// Says which of these parts are missing, if any, and how to build the command with them.
fn missing(parts: &[Part]) -> Option<String> {
    let missing = || parts.iter().filter(|(.., is_there)| !is_there);
    let features: Vec<&str> = missing().map(|&(feature, ..)| feature).collect();
    let names: Vec<&str> = missing().map(|&(_, name, _)| name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "this build has no {}: build it with `cargo install submeter-cli --features {}`",
            names.join(" and no "),
            features.join(",")
        )
    })
}

impl Engine {
    /// Names the bank. Does not connect.
    pub(crate) fn new(address: &Address, service: &ServiceArgs) -> Result<Engine, Failure> {
        let url = match address.url() {
            Ok(url) => Some(url),
            // A path, which has no scheme.
            Err(AddressError::Scheme) => None,
            Err(error) => {
                return Err(Failure::new(format_args!("cannot ask {address}: {error} (--bank)")));
            }
        };
        let scheme = url.as_ref().map_or("", Url::scheme);
        let is_etcd = ["etcd", "etcds"].contains(&scheme);
        let is_redis = ["redis", "rediss", "redis+unix", "valkey", "valkeys"].contains(&scheme);
        let is_tls = ["rediss", "valkeys", "etcds"].contains(&scheme);
        let flag = match (&service.bank_ca, &service.bank_cert) {
            (Some(_), _) => Some("--bank-ca"),
            (None, Some(_)) => Some("--bank-cert"),
            (None, None) => None,
        };
        let needs = [(is_etcd, ETCD), (is_redis, REDIS), (is_tls || flag.is_some(), TLS)];
        let needs: Vec<Part> =
            needs.into_iter().filter_map(|(is, part)| is.then_some(part)).collect();
        if let Some(why) = missing(&needs) {
            return Err(Failure::new(format_args!("cannot ask {address}: {why} (--bank)")));
        }
        if let Some(flag) = flag.filter(|_| !is_tls) {
            return Err(Failure::new(format_args!(
                "{address} does not use TLS: leave out {flag}, or use rediss:// or etcds://"
            )));
        }
        if let Some(path) =
            address.secret().strip_prefix("unix:").filter(|path| path.starts_with('/'))
        {
            return Ok(Engine::Socket(SocketBank::new(path)));
        }
        #[cfg(feature = "etcd")]
        if is_etcd {
            return Engine::etcd(address, service);
        }
        #[cfg(feature = "redis")]
        if is_redis {
            return Engine::redis(address, service);
        }
        Err(Failure::new(format_args!(
            "{address} is not a bank: use unix:/PATH of `submeter fleet bank`, redis://HOST:PORT \
             or etcd://HOST:PORT (--bank)"
        )))
    }

    #[cfg(feature = "etcd")]
    fn etcd(address: &Address, service: &ServiceArgs) -> Result<Engine, Failure> {
        let wrong = |error: EtcdError| wrong(&error, address);
        let bank = EtcdBank::new(address.secret(), &service.fleet, service.lease).map_err(wrong)?;
        #[cfg(feature = "tls")]
        if address.url().is_ok_and(|url| url.scheme() == "etcds") && service.bank_ca.is_none() {
            return Err(Failure::new(format_args!(
                "{address} requires --bank-ca FILE with the authorities to trust"
            )));
        }
        let mut engine = Engine::Etcd(Box::new(bank));
        engine.renew(&Certificates::read(service)?, address)?;
        Ok(engine)
    }

    #[cfg(feature = "redis")]
    fn redis(address: &Address, service: &ServiceArgs) -> Result<Engine, Failure> {
        let wrong = |error: RedisError| wrong(&error, address);
        let bank =
            RedisBank::new(address.secret(), &service.fleet, service.lease).map_err(wrong)?;
        let mut engine = Engine::Redis(Box::new(bank));
        engine.renew(&Certificates::read(service)?, address)?;
        Ok(engine)
    }

    /// Makes a bank use the current contents of the certificate files from now on, if flags named
    /// any. A bad file changes nothing.
    pub(crate) fn renew(
        &mut self,
        certificates: &Certificates,
        address: &Address,
    ) -> Result<(), Failure> {
        #[cfg(all(feature = "tls", any(feature = "etcd", feature = "redis")))]
        {
            let Certificates { authorities, own } = certificates;
            let own = own.as_ref().map(|(chain, key)| (&chain[..], &key[..]));
            if authorities.is_none() && own.is_none() {
                return Ok(());
            }
            match self {
                // A socket has no certificates.
                Engine::Socket(_) => {}
                #[cfg(feature = "redis")]
                Engine::Redis(bank) => bank
                    .renew(authorities.as_deref(), own)
                    .map_err(|error| wrong(&error, address))?,
                #[cfg(feature = "etcd")]
                Engine::Etcd(bank) => bank
                    .renew(authorities.as_deref(), own)
                    .map_err(|error| wrong(&error, address))?,
            }
        }
        #[cfg(not(all(feature = "tls", any(feature = "etcd", feature = "redis"))))]
        let _ = (certificates, address);
        Ok(())
    }
}

#[cfg(any(feature = "etcd", feature = "redis"))]
fn wrong(error: &dyn Error, address: &Address) -> Failure {
    Failure::new(format_args!("{}, not {address} (--bank)", in_one_line(error)))
}

/// The contents of the files that flags name, in PEM. A build without TLS has refused the flags.
pub(crate) struct Certificates {
    #[cfg(all(feature = "tls", any(feature = "etcd", feature = "redis")))]
    authorities: Option<Vec<u8>>,
    /// The certificate with its key.
    #[cfg(all(feature = "tls", any(feature = "etcd", feature = "redis")))]
    own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    /// Reads the files. They may be pipes, so it may wait.
    #[cfg(all(feature = "tls", any(feature = "etcd", feature = "redis")))]
    pub(crate) fn read(service: &ServiceArgs) -> Result<Certificates, Failure> {
        use crate::tls::{certificates, private_key};
        let authorities = service.bank_ca.as_ref().map(|path| certificates("--bank-ca", path));
        let authorities = authorities.transpose()?.map(|(_, pem)| pem);
        let own = service.bank_cert.as_ref().zip(service.bank_key.as_ref());
        let own = own.map(|(chain, key)| {
            Ok((certificates("--bank-cert", chain)?.1, private_key("--bank-key", key)?.1))
        });
        Ok(Certificates { authorities, own: own.transpose()? })
    }

    #[cfg(not(all(feature = "tls", any(feature = "etcd", feature = "redis"))))]
    pub(crate) fn read(_: &ServiceArgs) -> Result<Certificates, Failure> {
        Ok(Certificates {})
    }
}

/// Runs the same code on each kind of bank.
macro_rules! each {
    ($engine:expr, $bank:ident => $call:expr) => {
        match $engine {
            Engine::Socket($bank) => $call.map_err(EngineError::from),
            #[cfg(feature = "redis")]
            Engine::Redis($bank) => $call.map_err(EngineError::from),
            #[cfg(feature = "etcd")]
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

    fn learns(&self) -> Result<bool, EngineError> {
        each!(self, bank => bank.learns())
    }
}

/// Why a bank has not answered, or has refused: an error with its causes, on one line.
#[derive(Clone, Debug)]
pub(crate) struct EngineError {
    line: String,
    is_refused: bool,
}

impl EngineError {
    /// Makes the error of a bank that refuses.
    pub(crate) fn refused(line: String) -> EngineError {
        EngineError { line, is_refused: true }
    }

    /// Returns whether the bank answered, and refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }
}

pub(super) fn in_one_line(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.map(ToString::to_string).fold(error.to_string(), |line, cause| {
        // Some errors repeat their cause.
        if line.contains(&cause) { line } else { format!("{line}: {cause}") }
    })
}

impl From<SocketError> for EngineError {
    fn from(error: SocketError) -> EngineError {
        EngineError { line: in_one_line(&error), is_refused: error.is_refused() }
    }
}

#[cfg(feature = "etcd")]
impl From<EtcdError> for EngineError {
    fn from(error: EtcdError) -> EngineError {
        EngineError { line: in_one_line(&error), is_refused: error.is_refused() }
    }
}

#[cfg(feature = "redis")]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_an_error_repeats_is_said_once() {
        #[derive(Debug)]
        struct Outer(&'static str, std::io::Error);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.1)
            }
        }
        let refused = || std::io::Error::other("refused (111)");
        assert_eq!(in_one_line(&Outer("h:1: refused (111)", refused())), "h:1: refused (111)");
        assert_eq!(in_one_line(&Outer("h:1", refused())), "h:1: refused (111)");
    }

    /// A build names what it lacks, and how to get it.
    #[test]
    fn what_a_build_lacks_is_named_with_a_remedy() {
        let (there, redis, tls) =
            (("etcd", "etcd", true), ("redis", "Redis", false), ("tls", "TLS", false));
        assert_eq!(missing(&[]), None);
        assert_eq!(missing(&[there]), None);
        let one =
            "this build has no Redis: build it with `cargo install submeter-cli --features redis`";
        assert_eq!(missing(&[there, redis]).as_deref(), Some(one));
        let both = missing(&[redis, tls]).expect("two are missing");
        assert!(
            both.contains("no Redis and no TLS: ") && both.contains("--features redis,tls`"),
            "{both}"
        );
    }
}
