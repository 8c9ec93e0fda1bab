//! The work of the programs of the bench's table `alloc`.
//!
//! A program has one global allocator, so that each allocator is a program of its own: a file that
//! names the allocator, most by [`program!`], and calls [`answer`], or [`answer_with`] where a
//! library has tenants of its own. The bench starts one of each. A program reports which allocator
//! it found linked, and then takes the samples that standard input asks for, so that all of them
//! take turns within milliseconds.

#![forbid(unsafe_code)]

mod footprint;
mod linked;
mod operation;
mod serve;

use submeter::{Group, Schema, SchemaBuilder, Tree};
use submeter_alloc::{Live, Volume, exact, sampled};

pub use footprint::SIZES;
pub use linked::difference;
pub use operation::Operation;
pub use serve::{answer, answer_with};

/// Makes a program of an underlying allocator, a rung, and the global allocator that they make.
#[macro_export]
macro_rules! program {
    ($inner:ident, $rung:ident $(($own:expr))?, $heap:ty = $value:expr) => {
        #[global_allocator]
        static HEAP: $heap = $value;

        fn main() -> std::process::ExitCode {
            $crate::answer($crate::Inner::$inner, $crate::Rung::$rung $(($own))?)
        }
    };
}

/// The underlying allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// glibc's allocator.
    Glibc,
    /// mimalloc.
    Mimalloc,
    /// jemalloc.
    Jemalloc,
}

impl Inner {
    /// All of them.
    pub const ALL: [Inner; 3] = [Inner::Glibc, Inner::Mimalloc, Inner::Jemalloc];

    /// Returns its name in rows, and in the names of programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Inner::Glibc => "glibc",
            Inner::Mimalloc => "mimalloc",
            Inner::Jemalloc => "jemalloc",
        }
    }
}

/// The layer around it, which charges the groups of a tree.
#[derive(Clone, Copy, Debug)]
pub enum Rung {
    /// Nothing: a tree without a metric of the heap. Also used where another library is around it.
    Bare,
    /// `Metered`.
    Volume,
    /// `Sampled`.
    Sampled,
    /// `Exact`.
    Exact,
    /// Nothing: the allocator counts for each thread, and this declares its counts.
    OwnCounts(fn(&mut SchemaBuilder)),
}

/// Two tenants, for which a thread works alternately.
pub trait Tenants: Send + 'static {
    /// Returns the same for another thread.
    #[must_use]
    fn share(&self) -> Self;

    /// Works for one of them: 0 or 1.
    fn run(&mut self, tenant: usize, work: impl FnOnce());
}

/// Two groups, and what charges them.
struct Groups {
    groups: [Group; 2],
}

impl Tenants for Groups {
    fn share(&self) -> Groups {
        Groups { groups: self.groups.clone() }
    }

    #[inline]
    fn run(&mut self, tenant: usize, work: impl FnOnce()) {
        self.groups[tenant].run(work);
    }
}

/// What charges groups, as long as the program runs.
#[expect(dead_code, reason = "it is held, and not looked at")]
enum Charges {
    None,
    Sampled(sampled::Heap),
    Exact(exact::Heap),
}

/// Makes the two groups of a program with this rung.
///
/// # Errors
/// Those of the tree and of the rung.
fn groups(rung: Rung) -> Result<(Tree, Charges, Groups), Box<dyn std::error::Error>> {
    let mut schema = Schema::builder();
    match rung {
        Rung::Bare | Rung::Sampled | Rung::Exact => {}
        Rung::Volume => _ = schema.declare::<Volume>(),
        Rung::OwnCounts(declare) => declare(&mut schema),
    }
    let tree = Tree::new(schema.build()?)?;
    let charges = match rung {
        Rung::Bare | Rung::Volume | Rung::OwnCounts(_) => Charges::None,
        Rung::Sampled => Charges::Sampled(sampled::Heap::start(&tree, tree.declare()?)?),
        Rung::Exact => Charges::Exact(exact::Heap::start(&tree, tree.declare::<Live>()?)?),
    };
    let groups = [tree.get_or_create("/acme/a")?, tree.get_or_create("/acme/b")?];
    Ok((tree, charges, Groups { groups }))
}
