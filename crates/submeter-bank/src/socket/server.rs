//! The bank's end of the socket.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, BufReader, Read};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use submeter_sys::process_local::ProcessLocal;

use super::wire::{self, Asked, Holding, Replied, Term};
use crate::{Budget, BudgetError, Limit, Operate, Request};

/// Maximum number of processes that are served at a time, each by a thread.
const MEMBERS_MAX: usize = 1024;

/// How long a process may take to read its answer.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// Making an answer takes only a few frames; a ledger sorts on the heap.
const STACK: usize = 256 << 10;

/// A bank that is served to the processes of this host, until it is dropped. A forked child that
/// outlives its parent keeps the path occupied, unless it executes another program.
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
/// The mode of the socket decides who can connect. If users other than its owner can, a member's
/// name is `user 1000`, with the number of its user as the system knows it, whatever name it gives.
/// Therefore no user can return what another one has, and a
/// [cap](crate::Ledger::set_limit_per_member) holds for all processes of a user together.
///
/// Limits are set and listed by the user whose process this is, and by root.
///
/// A request is at most 16 MiB long, and 1,024 processes are served at a time. When all of these
/// places are taken, a newcomer takes one from its own user or from a user who has more: that of a
/// process that has asked nothing yet, or else one of the user who has the most.
pub struct SocketServer {
    path: PathBuf,
    /// The device and number of the socket's file: another server's may stand at `path` by now.
    file: (u64, u64),
    /// Keeps a second server from lending the same again.
    lock: File,
    shared: Arc<Shared>,
    /// Ends `accept` when it is shut down. A connection to `path` may reach another server.
    stop: UnixStream,
    accepts: ProcessLocal<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    members: Mutex<Members>,
    /// Total number of requests.
    asked: AtomicU64,
}

#[derive(Default)]
struct Members {
    served: HashMap<u64, Served>,
    /// The threads of processes whose places were taken.
    displaced: Vec<JoinHandle<()>>,
}

struct Served {
    stream: UnixStream,
    thread: JoinHandle<()>,
    seat: Arc<Seat>,
}

/// Gives up a place when dropped, also if a bank panics. Otherwise the other end of the connection
/// would stay open for as long as there is a copy of this one.
struct Leaves<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.shared.members.lock().served.remove(&self.id);
    }
}

/// The user of a place, and its activity.
#[derive(Debug)]
struct Seat {
    user: u32,
    /// The number of its last request among all requests; 0 before the first.
    asked: AtomicU64,
}

impl Members {
    /// Returns whether there is a place for a process of a user: a free one, or one taken from
    /// another process.
    fn make_room(&mut self, user: u32) -> bool {
        if self.served.len() < MEMBERS_MAX {
            return true;
        }
        // Relaxed: a statistic.
        let seats = self
            .served
            .iter()
            .map(|(id, served)| (*id, served.seat.user, served.seat.asked.load(Ordering::Relaxed)));
        let seats: Vec<_> = seats.collect();
        let Some(served) = displaced(&seats, user).and_then(|id| self.served.remove(&id)) else {
            return false;
        };
        let _ = served.stream.shutdown(Shutdown::Both);
        self.displaced.retain(|thread| !thread.is_finished());
        self.displaced.push(served.thread);
        true
    }
}

/// Chooses the place that one more process of `user` may take; each place comes with its user and
/// its last request. It belongs to the user itself or to a user who has more. The first choice is
/// the oldest place that has asked nothing, as members ask at once. Otherwise it is, of the user
/// with the most places, the one that has asked nothing for longest.
fn displaced(seats: &[(u64, u32, u64)], user: u32) -> Option<u64> {
    let mut has: HashMap<u32, usize> = HashMap::new();
    seats.iter().for_each(|(_, user, _)| *has.entry(*user).or_default() += 1);
    let own = has.get(&user).copied().unwrap_or_default();
    let may_take = |other: u32| other == user || has[&other] > own + 1;
    let strangers = seats.iter().filter(|(_, other, asked)| *asked == 0 && may_take(*other));
    if let Some((id, ..)) = strangers.min_by_key(|(id, ..)| id) {
        return Some(*id);
    }
    let (greediest, most) = has.into_iter().max_by_key(|(user, n)| (*n, Reverse(*user)))?;
    let theirs = seats.iter().filter(|(_, user, _)| *user == greediest);
    let silent = theirs.min_by_key(|(_, _, asked)| asked)?;
    (most > own + 1).then_some(silent.0)
}

impl SocketServer {
    /// Serves a bank at a path, with the permissions `mode`, such as `0o600`. Takes one thread, and
    /// one more for each connected process.
    ///
    /// The socket of a killed server is replaced. Beside it is a file whose name ends in `.lock`,
    /// which stays.
    ///
    /// # Errors
    /// When another server has the path, a file that is not a socket is there, the path is too long
    /// for a socket (about 100 bytes), or it cannot be written; and outside Linux, when `mode`
    /// admits other users.
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
            let why = "peer credentials are only available on Linux: use mode 0600";
            return Err(in_file(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        let lock = lock(&path).map_err(in_file)?;
        let (stop, stopped) = UnixStream::pair().map_err(in_file)?;
        stopped.set_nonblocking(true).map_err(in_file)?;
        let (listener, file) = listen(&path, mode).map_err(in_file)?;
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        let accepts = Builder::new().name("bank".to_owned()).spawn(move || {
            accept(&listener, &stopped, &serving, &bank, by_user);
        })?;
        let accepts = ProcessLocal::new(accepts);
        Ok(Self { path, file, lock, shared, stop, accepts })
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
            Err(io::Error::new(io::ErrorKind::AddrInUse, "another server uses it: stop that first"))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Binds in a directory of this user's own, and renames: before the mode is set, others could
/// connect to a socket that they find. Also returns the device and number of the file.
fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, (u64, u64))> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            let why = "there is a file that is not a socket: remove it, or use another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let private = beside(path, ".new");
    if private.exists() {
        // Left by a killed server: this one has the lock.
        fs::remove_dir_all(&private)?;
    }
    DirBuilder::new().mode(0o700).create(&private)?;
    let bound = private.join("s");
    let listener = UnixListener::bind(&bound).and_then(|listener| {
        // A client that gave up after `poll` saw it must not hold up `accept`.
        listener.set_nonblocking(true)?;
        fs::set_permissions(&bound, Permissions::from_mode(mode))?;
        let file = number(&bound)?;
        fs::rename(&bound, path)?;
        Ok((listener, file))
    });
    fs::remove_dir_all(&private)?;
    listener
}

/// Returns the device and number of a file.
fn number(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Serves each process that connects, until `stopped` is shut down.
fn accept<B>(
    listener: &UnixListener,
    stopped: &UnixStream,
    shared: &Arc<Shared>,
    bank: &Arc<B>,
    by_user: bool,
) where
    B: Operate + Send + Sync + 'static,
{
    for id in 0.. {
        let mut events = [listener.as_fd(), stopped.as_fd()]
            .map(|from| PollFd::from_borrowed_fd(from, PollFlags::IN));
        // If it fails, the calls below report it as well.
        let _ = poll(&mut events, None);
        if matches!((&mut &*stopped).read(&mut [0]), Ok(0)) {
            return;
        }
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, or the connection was given up: others continue.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
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
    // On some systems it inherits this from the listener.
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(WRITE_MAX))?;
    let caller = Caller::of(&stream, by_user)?;
    let kept = stream.try_clone()?;
    let mut members = shared.members.lock();
    if !members.make_room(caller.user) {
        drop(members);
        let why = format!("{MEMBERS_MAX} processes are connected: try again when one has ended");
        return wire::write(&mut stream, &Replied::Refused(why));
    }
    let bank = Arc::clone(bank);
    let thread = Builder::new().name("bank-member".to_owned()).stack_size(STACK);
    let seat = Arc::new(Seat { user: caller.user, asked: AtomicU64::new(0) });
    let (own, taken) = (Arc::clone(shared), Arc::clone(&seat));
    let thread = thread.spawn(move || {
        let _leaves = Leaves { shared: &own, id };
        // Relaxed: a statistic.
        let asks = || {
            let number = own.asked.fetch_add(1, Ordering::Relaxed) + 1;
            taken.asked.store(number, Ordering::Relaxed);
        };
        // A process that ends or disconnects is no error; one that sends nonsense is cut off.
        let _ = answer(stream, &*bank, &caller, asks);
    })?;
    members.served.insert(id, Served { stream: kept, thread, seat });
    Ok(())
}

/// The asking process, as far as the system knows it.
struct Caller {
    /// The name of the member, if it is not the one that the member gives.
    name: Option<String>,
    /// Whether it may set and list limits.
    is_operator: bool,
    /// The number of its user.
    user: u32,
}

impl Caller {
    #[cfg(target_os = "linux")]
    fn of(stream: &UnixStream, by_user: bool) -> io::Result<Caller> {
        let user = rustix::net::sockopt::socket_peercred(stream)?.uid;
        let name = by_user.then(|| format!("user {}", user.as_raw()));
        let is_operator = user.is_root() || user == rustix::process::geteuid();
        Ok(Caller { name, is_operator, user: user.as_raw() })
    }

    /// No other user is admitted: see [`SocketServer::start`].
    #[cfg(not(target_os = "linux"))]
    fn of(_: &UnixStream, _: bool) -> io::Result<Caller> {
        Ok(Caller { name: None, is_operator: true, user: 0 })
    }
}

/// Answers requests, and calls `asks` for each.
fn answer<B: Operate>(
    mut stream: UnixStream,
    bank: &B,
    caller: &Caller,
    asks: impl Fn(),
) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(asked) = wire::read::<Asked>(&mut reader)? {
        asks();
        let replied = reply(asked, bank, caller).unwrap_or_else(Replied::Refused);
        wire::write(&mut stream, &replied)?;
    }
    Ok(())
}

fn reply<B: Operate>(asked: Asked, bank: &B, caller: &Caller) -> Result<Replied, String> {
    let wrong = |error: BudgetError| error.to_string();
    let failed = |error: B::Error| error.to_string();
    if !caller.is_operator && !matches!(asked, Asked::Exchange(_)) {
        return Err(
            "this user may not see or set limits: ask as the user who serves the bank".to_owned()
        );
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
        // A forked child leaves its parent's server alone.
        let Some(accepts) = self.accepts.take() else { return };
        // While the socket is open, as its file's number is free for another one afterwards.
        // Whatever fails here leaves a file behind, which the next server replaces.
        if number(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
        // Not by closing it: a forked child may have a copy.
        let _ = self.stop.shutdown(Shutdown::Both);
        let _ = accepts.join();
        // Each thread takes the lock to leave.
        let Members { served, displaced } = std::mem::take(&mut *self.shared.members.lock());
        for served in served.into_values() {
            let _ = served.stream.shutdown(Shutdown::Both);
            let _ = served.thread.join();
        }
        for thread in displaced {
            let _ = thread.join();
        }
        let _ = self.lock.unlock();
    }
}

impl std::fmt::Debug for SocketServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SocketServer").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No user keeps others out, whatever it asks, and no silent process keeps any out.
    #[test]
    fn a_full_bank_gives_each_user_a_part() {
        let seats = |asked: &[(u32, u64)]| -> Vec<_> {
            (0..).zip(asked).map(|(id, &(user, asked))| (id, user, asked)).collect()
        };
        let silent = seats(&[(1, 9), (2, 0), (1, 0), (1, 3)]);
        // A user that connects again and again takes no place of one that has just come.
        assert_eq!([1, 2, 3].map(|user| displaced(&silent, user)), [2, 1, 2].map(Some));
        let greedy = seats(&[(1, 9), (2, 1), (1, 7), (1, 8)]);
        assert_eq!([1, 2, 3].map(|user| displaced(&greedy, user)), [None, Some(2), Some(2)]);
        let even = seats(&[(1, 9), (2, 1), (1, 7), (2, 8)]);
        assert_eq!([1, 2, 3].map(|user| displaced(&even, user)), [None, None, Some(2)]);
        let apart = seats(&[(1, 9), (2, 1), (3, 7)]);
        assert_eq!(
            [1, 4].map(|user| displaced(&apart, user)),
            [None; 2],
            "there is nothing to take"
        );
    }
}
