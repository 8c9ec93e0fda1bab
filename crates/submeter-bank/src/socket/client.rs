//! A member's end of the socket.

use std::error::Error;
use std::fmt;
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

use super::wire::{self, Asked, Exchange, Replied, Term};
use crate::{Answer, Bank, Budget, BudgetError, Lent, Limit, Operate, Request};

/// How long to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bank that is served by another process of this host: see
/// [`SocketServer`](crate::SocketServer).
///
/// Connects when it is first asked, and again after each failure. An exchange takes a lock until
/// the bank has answered, for at most a second.
///
/// # Examples
/// ```no_run
/// use submeter_bank::SocketBank;
///
/// let bank = SocketBank::new("/run/acme/bank");
/// ```
#[derive(Debug)]
pub struct SocketBank {
    path: PathBuf,
    connection: Mutex<Option<BufReader<UnixStream>>>,
}

impl SocketBank {
    /// Names the bank that is served at a path.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), connection: Mutex::new(None) }
    }

    fn connect(&self) -> io::Result<BufReader<UnixStream>> {
        let stream = connect(&self.path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(BufReader::new(stream))
    }

    fn ask(&self, asked: &Asked) -> Result<Replied, Cause> {
        let mut kept = self.connection.lock();
        // Put back only after a whole answer: a late one must not be taken for the answer to the
        // next request.
        let mut connection = kept.take().map_or_else(|| self.connect(), Ok)?;
        wire::write(connection.get_mut(), asked).map_err(late)?;
        let ended =
            || io::Error::new(io::ErrorKind::UnexpectedEof, "the bank closed the connection");
        let replied = wire::read(&mut connection).map_err(late)?.ok_or_else(ended)?;
        *kept = Some(connection);
        match replied {
            Replied::Refused(why) => Err(Cause::Refused(why)),
            replied => Ok(replied),
        }
    }

    /// Sends a request, and returns what `read` finds in the reply.
    fn get<T>(
        &self,
        asked: &Asked,
        read: impl FnOnce(Replied) -> Option<Result<T, BudgetError>>,
    ) -> Result<T, SocketError> {
        let strange = |why: String| io::Error::new(io::ErrorKind::InvalidData, why).into();
        let replied = self.ask(asked).and_then(|replied| match read(replied) {
            Some(read) => read.map_err(|error| strange(error.to_string())),
            None => Err(strange("the bank answered a different request".to_owned())),
        });
        replied.map_err(|cause| SocketError { path: self.path.clone(), cause })
    }
}

/// Names the cause where the system says only that the call would have to wait.
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            let text = format!("it has not answered within {PATIENCE:?}");
            io::Error::new(io::ErrorKind::TimedOut, text)
        }
        _ => error,
    }
}

/// Connects without waiting, even if a stopped server's queue is full.
#[cfg(target_os = "linux")]
fn connect(path: &Path) -> io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?).map_err(|error| match error {
        rustix::io::Errno::AGAIN => {
            io::Error::new(io::ErrorKind::TimedOut, "it accepts no connections")
        }
        error => error.into(),
    })?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(not(target_os = "linux"))]
fn connect(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path)
}

impl Bank for SocketBank {
    type Error = SocketError;

    fn exchange(&self, request: &Request) -> Result<Answer, SocketError> {
        self.get(&Asked::Exchange(Exchange::from(request)), |replied| match replied {
            Replied::Lent(lent) => Some(Answer::try_from(lent)),
            _ => None,
        })
    }
}

/// For the user whose process serves the bank, and for root.
impl Operate for SocketBank {
    fn set(&self, limit: &Limit) -> Result<(), SocketError> {
        self.get(&Asked::Set(Term::from(limit)), is_set)
    }

    fn set_if_none(&self, limit: &Limit) -> Result<(), SocketError> {
        self.get(&Asked::SetIfNone(Term::from(limit)), is_set)
    }

    fn limits(&self) -> Result<Vec<Limit>, SocketError> {
        self.get(&Asked::Limits, |replied| match replied {
            Replied::Limits(terms) => Some(terms.into_iter().map(Limit::try_from).collect()),
            _ => None,
        })
    }

    fn holders(&self, budget: &Budget) -> Result<Vec<Lent>, SocketError> {
        let (path, resource) = (budget.path().to_owned(), budget.resource().to_owned());
        self.get(&Asked::Holders { path, resource }, |replied| match replied {
            Replied::Holders(holders) => Some(Ok(holders.into_iter().map(Lent::from).collect())),
            _ => None,
        })
    }

    fn learns(&self) -> Result<bool, SocketError> {
        self.get(&Asked::Learns, |replied| match replied {
            Replied::Learns(learns) => Some(Ok(learns)),
            _ => None,
        })
    }
}

fn is_set(replied: Replied) -> Option<Result<(), BudgetError>> {
    matches!(replied, Replied::Set).then_some(Ok(()))
}

/// The error of an exchange with a bank behind a socket.
#[derive(Debug)]
pub struct SocketError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Io(io::Error),
    Refused(String),
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Cause::Io(error)
    }
}

impl SocketError {
    /// Returns whether the bank answered by refusing the request.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self.cause, Cause::Refused(_))
    }
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            Cause::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "cannot ask the bank at {path}: give this user write access to its socket"
                )
            }
            Cause::Io(_) => write!(f, "cannot ask the bank at {path}: start it, or wait for it"),
            Cause::Refused(why) => write!(f, "the bank at {path} refused: {why}"),
        }
    }
}

impl Error for SocketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Io(error) => Some(error),
            Cause::Refused(_) => None,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

    use super::*;

    /// A bank that is there, but stopped, is told apart from one that is not.
    #[test]
    fn a_mute_bank_is_said_to_be_mute() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("bank");
        let mute = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
        bind(&mute, &SocketAddrUnix::new(&path).expect("short")).expect("a free path");
        listen(&mute, 0).expect("bound");
        // The first one fills the queue.
        let bank = SocketBank::new(&path);
        let why = |error: &SocketError| error.source().expect("a cause").to_string();
        let error = bank.limits().expect_err("nobody answers");
        assert_eq!(why(&error), "it has not answered within 1s");
        let _waits = connect(&path);
        let error = bank.limits().expect_err("nobody accepts");
        assert_eq!(why(&error), "it accepts no connections");
    }
}
