//! Chapter 3: quotas, charges, refusals, rates.
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
//! // A refusal knows whose limit it was and who holds what.
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
//! **Two readers.** The text of a refusal may be sent to the tenant: it says nothing of other
//! groups. [`LimitError::detail`] and [`RateError::detail`] say whose limit it was and who holds
//! the most: write that to the log.
//!
//! **Exceeded on purpose.** [`Group::charge_forced`] charges what has happened already, for callers
//! that cannot refuse. A limit that [`Group::set_limit_mode`] makes soft grants what exceeds it, so
//! that it can be tried out before it hits anybody. Both count [`Usage::overdrafts`].
//!
//! **Slowing down before.** [`Group::set_high`] sets a usage above which callers should pause, and
//! [`Group::pause`] says for how long: more, the farther it is exceeded. It refuses nothing.
//!
//! **Given back.** [`Group::on_pressure`] registers a callback that frees something of what a group
//! holds, such as items of a cache. [`Group::charge_reclaiming`] and the verbs that wait call those
//! below a limit that has no room, and [`Group::reclaim`] calls them for an amount.
//!
//! **Protected.** [`Group::set_min`] and [`Group::set_low`] claim usage that is not to be reclaimed
//! from a group, and [`Group::protection`] says how much of that a group gets below its ancestors.
//!
//! **All or nothing.** [`Group::try_charge_all`] charges amounts of several quotas, or none.
//!
//! **Waiting.** [`Group::charge`] is a future that is ready once there is room, [`Charging::until`]
//! bounds it, and [`Group::charge_timeout`] blocks a thread for that. Those that wait for one limit
//! are served in order, by whoever gives something back. [`Group::pressure`] says how long a
//! group's charges waited. One that ends in vain says why: no room, another [before
//! it](crate::LimitError::is_behind), or its group [killed](crate::LimitError::is_killed)
//! meanwhile.
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
//! # Rates
//! What is not held but happens, such as requests or bytes sent, is limited per time.
//! [`Group::set_rate`] sets how much a group and its descendants may take, and [`Group::try_take`]
//! takes in the group and in every ancestor, or in none. Nothing is given back: time does it.
//!
//! ```
//! use std::time::Duration;
//! use submeter::{Count, Rate, Schema, Tree};
//!
//! let mut schema = Schema::builder();
//! let requests = schema.rate_limit::<Count>("requests", "Requests");
//! let tree = Tree::new(schema.build()?)?;
//!
//! // 600 an hour, 10 of them at once.
//! let acme = tree.create("/acme")?;
//! let rate = Rate { burst: 10, ..Rate::new(600, Duration::from_secs(3600)) };
//! acme.set_rate(requests, Some(rate))?;
//!
//! let web = acme.create_child("web")?;
//! web.try_take(requests, 10)?;
//! let refused = web.try_take(requests, 1).expect_err("the burst is used up");
//! assert_eq!(refused.limiting(), &acme);
//! // The next request is earned after 6 seconds.
//! assert!(refused.retry_after() <= Some(Duration::from_secs(6)));
//!
//! // How often and how long a rate refused are counters like any other.
//! assert_eq!(acme.sum(requests.throttled()), 1);
//! assert!(tree.schema().metric("requests_throttled_time").is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Between any two moments no more is granted than a burst and what was earned in between. A take
//! costs a look at the clock and a compare-and-swap for each group with a rate, up to the root;
//! where no group has one, a look at each of them.
//!
//! Where groups together want more than a rate, it grants whichever takes come first.
//! [`Group::set_weight`] divides it instead: each child that wants some gets its weight's part, and
//! what one leaves goes to the others.
//!
//! Next: [The group switch](super::group_switch).
//!
//! [`Charge`]: crate::Charge
//! [`Charging::until`]: crate::Charging::until
//! [`Group::charge`]: crate::Group::charge
//! [`Group::charge_timeout`]: crate::Group::charge_timeout
//! [`Group::charge_forced`]: crate::Group::charge_forced
//! [`Group::charge_reclaiming`]: crate::Group::charge_reclaiming
//! [`Group::on_pressure`]: crate::Group::on_pressure
//! [`Group::pause`]: crate::Group::pause
//! [`Group::protection`]: crate::Group::protection
//! [`Group::reclaim`]: crate::Group::reclaim
//! [`Group::set_high`]: crate::Group::set_high
//! [`Group::set_weight`]: crate::Group::set_weight
//! [`Group::set_low`]: crate::Group::set_low
//! [`Group::set_min`]: crate::Group::set_min
//! [`Group::pressure`]: crate::Group::pressure
//! [`Group::set_limit_mode`]: crate::Group::set_limit_mode
//! [`Group::set_rate`]: crate::Group::set_rate
//! [`Group::try_charge`]: crate::Group::try_charge
//! [`Group::try_charge_all`]: crate::Group::try_charge_all
//! [`Group::try_take`]: crate::Group::try_take
//! [`LimitError::detail`]: crate::LimitError::detail
//! [`RateError::detail`]: crate::RateError::detail
//! [`Usage::overdrafts`]: crate::Usage::overdrafts
//! [`Usage::peak`]: crate::Usage::peak
//! [`Usage::peak_low`]: crate::Usage::peak_low
