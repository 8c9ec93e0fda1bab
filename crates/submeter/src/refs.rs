//! The reference counts that groups use, for your own objects.
//!
//! | type | use | taking a reference costs |
//! |---|---|---|
//! | [`PercpuRef`] | long-lived objects that requests hold, until they are killed | a plain add |
//! | [`PercpuArc`] | the same as a pointer; its [`PercpuOwner`] kills | a plain add |
//! | [`RcuRef`] | small objects that may be removed during a lookup | one locked add, no retry |
//! | [`RcuArc`] | the same as a pointer; an [`RcuSlot`] is a cell for one | one locked add |
//!
//! For an object that is only cloned and dropped, [`std::sync::Arc`] is simpler and faster.
//!
//! Errors such as an extra put or a second kill are contained and reported: see [`Misuse`].
//!
//! ```
//! use std::time::Duration;
//! use submeter::refs::PercpuArc;
//!
//! let (owner, tenant) = PercpuArc::new("acme")?;
//! let request = tenant.try_clone_live().expect("alive");
//! owner.kill();
//! assert!(tenant.try_clone_live().is_none(), "no further request gets in");
//! drop((tenant, request));
//! owner.released_blocking(Duration::from_secs(1))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use submeter_percpu::misuse::{HookAlreadySetError, Misuse, MisuseKind, set_misuse_hook};
pub use submeter_percpu::percpu_ref::{
    Options, PercpuArc, PercpuOwner, PercpuRef, Released, Start, StillHeldError,
};
pub use submeter_percpu::rcuref::{Guard, RcuArc, RcuBorrow, RcuRef, RcuSlot, pin};
