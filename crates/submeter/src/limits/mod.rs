//! Limits of a group as text: [`parse`] reads them from a flag, a request or a file.
//!
//! All programs share one syntax, that of `submeter serve`:
//!
//! | Written | Means |
//! |---|---|
//! | `64m`, `memory=64m` | a maximum in bytes; `high=`, `low=` and `min=` likewise ([`size`]) |
//! | `rate=20000/s`, `burst=500` | an amount per time, and how much of it at once ([`rate`]) |
//! | `cpu=500m` | CPU time, as Kubernetes writes it ([`cpus`]) |
//! | `weight=300` | the group's part of what its parent may have |
//! | `mode=soft` | what exceeds a limit is granted and counted |
//!
//! Commas separate them. Together with a group's path they are [`GroupLimits`]: as a flag
//! `/acme=64m,rate=20000/s`, as a line of a file `/acme 64m,rate=20000/s` ([`parse_lines`]).
//!
//! # Examples
//! The program decides which metrics they apply to:
//!
//! ```
//! use submeter::{Bytes, Count, Schema, Tree, limits};
//!
//! let mut schema = Schema::builder();
//! let memory = schema.quota::<Bytes>("memory", "Memory held");
//! let requests = schema.rate_limit::<Count>("requests", "Requests");
//! let tree = Tree::new(schema.build()?)?;
//!
//! let file = "# our tenants\n/acme 64m,rate=20000/s,burst=500\n\"/odd name\" 1g # in quotes\n";
//! for (_, limited) in limits::parse_lines(file)? {
//!     let group = tree.get_or_create(&limited.path)?;
//!     group.set_limit(memory, limited.limits.memory);
//!     group.set_rate(requests, limited.limits.rate)?;
//! }
//! let acme = tree.get("/acme").expect("it has a line");
//! assert_eq!(acme.usage(memory).limit, Some(64 << 20));
//! assert_eq!(acme.rate(requests).map(|rate| rate.burst), Some(500));
//!
//! let error = limits::parse("64m,rate=20000").expect_err("no time");
//! println!("{error}"); // "20000" is not a rate: use N/s, N/min, N/h or N/ms, as in 20000/s
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod budget;
pub(crate) mod charge;
pub(crate) mod rate;
pub(crate) mod rate_state;
mod text;

pub use text::{
    GroupLimits, Limits, ParseError, cpus, lines::parse_lines, parse, values::rate, values::size,
};
