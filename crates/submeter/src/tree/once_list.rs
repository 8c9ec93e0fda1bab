//! A list that only grows, without a lock: a forked child could find one held by a thread that it
//! does not have.

use once_cell::race::OnceBox;

/// A list for a few values. A single pointer while it is empty.
pub(crate) struct OnceList<T> {
    first: OnceBox<Link<T>>,
}

struct Link<T> {
    value: T,
    next: OnceBox<Link<T>>,
}

impl<T> Default for OnceList<T> {
    fn default() -> OnceList<T> {
        OnceList { first: OnceBox::new() }
    }
}

impl<T> OnceList<T> {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let links = std::iter::successors(self.first.get(), |link| link.next.get());
        links.map(|link| &link.value)
    }

    /// Appends `value`, or drops it if another thread has appended the same one first. Returns the
    /// one that is in the list.
    pub(crate) fn add(&self, value: T, is_same: impl Fn(&T, &T) -> bool) -> &T {
        let mut link = Box::new(Link { value, next: OnceBox::new() });
        let mut place = &self.first;
        loop {
            let refused = place.set(link).err();
            let there = place.get().expect("set by this thread or another");
            match refused {
                Some(late) if !is_same(&late.value, &there.value) => link = late,
                _ => return &there.value,
            }
            place = &there.next;
        }
    }
}
