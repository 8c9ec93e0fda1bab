//! A guide in short chapters, with programs that run.
//!
//! **Begin here** with [a server that has a protocol of its own][whole]: all of it in one program.
//! Read the chapters when you need them.
//!
//! Your server exists already? [Where each line goes](existing_server).
//!
//! 1. [First steps](first_steps): a schema, a tree, groups, updates; the words that all chapters
//!    use.
//! 2. [Kinds](kinds): counter, gauge, histogram, quota or rate?
//! 3. [Reads](reads): what a value costs, how exact it is, and how to keep it fresh.
//! 4. [Limits](limits): quotas, charges, refusals, rates.
//! 5. [Answers](answers): which error becomes which answer to a client.
//! 6. [The group switch](group_switch): charging CPU time to the tenant that a thread works for.
//! 7. [Lifetimes](lifetimes): deleting tenants and their data while traffic runs.
//!
//! **Look up**
//! - [How the group travels](group_travel) into every kind of work.
//! - [Heap](heap): who holds the memory of the process, and how to limit it.
//! - [Exporting](exporting): which exporter, and what it does with groups that come and go.
//! - [Testing](testing) a program that uses submeter.
//! - [Costs](costs) of every operation.
//! - [Platforms](platforms): kernels, systems, builds, and how to operate them.
//!
//! [whole]: https://github.com/submeter/submeter/blob/main/examples/line-protocol/src/main.rs

/// Makes a module of each chapter. The chapters are also read in the repository and on its site,
/// where links to items have no target, so those links are in a separate file.
macro_rules! chapters {
    ($($name:ident)*) => {$(
        #[doc = include_str!(concat!(stringify!($name), ".md"))]
        #[doc = ""]
        #[doc = include_str!("links.txt")]
        pub mod $name {}
    )*};
}

chapters! {
    first_steps kinds reads limits answers group_switch lifetimes
    existing_server group_travel heap exporting testing costs platforms
}
