//! Counters without a tree: one number that every CPU adds to.
//!
//! | type | use | an add costs |
//! |---|---|---|
//! | [`PercpuCounter`] | counting: read at any time with a bound, or exactly | about a plain add |
//! | [`LimitedCounter`] | a count that never exceeds a limit | about a plain add |
//!
//! Use them for a single number; where tenants have parents, a [`Group`](crate::Group) counts as
//! cheaply and adds up the tree. All counters of a process share one reservation of address space.
//! For a separate reservation, or a different batch, depend on `submeter-percpu`, which promises
//! less: its storage may change with every minor release.
//!
//! ```
//! use submeter::counter::{LimitedCounter, PercpuCounter};
//!
//! let requests = PercpuCounter::new()?;
//! requests.add(3);
//! let seen = requests.read(); // O(1), with a bound
//! assert!(seen.low() <= 3 && 3 <= seen.high());
//! assert_eq!(requests.sum(), 3); // exact
//!
//! let connections = LimitedCounter::for_limit(100)?;
//! while connections.try_add(1).is_ok() {}
//! assert_eq!(connections.sum(), 100); // never above, and refuses only what does not fit
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use submeter_percpu::counter::{
    Approximate, BATCH_DEFAULT, LimitedCounter, OverLimitError, PercpuCounter,
};
