//! The live children of one group, by name.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use submeter_percpu::percpu_ref::OwnerMap;
use submeter_percpu::rcuref::pin;

/// The owners of a group's children.
///
/// It is a table of owners, not a map from names: each child knows its path, and a separate key
/// would take as much memory again for every group. It is not a sorted set either: that would
/// follow a pointer for each comparison, ten of them among a thousand children, where this follows
/// one. Callers that need an order sort.
pub(crate) type Children<T> = OwnerMap<T>;

/// The key of a child: its name, hashed, and the length of its parent's path.
#[derive(Clone, Copy)]
pub(crate) struct ChildKey<'a> {
    pub(crate) hash: u64,
    name: &'a str,
    /// Where the names of the parent's children begin in their paths.
    begin: usize,
}

impl<'a> ChildKey<'a> {
    #[inline]
    pub(crate) fn new(parent: &str, name: &'a str) -> ChildKey<'a> {
        // The root's path ends with the slash that others' lack.
        let begin = if parent.len() == 1 { 1 } else { parent.len() + 1 };
        ChildKey { hash: hash(name), name, begin }
    }

    /// Returns whether a child of the parent has the name.
    #[inline]
    pub(crate) fn is(self, path: &str) -> bool {
        path.as_bytes().get(self.begin..) == Some(self.name.as_bytes())
    }
}

/// Names may come from strangers, so that collisions must be unpredictable: the seed is of the
/// system's randomness. One serves the whole process: a seed per group would take twice as much
/// memory as its pointer to the table. std's SipHash would take half of a lookup's time.
static SEED: LazyLock<SeedableRandomState> =
    LazyLock::new(|| SeedableRandomState::with_seed(random(), &SHARED));
static SHARED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(random()));

/// Makes what the first lookup of the process would make. A thread that did so at a fork would
/// leave it half made in the child, whose lookups would wait for that thread.
pub(crate) fn prepare() {
    LazyLock::force(&SEED);
    drop(pin());
}

#[inline]
fn hash(name: &str) -> u64 {
    let mut hasher = SEED.build_hasher();
    hasher.write(name.as_bytes());
    hasher.finish()
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}
