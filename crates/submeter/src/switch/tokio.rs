//! Tasks, readers and writers of tokio in a group.

use std::io::{self, IoSlice, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};
use tokio::task::JoinHandle;

use super::{Grouped, InGroup};
use crate::tree::group::Group;

/// Spawns a task that stays in the group of the calling thread, on whichever worker polls it.
/// Outside of all groups it is [`tokio::spawn`].
///
/// For a `JoinSet` or a `TaskTracker`, hand
/// [`in_current_group`](InGroup::in_current_group) to their own spawning functions.
///
/// # Examples
/// ```
/// use submeter::switch::{self, InGroup};
/// use submeter::{Schema, Tree};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.get_or_create("/acme/web")?;
/// let handler = async { switch::spawn(async { switch::current() }).await };
/// assert_eq!(handler.in_group(&web).await?, Some(web));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Outside of a tokio runtime, like [`tokio::spawn`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future.in_current_group())
}

/// Spawns a task that runs in `group`, on whichever worker polls it.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree, switch};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.get_or_create("/acme/web")?;
/// let seen = switch::spawn_in(&web, async { switch::current() }).await?;
/// assert_eq!(seen, Some(web));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Outside of a tokio runtime, like [`tokio::spawn`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn spawn_in<F>(group: &Group, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future.in_group(group))
}

/// Spawns a task that stays on the calling thread and in its group. Outside of all groups it is
/// [`tokio::task::spawn_local`].
///
/// # Examples
/// ```
/// use std::rc::Rc;
/// use submeter::switch::{self, InGroup};
/// use submeter::{Schema, Tree};
/// use tokio::task::LocalSet;
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let handler = async {
///     let not_sent = Rc::new(());
///     switch::spawn_local(async move {
///         drop(not_sent);
///         switch::current()
///     })
///     .await
/// };
/// assert_eq!(LocalSet::new().block_on(&runtime, handler.in_group(&web))?, Some(web));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Outside of a `LocalSet` or a local runtime, like [`tokio::task::spawn_local`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    tokio::task::spawn_local(future.in_current_group())
}

/// Runs a function that may block in the calling thread's group, on a thread where blocking is
/// allowed. Outside of all groups it is [`tokio::task::spawn_blocking`].
///
/// # Examples
/// ```
/// use submeter::switch::{self, InGroup};
/// use submeter::{Schema, Tree};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// let handler = async { switch::spawn_blocking(switch::current).await };
/// assert_eq!(handler.in_group(&web).await?, Some(web));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Outside of a tokio runtime, like [`tokio::task::spawn_blocking`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn spawn_blocking<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    tokio::task::spawn_blocking(super::inherit(work))
}

/// Runs a function that may block in `group`, on a thread where blocking is allowed.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree, switch};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
/// # let _entered = runtime.enter();
/// let handle = switch::spawn_blocking_in(&web, switch::current);
/// assert_eq!(runtime.block_on(handle)?, Some(web));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Outside of a tokio runtime, like [`tokio::task::spawn_blocking`].
#[cfg_attr(debug_assertions, track_caller)]
pub fn spawn_blocking_in<F, T>(group: &Group, work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let group = group.clone();
    tokio::task::spawn_blocking(move || group.run(work))
}

impl<R: AsyncRead> AsyncRead for Grouped<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (reader, _entered) = self.enter();
        reader.poll_read(context, into)
    }
}

impl<R: AsyncBufRead> AsyncBufRead for Grouped<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let (reader, _entered) = self.enter();
        reader.poll_fill_buf(context)
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        let (reader, _entered) = self.enter();
        reader.consume(n);
    }
}

impl<S: AsyncSeek> AsyncSeek for Grouped<S> {
    fn start_seek(self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        let (seeker, _entered) = self.enter();
        seeker.start_seek(position)
    }

    fn poll_complete(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let (seeker, _entered) = self.enter();
        seeker.poll_complete(context)
    }
}

impl<W: AsyncWrite> AsyncWrite for Grouped<W> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let (writer, _entered) = self.enter();
        writer.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let (writer, _entered) = self.enter();
        writer.poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.value().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (writer, _entered) = self.enter();
        writer.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (writer, _entered) = self.enter();
        writer.poll_shutdown(context)
    }
}
