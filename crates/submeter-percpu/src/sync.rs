//! The seam between the algorithms and what runs them: std, or loom's models with `--cfg loom`.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

#[cfg(loom)]
pub(crate) use loom::sync::atomic;
