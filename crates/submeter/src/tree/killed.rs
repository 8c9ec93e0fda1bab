//! Waiting for a killed group to be released.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use submeter_percpu::PercpuOwner;
use submeter_percpu::percpu_ref::{Released, StillHeldError};

use crate::tree::extras::Data;
use crate::tree::group::GroupInner;

/// A killed group. When its last handle and its last charge are dropped, it is *released*.
///
/// Await the release, wait for it with a timeout, or drop this, which changes nothing.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
/// let web = tree.get_or_create("/web")?;
///
/// let killed = web.kill()?;
/// web.add(requests, 1); // a request already in flight
/// assert!(web.is_killed() && !killed.is_released());
/// assert_eq!((killed.path(), killed.holders().references()), ("/web", Some(1)));
/// drop(web);
/// killed.released_blocking(Duration::from_secs(1))?;
/// assert_eq!(tree.root().sum(requests), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// On a task:
/// ```
/// # use submeter::{Schema, Tree};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let tree = Tree::new(Schema::builder().build()?)?;
/// let killed = tree.create("/web")?.kill()?;
/// (&killed).await; // or `killed.await`
/// assert!(killed.is_released());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Killed {
    pub(crate) owner: PercpuOwner<GroupInner>,
    id: u64,
    /// The program's value, until someone waits for the release.
    data: Mutex<Option<Data>>,
}

impl Killed {
    pub(crate) fn new(owner: PercpuOwner<GroupInner>, id: u64, data: Option<Data>) -> Killed {
        Killed { owner, id, data: Mutex::new(data) }
    }

    pub(crate) fn set_data(&mut self, data: Option<Data>) {
        *self.data.get_mut() = data;
    }

    /// Drops the value, which may hold the group.
    fn drop_data(&self) {
        let data = self.data.lock().take();
        // With the lock released, as this runs the program's code.
        drop(data);
    }

    /// Returns the group's former path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.owner.name()
    }

    /// Returns the group's number, as [`Group::id`](crate::Group::id) did. Purge what the program
    /// keeps for the group by this: at its path there may be a successor already.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns what the program kept for the group, if it is a `T`: see
    /// [`Group::data_or_init`](crate::Group::data_or_init). A token that cancels the tenant's work,
    /// for example, is found here after a [`kill_subtree`](crate::Group::kill_subtree).
    ///
    /// `None` from the first wait for the release on, because the value may hold the group. Where
    /// values hold groups below their own, start all waits, or drop all `Killed`, before you await
    /// one.
    #[must_use]
    pub fn data<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.data.lock().clone()?.downcast().ok()
    }

    /// Returns whether the last handle has been dropped. It never is while the group's
    /// [data](Killed::data) holds one and nothing has waited.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.owner.is_released()
    }

    /// Waits for the release on a task, as `.await` does. Drops the [data](Killed::data) at once.
    pub fn released(&self) -> Released<'_> {
        self.drop_data();
        self.owner.released()
    }

    /// Waits for the release, blocking the thread. Drops the [data](Killed::data) first.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let killed = tree.create("/web")?.kill()?;
    /// killed.released_blocking(Duration::from_secs(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the group is not released within `timeout`; the error has the number of remaining
    /// handles and, in debug builds, the lines that took them.
    pub fn released_blocking(&self, timeout: Duration) -> Result<(), StillHeldError> {
        self.drop_data();
        self.owner.released_blocking(timeout)
    }

    /// Returns the number of remaining handles and, in debug builds, the lines that took them.
    #[must_use]
    pub fn holders(&self) -> StillHeldError {
        self.owner.holders()
    }
}

/// Waits for the release.
impl<'a> IntoFuture for &'a Killed {
    type Output = ();
    type IntoFuture = Released<'a>;

    fn into_future(self) -> Released<'a> {
        self.released()
    }
}

/// Waits for the release. The future is boxed, because it owns the [`Killed`] that it waits for;
/// the future of a reference is not.
impl IntoFuture for Killed {
    type Output = ();
    type IntoFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.released().await })
    }
}

impl fmt::Debug for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Killed")
            .field("path", &self.path())
            .field("released", &self.is_released())
            .finish()
    }
}
