//! Chapter 3: quotas, charges, refusals.
//!
//! A *quota* is something that tenants hold and return: memory, connections, slots of a queue.
//! [`Group::try_charge`] takes an amount in the group and in every ancestor, or in none of them,
//! and returns a [`Charge`]. Dropping the charge returns the amount, so that an early return or a
//! panic leaks nothing.
//!
//! ```
//! use submeter::{Bytes, Schema, Tree};
//!
//! let mut schema = Schema::builder();
//! let memory = schema.quota::<Bytes>("memory", "Memory held");
//! let tree = Tree::new(schema.build()?)?;
//!
//! // The limit of a parent holds for all of its children together.
//! let acme = tree.create("/acme")?;
//! acme.set_limit(memory, Some(1000));
//! let (web, batch) = (acme.create_child("web")?, acme.create_child("batch")?);
//!
//! let mut buffer = web.try_charge(memory, 600)?;
//!
//! // A refusal says whose limit it was and who holds what.
//! let refused = batch.try_charge(memory, 500).expect_err("600 of 1000 are held");
//! assert_eq!(refused.limiting(), &acme);
//! assert_eq!(refused.holders()[0], (web.clone(), 600));
//!
//! // A charge grows and shrinks with what it stands for.
//! buffer.resize(100)?;
//! let more = batch.try_charge(memory, 500)?;
//! assert_eq!(acme.usage(memory).current, 600);
//!
//! drop((buffer, more));
//! assert_eq!(acme.usage(memory).current, 0);
//! assert_eq!(acme.usage(memory).peak, 600);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Never exceeded.** Concurrent charges cannot pass a limit together, at any level, and a charge
//! is refused only if it does not fit. Lowering a limit below what is held revokes nothing; further
//! charges are refused until enough was returned.
//!
//! **What it costs.** Far from all limits a charge costs about an add, however deep the group: it
//! takes from a stock of up to 64 Ki units that the running CPU has. Near one, and where it is
//! larger than that, it takes one compare-and-swap per level up to the root. Near means that less
//! is free than twice the stock of all CPUs.
//!
//! **What it was at most.** Charges from stock are seen by nobody but their CPU, so that the
//! highest usage is not known exactly: it lies between [`Usage::peak_low`] and [`Usage::peak`]. The
//! two are equal while a limit is always near.
//!
//! **Quota or gauge?** A gauge is cheaper and cannot refuse. Use a quota for anything that you may
//! have to refuse.
//!
//! Next: [The group switch](super::group_switch).
//!
//! [`Charge`]: crate::Charge
//! [`Group::try_charge`]: crate::Group::try_charge
//! [`Usage::peak`]: crate::Usage::peak
//! [`Usage::peak_low`]: crate::Usage::peak_low
