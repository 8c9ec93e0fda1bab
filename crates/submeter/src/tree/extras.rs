//! Parts that most groups lack: words of further sections, rates, and values attached to a group
//! for its lifetime (one per owner, and one of the program's own).
//!
//! They are all behind one pointer. Attached values are stored without their types, so that a group
//! need not know their owners.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;
use submeter_percpu::TokenBucket;
use submeter_percpu::clock::Clock;
use submeter_percpu::wakers::Wakers;

use crate::metric::schema::Schema;
use crate::stats::rstat::OtherStats;
use crate::tree::buckets::Rates;
use crate::tree::once_list::OnceList;

mod data;
#[cfg(feature = "aggregator")]
mod owned;

use data::DataSlot;
pub(crate) use data::{Data, NoData};
#[cfg(feature = "aggregator")]
use owned::Owned;

/// The extras of one group. A single pointer while there are none.
#[derive(Default)]
pub(crate) struct Extras {
    made: OnceBox<ExtrasInner>,
}

#[derive(Default)]
struct ExtrasInner {
    /// The words of the sections other than the first, in the schema's order.
    others: Box<[OtherStats]>,
    /// The words of sections that were added to the tree.
    added: OnceList<OtherStats>,
    rates: Rates,
    /// How much of the group's own CPU time has been spent from its budgets.
    spent_ns: AtomicU64,
    #[cfg(feature = "aggregator")]
    owned: Owned,
    /// The program's own value.
    data: OnceBox<DataSlot>,
    /// A library's value. In a box, because the pointer that is swapped in is untyped. Not in a
    /// `OnceLock`: if a thread were setting one during a fork, the child would wait for it forever.
    companion: OnceBox<Box<dyn Any + Send + Sync>>,
    /// Made by the first waiter for the kill.
    kill_waits: OnceBox<Wakers>,
}

impl Extras {
    /// Returns extras with the words of further sections and, if the group `spends`, room to note
    /// how much. Allocates nothing if the schema has neither.
    pub(crate) fn new(others: Box<[OtherStats]>, spends: bool) -> Extras {
        if others.is_empty() && !spends {
            return Extras::default();
        }
        Extras {
            made: OnceBox::with_value(Box::new(ExtrasInner { others, ..ExtrasInner::default() })),
        }
    }

    /// Returns the words of the sections that the tree was made with, other than the first.
    pub(crate) fn others(&self) -> &[OtherStats] {
        self.made.get().map_or(&[], |made| &made.others)
    }

    /// Returns the words of all sections other than the first that have any yet.
    pub(crate) fn all(&self) -> impl Iterator<Item = &OtherStats> {
        self.made.get().into_iter().flat_map(|made| made.others.iter().chain(made.added.iter()))
    }

    /// Returns the words of a section other than the first.
    #[inline]
    pub(crate) fn find(&self, section: u32) -> Option<&OtherStats> {
        let made = self.made.get()?;
        let is_it = |stats: &&OtherStats| stats.section_id == section;
        made.others.iter().find(is_it).or_else(|| made.added.iter().find(is_it))
    }

    /// Keeps the words of an added section, or drops them if another thread was first.
    pub(crate) fn add(&self, stats: OtherStats) -> &OtherStats {
        let added = &self.made.get_or_init(Box::default).added;
        added.add(stats, |one, other| one.section_id == other.section_id)
    }

    /// Returns the bucket of a rate, if one was ever set.
    pub(crate) fn rate(&self, slot: usize) -> Option<&TokenBucket> {
        self.made.get()?.rates.at(slot)
    }

    /// Returns the buckets, after making them.
    pub(crate) fn make_rates(&self, schema: &Schema, clock: &Clock) -> &Arc<[TokenBucket]> {
        self.rates().create(schema, clock)
    }

    /// If the group spends, notes that `ns` of its CPU time have been spent so far, and returns how
    /// much of that is new. A negative `ns`, which a program's own adds may cause, counts as 0.
    pub(crate) fn spent(&self, ns: i64) -> u64 {
        let Some(made) = self.made.get() else { return 0 };
        let ns = ns.max(0).cast_unsigned();
        // Relaxed: the word publishes nothing but itself. Of two threads that note the same time,
        // one gets it.
        ns.saturating_sub(made.spent_ns.fetch_max(ns, Ordering::Relaxed))
    }

    /// Notes that `ns` of CPU time from another process are about to be added, which no group owes.
    /// Call it before the add: the group then briefly spends too little instead of too much. As in
    /// `spent`, a negative `ns` counts as 0.
    #[cfg(feature = "checkpoint")]
    pub(crate) fn restored(&self, ns: i64) {
        if let Some(made) = self.made.get() {
            // Relaxed: as in `spent`.
            made.spent_ns.fetch_add(ns.max(0).cast_unsigned(), Ordering::Relaxed);
        }
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.made.get_or_init(Box::default).rates
    }

    /// Returns the program's value, if there is one of this type.
    pub(crate) fn data<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.made.get()?.data.get()?.get()
    }

    /// Makes room for the program's value. To be called before the group can be killed.
    pub(crate) fn make_room_for_data(&self) {
        self.data_slot();
    }

    /// Returns the program's value; `make` makes it if there is none. See [`DataSlot`].
    pub(crate) fn data_or_init<T: Any + Send + Sync>(
        &self,
        is_killed: impl FnOnce() -> bool,
        make: impl FnOnce() -> T,
    ) -> Result<Arc<T>, NoData> {
        self.data_slot().get_or_init(is_killed, make)
    }

    fn data_slot(&self) -> &DataSlot {
        self.made.get_or_init(Box::default).data.get_or_init(Box::default)
    }

    /// Takes the program's value from the group, which was killed.
    pub(crate) fn take_data(&self) -> Option<Data> {
        self.made.get()?.data.get()?.take()
    }

    /// Returns the library's value, if one of this type was set.
    pub(crate) fn companion<T: Any>(&self) -> Option<&T> {
        self.made.get()?.companion.get()?.downcast_ref()
    }

    /// Sets the library's value, or returns it if there is one already.
    pub(crate) fn set_companion<T: Any + Send + Sync>(&self, value: T) -> Result<(), T> {
        let made = self.made.get_or_init(Box::default);
        made.companion.set(Box::new(Box::new(value))).map_err(|value| {
            let mine = value.downcast().ok().map(|mine| *mine);
            mine.unwrap_or_else(|| unreachable!("a `T` from above"))
        })
    }

    pub(crate) fn kill_waits(&self) -> &Wakers {
        self.made.get_or_init(Box::default).kill_waits.get_or_init(Box::default)
    }

    /// Returns the tasks that wait for the kill, if any ever did.
    pub(crate) fn kill_waits_if_any(&self) -> Option<&Wakers> {
        self.made.get()?.kill_waits.get()
    }

    /// Returns the values with owners, if anything is attached yet.
    #[cfg(feature = "aggregator")]
    pub(crate) fn owned(&self) -> Option<&Owned> {
        Some(&self.made.get()?.owned)
    }

    /// Returns the values with owners, after making room for them.
    #[cfg(feature = "aggregator")]
    pub(crate) fn owned_or_init(&self) -> &Owned {
        &self.made.get_or_init(Box::default).owned
    }
}
