//! A connection whose bytes are counted.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::metric::schema::Counter;
use crate::metric::unit::Bytes;
use crate::tree::group::Group;

pin_project! {
    /// A reader and writer, such as a connection, whose bytes are counted in a group as they are
    /// read and written: for protocols other than HTTP.
    ///
    /// Each call that transfers something costs an [`add`](Group::add). It counts but does not
    /// enter the group: for CPU time, put the code that serves the connection
    /// [`in_group`](super::InGroup::in_group). Below TLS it counts the bytes of the network, above
    /// TLS those of the protocol. [A whole server][whole] uses it.
    ///
    /// Where a login comes first, [set the group](Self::set_group) after it: what the login took
    /// counts as well. Without a group nothing is counted, so a client can have the same type.
    ///
    /// It holds its group, so an idle connection keeps a killed group from being released: end the
    /// connection on [`Group::killed`].
    ///
    /// [whole]: https://github.com/submeter/submeter/blob/main/examples/line-protocol/src/main.rs
    ///
    /// # Examples
    /// ```
    /// use submeter::switch::Counted;
    /// use submeter::{Bytes, Schema, Tree};
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// let mut schema = Schema::builder();
    /// let received = schema.counter::<Bytes>("received", "Bytes received");
    /// let sent = schema.counter::<Bytes>("sent", "Bytes sent");
    /// let tree = Tree::new(schema.build()?)?;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let (mut client, connection) = tokio::io::duplex(64);
    /// let mut connection = Counted::new(connection);
    /// client.write_all(b"acme\n").await?;
    /// connection.read_exact(&mut [0; 5]).await?;
    /// // The client has identified itself.
    /// let acme = tree.get_or_create("/acme")?;
    /// connection.set_group(&acme, received, sent);
    /// connection.write_all(b"welcome\n").await?;
    /// assert_eq!((acme.sum(received), acme.sum(sent)), (5, 8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Counted<T> {
        #[pin]
        inner: T,
        counts: Counts,
    }
}

#[derive(Default)]
struct Counts {
    into: Option<(Group, Counter<Bytes>, Counter<Bytes>)>,
    /// What was read and written before there was a group.
    before: [u64; 2],
}

impl Counts {
    fn add(&mut self, [read, written]: [usize; 2]) {
        let [read, written] = [read as u64, written as u64];
        match &self.into {
            // A call either reads or writes.
            Some((group, counter, _)) if read > 0 => group.add(*counter, read),
            Some((group, _, counter)) if written > 0 => group.add(*counter, written),
            Some(_) => {}
            None => self.before = [self.before[0] + read, self.before[1] + written],
        }
    }
}

impl<T> Counted<T> {
    /// Counts what is read from `inner` and written to it, in the group that will be
    /// [set](Self::set_group).
    pub fn new(inner: T) -> Counted<T> {
        Counted { inner, counts: Counts::default() }
    }

    /// Counts in this group from now on: call it once the client has identified itself. The first
    /// group also gets what was read and written before. The metrics are checked when something is
    /// counted: see [`Group::add`].
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn set_group(&mut self, group: &Group, read: Counter<Bytes>, written: Counter<Bytes>) {
        let before = std::mem::take(&mut self.counts.before);
        for (counter, n) in [read, written].into_iter().zip(before).filter(|(_, n)| *n > 0) {
            group.add(counter, n);
        }
        self.counts.into = Some((group.clone(), read, written));
    }

    /// Returns the group in which it counts.
    pub fn group(&self) -> Option<&Group> {
        self.counts.into.as_ref().map(|(group, ..)| group)
    }

    /// Returns the reader or writer whose bytes are counted.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the reader or writer, whose bytes are no longer counted.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<T: AsyncRead> AsyncRead for Counted<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let before = into.filled().len();
        let polled = this.inner.poll_read(context, into);
        let n = into.filled().len() - before;
        this.counts.add([n, 0]);
        polled
    }
}

impl<T: AsyncWrite> AsyncWrite for Counted<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let polled = this.inner.poll_write(context, bytes);
        counted(this.counts, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let polled = this.inner.poll_write_vectored(context, pieces);
        counted(this.counts, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().inner.poll_shutdown(context)
    }
}

fn counted(counts: &mut Counts, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
    if let Poll::Ready(Ok(n)) = polled {
        counts.add([0, n]);
    }
    polled
}

impl<T> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group() {
            Some(group) => write!(f, "Counted({group})"),
            None => f.write_str("Counted"),
        }
    }
}
