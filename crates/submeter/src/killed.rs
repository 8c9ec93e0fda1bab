//! What is left of a group that was killed: the wait for its release.

use std::fmt;
use std::time::Instant;

use submeter_percpu::PercpuOwner;
use submeter_percpu::percpu_ref::{Released, StillHeld};

use crate::group::GroupInner;

/// Tells when a killed group is released: when the last handle, and the last charge, is gone.
///
/// Dropping it costs nothing and changes nothing.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
/// use submeter::{Count, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let requests = schema.counter::<Count>("requests", "Requests answered");
/// let tree = Tree::new(schema.build()?)?;
/// let web = tree.get_or_create("/web")?;
///
/// let killed = web.kill()?;
/// web.add(requests, 1); // a request that was already in
/// assert!(!killed.is_released());
/// drop(web);
/// killed.wait_released(Instant::now() + Duration::from_secs(1))?;
/// assert_eq!(tree.root().sum(requests), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Killed {
    pub(crate) owner: PercpuOwner<GroupInner>,
}

impl Killed {
    /// Returns the path that it had.
    #[must_use]
    pub fn path(&self) -> &str {
        self.owner.name()
    }

    /// Returns whether the last handle is gone.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.owner.is_released()
    }

    /// Waits for the release, on a task.
    pub fn released(&self) -> Released<'_> {
        self.owner.released()
    }

    /// Waits for the release, blocking the thread.
    ///
    /// # Errors
    /// When it has not come by `deadline`: with the number of handles that are left and, in debug
    /// builds, where they were taken.
    pub fn wait_released(&self, deadline: Instant) -> Result<(), StillHeld> {
        self.owner.wait_released(deadline)
    }

    /// Returns how many handles are left and, in debug builds, where they were taken.
    #[must_use]
    pub fn holders(&self) -> StillHeld {
        self.owner.holders()
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
