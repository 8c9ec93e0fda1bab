//! The connections that a server accepts, behind one interface.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::address::Address;

/// One client's connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    #[cfg(feature = "tls")]
    Tls(Box<super::tls::Stream>),
}

impl Stream {
    /// Disables the delay of small writes: answers are sent whole, so waiting for more only delays
    /// them.
    pub(super) fn send_at_once(&self) {
        if let Stream::Tcp(stream) = self {
            // A failure leaves a slower but correct connection.
            let _ = stream.set_nodelay(true);
        }
    }

    /// Names the client as `stats conns` does; a client of a socket in the file system has no name.
    pub(super) fn client(&self) -> Box<str> {
        let name = match self {
            Stream::Tcp(stream) => stream.peer_addr().map(|addr| Address::Tcp(addr).labelled()),
            Stream::Unix(_) => Ok("unix:".to_owned()),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.peer_addr().map(|addr| Address::Tcp(addr).labelled()),
        };
        // It has already hung up.
        name.unwrap_or_else(|_| "gone".to_owned()).into()
    }

    /// Waits until there is something to read, or the end. TLS consumes what has arrived, so that
    /// the rest of a partial record is waited for here, where the connection can be told to stop.
    pub(super) fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(context),
            Stream::Unix(stream) => stream.poll_read_ready(context),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.poll_read_ready(context),
        }
    }

    pub(super) async fn read_buf(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read_buf(buffer).await,
            Stream::Unix(stream) => stream.read_buf(buffer).await,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.read_buf(buffer).await,
        }
    }

    /// Sends as much as possible without waiting.
    pub(super) fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, slices) {
            // Cheaper for the kernel, and most answers are one piece.
            (Stream::Tcp(stream), [one]) => stream.try_write(one),
            (Stream::Tcp(stream), slices) => stream.try_write_vectored(slices),
            (Stream::Unix(stream), slices) => stream.try_write_vectored(slices),
            #[cfg(feature = "tls")]
            (Stream::Tls(stream), slices) => stream.try_write_vectored(slices),
        }
    }

    /// Waits until more may be written, and TLS has sent what it took.
    pub(super) async fn writable(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.writable().await,
            Stream::Unix(stream) => stream.writable().await,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.flush().await,
        }
    }

    /// Signals that nothing more will be sent.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown().await,
            Stream::Unix(stream) => stream.shutdown().await,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.shutdown().await,
        }
    }

    /// Tells a TLS client that this was everything, which it could not know from the end alone.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.shutdown().await,
        }
    }

    /// Returns whether the socket has everything that was written.
    pub(super) fn is_flushed(&self) -> bool {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => true,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.is_flushed(),
        }
    }

    /// Sends what TLS has taken: a record that the socket had no room for.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.flush().await,
        }
    }
}
