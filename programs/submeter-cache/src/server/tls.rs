//! TLS around a connection.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncBufRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use super::buffers::BUFFER_BYTES;

/// The server's side of the TLS handshake.
#[derive(Clone)]
pub(super) struct Acceptor(TlsAcceptor);

impl Acceptor {
    pub(super) fn new(config: Arc<ServerConfig>) -> Acceptor {
        Acceptor(config.into())
    }

    /// Returns the connection once keys are agreed on.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<Box<Stream>> {
        // A failure leaves a slower but correct connection.
        let _ = stream.set_nodelay(true);
        let accepting =
            self.0.accept_with(stream, |session| session.set_buffer_limit(Some(BUFFER_BYTES)));
        Ok(Box::new(Stream(accepting.await?)))
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

/// A connection whose keys are agreed on.
#[derive(Debug)]
pub(super) struct Stream(TlsStream<TcpStream>);

impl Stream {
    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get_ref().0.peer_addr()
    }

    pub(super) fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_fill_buf(context).map_ok(drop)
    }

    pub(super) async fn read_buf(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        self.0.read_buf(buffer).await
    }

    /// Encrypts and sends as much as the socket takes without waiting. It registers no waker: a
    /// caller with more to send waits in [`flush`](Stream::flush).
    pub(super) fn try_write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(&mut self.0).poll_write_vectored(&mut context, slices) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.0.get_ref().1.wants_write()
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.0.flush().await
    }

    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;

    const FILES: [&str; 3] = [
        include_str!("../../tests/certificates/server.pem"),
        include_str!("../../tests/certificates/server.key"),
        include_str!("../../tests/certificates/authority.pem"),
    ];

    fn configurations() -> (ServerConfig, ClientConfig) {
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(FILES[1].as_bytes()).expect("PEM");
        let mut roots = RootCertStore::empty();
        roots.add(certificate(FILES[2])).expect("an authority");
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate(FILES[0])], key)
            .expect("they belong together");
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        (server, client)
    }

    /// Bytes that the socket had no room for are flushed when it has.
    #[tokio::test]
    async fn what_a_socket_had_no_room_for_is_flushed() {
        let (server, client) = configurations();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("bound");
        let connecting = async {
            let name = "localhost".try_into().expect("a name");
            let tcp = TcpStream::connect(at).await.expect("it listens");
            TlsConnector::from(Arc::new(client)).connect(name, tcp).await.expect("trusted")
        };
        let acceptor = Acceptor::new(Arc::new(server));
        let accepting = async {
            let (tcp, _) = listener.accept().await.expect("a client");
            acceptor.accept(tcp).await.expect("keys are agreed on")
        };
        let (mut client, mut stream) = tokio::join!(connecting, accepting);
        stream.flush().await.expect("tickets are sent");
        assert!(stream.is_flushed());
        let (mut sent, part) = (0, [7; 8192]);
        while let Ok(n) = stream.try_write_vectored(&[IoSlice::new(&part)]) {
            sent += n;
        }
        assert!(!stream.is_flushed(), "the socket is full, with a record that it had no room for");
        let mut received = vec![0; sent];
        let (flushed, read) = tokio::join!(stream.flush(), client.read_exact(&mut received));
        flushed.expect("the client reads");
        assert_eq!(read.expect("all of it"), sent);
        assert!(stream.is_flushed() && received.iter().all(|&byte| byte == 7));
    }
}
