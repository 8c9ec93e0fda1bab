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
//! # Kill, purge, wait
//! Where a program keeps data of its tenants, such as items of a cache, each with its charge, the
//! order matters:
//!
//! 1. **Kill** the group. It cannot be found any more, and whoever waits for one of its charges or
//!    for [`Group::killed`] goes on. A request in flight has its handle still, and may store.
//! 2. **Purge** what the tenant has stored, with the lock held under which requests store. A
//!    request looks at [`Group::is_killed`] with that lock held, before it stores. So either it
//!    stores before the purge, which removes it, or it finds the group killed. Purged before the
//!    kill, or looked at before the lock, something may be stored that nobody ever removes, and
//!    its charge keeps the group.
//! 3. **Wait** for the release, with a timeout. What is left are requests in flight. Who is late is
//!    in the error, for the log.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Mutex;
//! use std::time::Duration;
//! use submeter::{Bytes, Charge, Group, Quota, Schema, Tree};
//!
//! struct Store {
//!     memory: Quota<Bytes>,
//!     items: Mutex<HashMap<(String, u32), (Vec<u8>, Charge)>>,
//! }
//!
//! impl Store {
//!     /// Returns whether there was still a tenant to store it for.
//!     fn set(&self, tenant: &Group, key: u32, value: Vec<u8>) -> bool {
//!         let bytes = value.len() as u64;
//!         let Ok(charge) = tenant.try_charge(self.memory, bytes) else { return true };
//!         let mut items = self.items.lock().unwrap();
//!         if tenant.is_killed() {
//!             return false;
//!         }
//!         items.insert((tenant.path().to_owned(), key), (value, charge));
//!         true
//!     }
//!
//!     fn delete(&self, tenant: Group) -> Result<(), Box<dyn std::error::Error>> {
//!         let killed = tenant.kill()?;
//!         drop(tenant); // or it would wait for itself
//!         self.items.lock().unwrap().retain(|(path, _), _| path != killed.path());
//!         killed.wait_released(Duration::from_secs(10))?;
//!         Ok(())
//!     }
//! }
//!
//! let mut schema = Schema::builder();
//! let memory = schema.quota::<Bytes>("memory", "Memory held");
//! let tree = Tree::new(schema.build()?)?;
//! let store = Store { memory, items: Mutex::default() };
//! std::thread::scope(|scope| {
//!     for round in 0..20 {
//!         let tenant = tree.create("/acme")?;
//!         // Requests in flight.
//!         for _ in 0..2 {
//!             let (store, tenant) = (&store, tenant.clone());
//!             let is_stored = move |n: &u32| store.set(&tenant, n % 9, vec![1]);
//!             scope.spawn(move || (0..).take_while(is_stored).count());
//!         }
//!         while tenant.usage(memory).current == 0 {
//!             std::thread::yield_now();
//!         }
//!         store.delete(tenant)?;
//!         // Not one item came after it, and nothing is charged.
//!         assert!(store.items.lock().unwrap().is_empty(), "in round {round}");
//!         assert_eq!(tree.root().usage(memory).current, 0);
//!     }
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A whole subtree is deleted in the same order. What ends a tenant's work there, such as a token
//! to cancel its tasks, is set with [`Group::set_data`] and found at [`Killed::data`].
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
//! [`Group::is_killed`]: crate::Group::is_killed
//! [`Group::kill_subtree`]: crate::Group::kill_subtree
//! [`Group::killed`]: crate::Group::killed
//! [`Group::set_data`]: crate::Group::set_data
//! [`Group::kill`]: crate::Group::kill
//! [`Killed`]: crate::Killed
//! [`Killed::data`]: crate::Killed::data
//! [`TreeBuilder::groups_max`]: crate::TreeBuilder::groups_max
//! [`Tree::new`]: crate::Tree::new
