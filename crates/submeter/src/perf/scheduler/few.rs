//! One value in place, or several elsewhere.

use std::ops::{Deref, DerefMut};

/// A slice that does not change its length. Most event groups have one event, which then is where the event group is:
/// a switch among many groups misses one line of the cache less.
#[derive(Clone, Debug)]
pub(super) enum Few<T> {
    One([T; 1]),
    Other(Box<[T]>),
}

impl<T> Few<T> {
    pub(super) fn new(values: Box<[T]>) -> Few<T> {
        match <Box<[T; 1]>>::try_from(values) {
            Ok(one) => Few::One(*one),
            Err(values) => Few::Other(values),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Few::One(one) => one,
            Few::Other(values) => values,
        }
    }
}

impl<T> DerefMut for Few<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Few::One(one) => one,
            Few::Other(values) => values,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_it_was_made_of() {
        for values in [vec![], vec![1], vec![1, 2, 3]] {
            let mut few = Few::new(values.clone().into_boxed_slice());
            assert_eq!(*few, *values);
            assert_eq!(matches!(few, Few::One(_)), values.len() == 1);
            few.iter_mut().for_each(|value| *value += 1);
            assert!(few.iter().zip(values).all(|(now, before)| *now == before + 1));
        }
    }
}
