//! Parallel iterators in a group.

use rayon::iter::plumbing::{Consumer, Folder, Producer, ProducerCallback, UnindexedConsumer};
use rayon::iter::{IndexedParallelIterator, ParallelIterator};

use super::{Entered, Grouped};
use crate::tree::group::Group;

/// A parallel iterator whose items are produced and consumed in the group: both what comes before
/// [`in_group`](super::InGroup::in_group) and what comes after it in the chain. It costs two
/// switches per piece into which rayon splits the work, not per item.
///
/// # Examples
/// ```
/// use rayon::prelude::*;
/// use submeter::switch::{self, InGroup};
/// use submeter::{Schema, Tree};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// let items = (0..100).into_par_iter().in_group(&web);
/// assert!(items.map(|_| switch::current()).all(|group| group.as_ref() == Some(&web)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<I: ParallelIterator> ParallelIterator for Grouped<I> {
    type Item = I::Item;

    fn drive_unindexed<C: UnindexedConsumer<I::Item>>(self, consumer: C) -> C::Result {
        let (items, group) = self.take();
        items.drive_unindexed(InGroupConsumer { consumer, group })
    }

    fn opt_len(&self) -> Option<usize> {
        self.value().opt_len()
    }
}

/// Keeps what rayon does by position: `enumerate`, `zip`, `rev`, `collect_into_vec`.
///
/// When two are zipped, each produces its items in its own group, and what follows runs in the
/// group of the second.
impl<I: IndexedParallelIterator> IndexedParallelIterator for Grouped<I> {
    fn len(&self) -> usize {
        self.value().len()
    }

    fn drive<C: Consumer<I::Item>>(self, consumer: C) -> C::Result {
        let (items, group) = self.take();
        items.drive(InGroupConsumer { consumer, group })
    }

    fn with_producer<CB: ProducerCallback<I::Item>>(self, callback: CB) -> CB::Output {
        let (items, group) = self.take();
        items.with_producer(InGroupCallback { callback, group })
    }
}

struct InGroupCallback<CB> {
    callback: CB,
    group: Option<Group>,
}

impl<T, CB: ProducerCallback<T>> ProducerCallback<T> for InGroupCallback<CB> {
    type Output = CB::Output;

    fn callback<P: Producer<Item = T>>(self, producer: P) -> CB::Output {
        self.callback.callback(InGroupProducer { items: producer, group: self.group })
    }
}

/// One piece of the work, which may be split again.
struct InGroupProducer<P> {
    items: P,
    group: Option<Group>,
}

impl<P: Producer> Producer for InGroupProducer<P> {
    type Item = P::Item;
    type IntoIter = InGroupItems<P::IntoIter>;

    fn into_iter(self) -> Self::IntoIter {
        let entered = self.group.as_ref().map(Group::enter);
        InGroupItems { items: self.items.into_iter(), group: self.group, _entered: entered }
    }

    fn min_len(&self) -> usize {
        self.items.min_len()
    }

    fn max_len(&self) -> usize {
        self.items.max_len()
    }

    fn split_at(self, index: usize) -> (Self, Self) {
        let (left, right) = self.items.split_at(index);
        let left = InGroupProducer { items: left, group: self.group.clone() };
        (left, InGroupProducer { items: right, group: self.group })
    }

    fn fold_with<F: Folder<P::Item>>(self, folder: F) -> F {
        let _entered = self.group.as_ref().map(Group::enter);
        self.items.fold_with(folder)
    }
}

/// The items of one piece, taken one by one. The thread stays in the group until this is dropped,
/// for whatever is done with the items. It also enters the group for each item, since this may be
/// one of several iterators that are advanced alternately.
struct InGroupItems<I> {
    items: I,
    group: Option<Group>,
    _entered: Option<Entered>,
}

impl<I: Iterator> Iterator for InGroupItems<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let _entered = self.group.as_ref().map(Group::enter);
        self.items.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<I: DoubleEndedIterator> DoubleEndedIterator for InGroupItems<I> {
    fn next_back(&mut self) -> Option<I::Item> {
        let _entered = self.group.as_ref().map(Group::enter);
        self.items.next_back()
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for InGroupItems<I> {}

struct InGroupConsumer<C> {
    consumer: C,
    group: Option<Group>,
}

impl<T, C: Consumer<T>> Consumer<T> for InGroupConsumer<C> {
    type Folder = InGroupFolder<C::Folder>;
    type Reducer = C::Reducer;
    type Result = C::Result;

    fn split_at(self, index: usize) -> (Self, Self, C::Reducer) {
        let InGroupConsumer { consumer, group } = self;
        let (left, right, reducer) = consumer.split_at(index);
        let left = InGroupConsumer { consumer: left, group: group.clone() };
        (left, InGroupConsumer { consumer: right, group }, reducer)
    }

    fn into_folder(self) -> InGroupFolder<C::Folder> {
        let entered = self.group.as_ref().map(Group::enter);
        InGroupFolder { folder: self.consumer.into_folder(), _entered: entered }
    }

    fn full(&self) -> bool {
        self.consumer.full()
    }
}

impl<T, C: UnindexedConsumer<T>> UnindexedConsumer<T> for InGroupConsumer<C> {
    fn split_off_left(&self) -> Self {
        let consumer = self.consumer.split_off_left();
        InGroupConsumer { consumer, group: self.group.clone() }
    }

    fn to_reducer(&self) -> C::Reducer {
        self.consumer.to_reducer()
    }
}

/// Folds one piece of the work, on one thread. It enters the group when it is created, which is
/// before the first item is produced.
struct InGroupFolder<F> {
    folder: F,
    _entered: Option<Entered>,
}

impl<T, F: Folder<T>> Folder<T> for InGroupFolder<F> {
    type Result = F::Result;

    fn consume(self, item: T) -> Self {
        InGroupFolder { folder: self.folder.consume(item), _entered: self._entered }
    }

    fn complete(self) -> F::Result {
        self.folder.complete()
    }

    fn full(&self) -> bool {
        self.folder.full()
    }
}
