//! The live children of one group, by name.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use submeter_percpu::percpu_ref::OwnerMap;
use submeter_percpu::rcuref::pin;

/// Owners of a group's children.
///
/// It is a table of owners, not a map from names: each child knows its path, and a separate key
/// would take as much memory again for every group. It is not a sorted set either: that would
/// follow a pointer for each comparison, ten of them among a thousand children, where this table
/// follows one. Callers that need an order sort.
pub(crate) type Children<T> = OwnerMap<T>;

/// The key of a child: the hash of its name, and where names begin in the paths of its siblings.
#[derive(Clone, Copy)]
pub(crate) struct ChildKey<'a> {
    pub(crate) hash: u64,
    name: &'a str,
    /// Where the children's names begin in their paths.
    begin: usize,
}

impl<'a> ChildKey<'a> {
    #[inline]
    pub(crate) fn new(parent: &str, name: &'a str) -> ChildKey<'a> {
        // The root's path ends with a slash; the others do not.
        let begin = if parent.len() == 1 { 1 } else { parent.len() + 1 };
        ChildKey { hash: hash(name), name, begin }
    }

    /// Returns whether the child with this path has the key's name.
    #[inline]
    pub(crate) fn is(self, path: &str) -> bool {
        path.as_bytes().get(self.begin..) == Some(self.name.as_bytes())
    }
}

/// Names may come from strangers, so collisions must be unpredictable: the seed comes from the
/// system's randomness. One serves the whole process: a seed per group would take twice as much
/// memory as its pointer to the table. std's SipHash would take half of the time of a lookup.
static SEED: LazyLock<SeedableRandomState> =
    LazyLock::new(|| SeedableRandomState::with_seed(random(), &SHARED));
static SHARED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(random()));

/// Makes what the process's first lookup would otherwise make. If a thread were making it during a
/// fork, it would be half made in the child, whose lookups would wait for that thread.
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
