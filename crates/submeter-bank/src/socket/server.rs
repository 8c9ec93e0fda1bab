//! The bank's end of the socket.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::wire::{self, Asked, Holding, Replied, Term};
use crate::{Budget, BudgetError, Limit, Operate, Request};

/// The most processes that are served at a time, each by a thread.
const MEMBERS_MAX: usize = 1024;

/// How long a process may take to read its answer.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// An answer is made in a few frames; a ledger sorts on the heap.
const STACK: usize = 256 << 10;

/// A bank that is served to the processes of this host, until it is dropped.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use submeter_bank::{Budget, Ledger, MemoryBank, Past, SocketServer};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("bank");
/// // What an earlier process lent is unknown, unless this is the first.
/// let mut ledger = Ledger::new(Duration::from_secs(15), Past::Unknown);
/// ledger.set_limit(&Budget::new("/acme", "memory")?, 8 << 30, 0)?;
/// let bank = Arc::new(MemoryBank::from(ledger));
/// // For processes of this user alone.
/// let server = SocketServer::start(&path, 0o600, Arc::clone(&bank))?;
/// # drop(server);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Who may ask
/// The mode of the socket decides who can connect. If others than its owner can, a member's name is
/// `user 1000`, with the number of its user as the system knows it, whatever it calls itself: so no
/// user can return what another one has, and a [cap](crate::Ledger::set_limit_per_member) holds for
/// all processes of a user together.
///
/// Limits are set and listed by the user whose process this is, and by root.
///
/// A request is bounded by 16 MiB, and 1,024 processes are served at a time.
pub struct SocketServer {
    path: PathBuf,
    /// Keeps a second server from lending the same again.
    lock: File,
    shared: Arc<Shared>,
    accepts: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ends: AtomicBool,
    members: Mutex<HashMap<u64, Served>>,
}

struct Served {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

impl SocketServer {
    /// Serves a bank at a path, with the permissions `mode`, such as `0o600`. Takes a thread, and
    /// one for each process that is connected.
    ///
    /// The socket of a server that was killed is replaced. Beside it stands a file whose name ends
    /// in `.lock`, which stays.
    ///
    /// # Errors
    /// When another server has the path, a file that is no socket stands there, the path is too
    /// long for a socket (about 100 bytes), or it cannot be written; and outside Linux, when `mode`
    /// lets other users in.
    pub fn start<B>(path: impl AsRef<Path>, mode: u32, bank: Arc<B>) -> io::Result<Self>
    where
        B: Operate + Send + Sync + 'static,
    {
        let path = path.as_ref().to_owned();
        let in_file = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot serve at {}: {error}", path.display()))
        };
        let by_user = mode & 0o077 != 0;
        if by_user && !cfg!(target_os = "linux") {
            let why = "who connects is known on Linux alone: let in no other user, by mode 0600";
            return Err(in_file(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let lock = lock(&path).map_err(in_file)?;
        let listener = listen(&path, mode).map_err(in_file)?;
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        let accepts = Builder::new().name("bank".to_owned()).spawn(move || {
            accept(&listener, &serving, &bank, by_user);
        })?;
        Ok(Self { path, lock, shared, accepts: Some(accepts) })
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn lock(path: &Path) -> io::Result<File> {
    let lock =
        File::options().create(true).truncate(false).write(true).open(beside(path, ".lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another server has it: stop that first"))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Binds in a directory of this user's own, and renames: before its mode is set, others may connect
/// to a socket if they find it.
fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let why = "a file stands there that is no socket: remove it, or take another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let private = beside(path, ".new");
    if private.exists() {
        // Of a server that was killed: this one has the lock.
        fs::remove_dir_all(&private)?;
    }
    DirBuilder::new().mode(0o700).create(&private)?;
    let bound = private.join("s");
    let listener = UnixListener::bind(&bound).and_then(|listener| {
        fs::set_permissions(&bound, Permissions::from_mode(mode))?;
        fs::rename(&bound, path)?;
        Ok(listener)
    });
    fs::remove_dir_all(&private)?;
    listener
}

fn accept<B>(listener: &UnixListener, shared: &Arc<Shared>, bank: &Arc<B>, by_user: bool)
where
    B: Operate + Send + Sync + 'static,
{
    for id in 0.. {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Out of descriptors, or a connection that was given up: others go on.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        // Acquire: pairs with the Release in `drop`, whose connection this is.
        if shared.ends.load(Ordering::Acquire) {
            return;
        }
        // A process that is not served asks again.
        let _ = serve(id, stream, shared, bank, by_user);
    }
}

fn serve<B>(
    id: u64,
    mut stream: UnixStream,
    shared: &Arc<Shared>,
    bank: &Arc<B>,
    by_user: bool,
) -> io::Result<()>
where
    B: Operate + Send + Sync + 'static,
{
    stream.set_write_timeout(Some(WRITE_MAX))?;
    let mut members = shared.members.lock();
    if members.len() >= MEMBERS_MAX {
        let why = format!("{MEMBERS_MAX} processes are connected: try again when one has ended");
        return wire::write(&mut stream, &Replied::Refused(why));
    }
    let caller = Caller::of(&stream, by_user)?;
    let (bank, kept) = (Arc::clone(bank), stream.try_clone()?);
    let thread = Builder::new().name("bank-member".to_owned()).stack_size(STACK);
    let ended = Arc::clone(shared);
    let thread = thread.spawn(move || {
        // A process that has ended or broken off is no error; one that sends nonsense is cut off.
        let _ = answer(stream, &*bank, &caller);
        // The other end would stay open for as long as there is a copy of this one.
        ended.members.lock().remove(&id);
    })?;
    members.insert(id, Served { stream: kept, thread });
    Ok(())
}

/// The asker, as far as the system knows it.
struct Caller {
    /// The name of the member, where it is not what the member says.
    name: Option<String>,
    /// Whether it may set and list limits.
    is_operator: bool,
}

impl Caller {
    #[cfg(target_os = "linux")]
    fn of(stream: &UnixStream, by_user: bool) -> io::Result<Caller> {
        let user = rustix::net::sockopt::socket_peercred(stream)?.uid;
        let name = by_user.then(|| format!("user {}", user.as_raw()));
        Ok(Caller { name, is_operator: user.is_root() || user == rustix::process::geteuid() })
    }

    /// No other user is let in: see [`SocketServer::start`].
    #[cfg(not(target_os = "linux"))]
    fn of(_: &UnixStream, _: bool) -> io::Result<Caller> {
        Ok(Caller { name: None, is_operator: true })
    }
}

fn answer<B: Operate>(mut stream: UnixStream, bank: &B, caller: &Caller) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(asked) = wire::read::<Asked>(&mut reader)? {
        let replied = reply(asked, bank, caller).unwrap_or_else(Replied::Refused);
        wire::write(&mut stream, &replied)?;
    }
    Ok(())
}

fn reply<B: Operate>(asked: Asked, bank: &B, caller: &Caller) -> Result<Replied, String> {
    let wrong = |error: BudgetError| error.to_string();
    let failed = |error: B::Error| error.to_string();
    if !caller.is_operator && !matches!(asked, Asked::Exchange(_)) {
        return Err("limits are for the user who serves the bank: ask as that user".to_owned());
    }
    Ok(match asked {
        Asked::Exchange(exchange) => {
            let mut request = Request::try_from(exchange).map_err(wrong)?;
            if let Some(name) = &caller.name {
                request.member.clone_from(name);
            }
            Replied::from(&bank.exchange(&request).map_err(failed)?)
        }
        Asked::Set(term) => {
            bank.set(&Limit::try_from(term).map_err(wrong)?).map_err(failed)?;
            Replied::Set
        }
        Asked::SetIfNone(term) => {
            bank.set_if_none(&Limit::try_from(term).map_err(wrong)?).map_err(failed)?;
            Replied::Set
        }
        Asked::Limits => {
            Replied::Limits(bank.limits().map_err(failed)?.iter().map(Term::from).collect())
        }
        Asked::Holders { path, resource } => {
            let budget = Budget::new(&path, &resource).map_err(wrong)?;
            let holders = bank.holders(&budget).map_err(failed)?;
            Replied::Holders(holders.into_iter().map(Holding::from).collect())
        }
        Asked::Learns => Replied::Learns(bank.learns().map_err(failed)?),
    })
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `accept`, which the connection below wakes.
        self.shared.ends.store(true, Ordering::Release);
        // Whatever fails here leaves a file or a thread behind, which a next server replaces.
        if UnixStream::connect(&self.path).is_ok()
            && let Some(accepts) = self.accepts.take()
        {
            let _ = accepts.join();
        }
        let _ = fs::remove_file(&self.path);
        // Each thread takes the lock to leave.
        let members = std::mem::take(&mut *self.shared.members.lock());
        for served in members.into_values() {
            let _ = served.stream.shutdown(Shutdown::Both);
            let _ = served.thread.join();
        }
        let _ = self.lock.unlock();
    }
}

impl std::fmt::Debug for SocketServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SocketServer").field("path", &self.path).finish_non_exhaustive()
    }
}
