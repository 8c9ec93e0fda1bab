//! Listening sockets, and the file of a socket that has a path.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixSocket};

use super::BACKLOG;
use super::address::Address;
use super::stream::Stream;

/// A socket that clients connect to.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix {
        /// Removed before the listener closes, and therefore declared above it: after that, a
        /// successor may have created its own.
        _file: File,
        listener: UnixListener,
    },
}

/// A socket's file, removed when the server ends.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    /// Device and inode number: another server's file may have the same path by then.
    identity: (u64, u64),
}

impl File {
    fn new(path: &Path) -> io::Result<File> {
        Ok(File { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // The next server replaces a socket that is left behind.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<(Listener, Address)> {
        match address {
            Address::Tcp(addr) => {
                let socket =
                    if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
                // A restarted server must not wait until the connections of its predecessor are
                // forgotten.
                socket.set_reuseaddr(true)?;
                socket.bind(*addr)?;
                let listener = socket.listen(BACKLOG)?;
                let bound = Address::Tcp(listener.local_addr()?);
                Ok((Listener::Tcp(listener), bound))
            }
            Address::Unix { path, mode } => {
                make_room(path)?;
                let socket = UnixSocket::new_stream()?;
                socket.bind(path)?;
                let file = File::new(path)?;
                // Before anyone can connect, which requires `listen`. A file mode creation mask
                // would apply to the whole process.
                std::fs::set_permissions(path, PermissionsExt::from_mode(*mode))?;
                let listener = socket.listen(BACKLOG)?;
                Ok((Listener::Unix { _file: file, listener }, address.clone()))
            }
        }
    }

    /// Accepts a connection, which belongs to the runtime that is current during the call.
    pub(super) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        match self {
            Listener::Tcp(listener) => {
                listener.poll_accept(context).map_ok(|(stream, _)| Stream::Tcp(stream))
            }
            Listener::Unix { listener, .. } => {
                listener.poll_accept(context).map_ok(|(stream, _)| Stream::Unix(stream))
            }
        }
    }
}

/// Removes a socket that an earlier server left, and nothing else.
fn make_room(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file exists and is not a socket: remove it or use another path",
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}
