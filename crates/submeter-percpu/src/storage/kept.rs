//! Words without the way to add to them, and a value that goes with them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::block::Owned;
use super::raw::LINE_WORDS;

/// Keeps the words of a [`Block`](super::Block), and the value that it was given. Cloning is a pointer copy,
/// and a pointer is all that it weighs: for who must keep words and does not add to them.
///
/// # Examples
/// ```
/// use submeter_percpu::Area;
///
/// let block = Area::common()?.block(2)?.with("of a tenant");
/// let kept = block.keep();
/// drop(block);
/// assert_eq!(*kept, "of a tenant", "and its words are nobody else's yet");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Kept<T = ()> {
    pub(super) held: Arc<Held<T>>,
}

/// One allocation for both: every group has one.
pub(super) struct Held<T> {
    pub(super) words: Owned,
    pub(super) value: T,
}

impl<T> Kept<T> {
    pub(super) fn new(words: Owned, value: T) -> Kept<T> {
        Kept { held: Arc::new(Held { words, value }) }
    }

    /// Returns the first word's index in a row.
    #[inline]
    #[must_use]
    pub fn first_word(&self) -> usize {
        self.held.words.first()
    }

    /// Returns the first line's index in a row.
    #[must_use]
    pub fn first_line(&self) -> usize {
        self.first_word() / LINE_WORDS
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.held.value
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Kept<T> {
        Kept { held: Arc::clone(&self.held) }
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.words.fmt(f)
    }
}
