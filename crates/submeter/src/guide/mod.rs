//! A guide in five short chapters, each a program that runs.
//!
//! 1. [First steps](first_steps): a schema, a tree, groups, updates.
//! 2. [Reads](reads): what a value costs, how exact it is, and how to keep it fresh.
//! 3. [Limits](limits): quotas, charges, refusals, rates.
//! 4. [The group switch](group_switch): charging CPU time to the tenant that a thread works for.
//! 5. [Lifetimes](lifetimes): deleting tenants and their data while traffic runs, and
//!    operating it all.
//!
//! An appendix lists [how the group travels](group_travel) with every kind of work.
//!
//! The examples at the root of the repository are whole programs to copy.

pub mod first_steps;
pub mod group_switch;
pub mod group_travel;
pub mod lifetimes;
pub mod limits;
pub mod reads;
