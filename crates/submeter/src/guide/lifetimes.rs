//! Chapter 5: deleting tenants while traffic runs, and operating it all.
//!
//! A group lives as long as its handles. Deleting a tenant takes two steps, because some of its
//! requests may be in flight:
//!
//! 1. [`Group::kill`] frees the name at once. From then on the group cannot be found, and lookups
//!    and new handles fail.
//! 2. The group is *released* when the last handle and the last charge are gone. [`Killed`] waits
//!    for that, with a timeout, or as a future.
//!
//! ```
//! use std::time::Duration;
//! use submeter::{Count, Schema, Tree};
//!
//! let mut schema = Schema::builder();
//! let requests = schema.counter::<Count>("requests", "Requests answered");
//! let tree = Tree::new(schema.build()?)?;
//! let tenant = tree.create("/acme")?;
//!
//! // A request holds the group that it works for.
//! let request = tenant.clone();
//! let killed = tenant.kill()?;
//! drop(tenant);
//! assert!(tree.get("/acme").is_none());
//!
//! // The request may finish, and still counts.
//! request.add(requests, 1);
//! let held = killed.wait_released(Duration::from_millis(10)).expect_err("the request runs");
//! println!("{held}"); // says how many handles, and in debug builds where they were taken
//! drop(request);
//! killed.wait_released(Duration::from_secs(1))?;
//!
//! // What it counted stays in its parent.
//! assert_eq!(tree.root().sum(requests), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Group::kill_subtree`] kills a group and all its descendants behind one barrier.
//!
//! A name that comes back has a new group, without limits and with full buckets. Set its limits
//! before its first charge, and let it go on with the rates of the group before it: see
//! [`RateState`](crate::RateState).
//!
//! # Operating it
//! - `submeter doctor` says which backend this machine gets and why, [`backend`](crate::backend)
//!   which one this process has. `SUBMETER_RSEQ=off` forces the fallback; results are the same.
//! - A tree reserves address space: 1 GiB per CPU and row for each section of its schema. Memory is
//!   committed when it is touched. Under `ulimit -v`, [`Tree::new`] returns an error that names the
//!   remedy.
//! - You may call `mlockall` before or after creating a tree, best with `MCL_ONFAULT`: it then
//!   commits only what was written. Without, it commits every word that groups have or had, in each
//!   row, written or not: 1.3 GiB for a histogram of 100,000 groups on two CPUs. If
//!   `RLIMIT_MEMLOCK` applies, raise it, because `mlockall` also counts addresses that take no
//!   memory.
//! - No thread is started unless you ask for one.
//! - A tree refuses to grow beyond [`TreeBuilder::groups_max`] groups, so that names from the
//!   network cannot exhaust memory.
//!
//! [`Group::kill_subtree`]: crate::Group::kill_subtree
//! [`Group::kill`]: crate::Group::kill
//! [`Killed`]: crate::Killed
//! [`TreeBuilder::groups_max`]: crate::TreeBuilder::groups_max
//! [`Tree::new`]: crate::Tree::new
