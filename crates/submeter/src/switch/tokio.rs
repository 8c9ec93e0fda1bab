//! Tasks of tokio in a group.

use tokio::task::JoinHandle;

use super::InGroup;
use crate::group::Group;

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
/// Outside of a tokio runtime, as [`tokio::spawn`] does.
#[cfg_attr(debug_assertions, track_caller)]
pub fn spawn_in<F>(group: &Group, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(future.in_group(group))
}

/// Runs a function that may wait in `group`, on a thread where that is allowed.
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
/// Outside of a tokio runtime, as [`tokio::task::spawn_blocking`] does.
#[cfg_attr(debug_assertions, track_caller)]
pub fn spawn_blocking_in<F, T>(group: &Group, work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let group = group.clone();
    tokio::task::spawn_blocking(move || group.run(work))
}
