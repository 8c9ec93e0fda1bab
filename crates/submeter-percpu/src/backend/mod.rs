//! The two ways to add to a per-CPU word. They never share a word, because a plain add and a locked
//! one on the same word can overwrite each other.

#[expect(unsafe_code, reason = "keeps a word, its gate and its rows together")]
pub(crate) mod gated;
#[expect(unsafe_code, reason = "the words of locked rows that a block or a count has")]
pub(crate) mod locked;
#[expect(unsafe_code, reason = "runs the sequences on words of its own")]
pub(crate) mod packed;
#[expect(unsafe_code, reason = "runs the sequences on addresses that `storage::raw` vouches for")]
pub(crate) mod rseq;
