//! The per-CPU words of one reference count, by sequence or by locked row.

use std::borrow::Cow;
use std::io;

use submeter_sys::{ResolvedHint, barrier};

use super::rows;
use super::switch::Slots;
use crate::backend::gated::GatedWord;
use crate::backend::locked::{self, LockedWord};
use crate::storage::{Area, Words};
use crate::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// The words of a count: with sequences one per CPU row, without them two per locked row.
#[derive(Debug)]
#[repr(C)]
pub(super) struct AreaSlots {
    /// Never takes an add where there are no sequences.
    pub(super) word: GatedWord,
    /// Boxed: every group has one of these, and most machines have sequences.
    locked: Option<Box<Locked>>,
}

/// The words of an area without sequences.
#[derive(Debug)]
struct Locked {
    /// The words to which adds go.
    counted: LockedWord,
    /// The row's count when it died.
    collected: LockedWord,
    hint: ResolvedHint,
    /// Whether the rows are live: a hint that saves a locked add to a dead row. Writer: the lock's
    /// holder.
    live: AtomicBool,
    /// Frees the words on drop.
    _words: Words,
}

impl Locked {
    fn is_live(&self) -> bool {
        // Relaxed: a hint; the row's sign decides.
        self.live.load(Ordering::Relaxed)
    }
}

impl AreaSlots {
    pub(super) fn new(area: &Area) -> io::Result<AreaSlots> {
        // Where there are sequences, a thread that cannot use them counts in the shared word: this
        // is rare, and locked rows would cost every kill a visit.
        if area.rseq().is_some() {
            return Ok(AreaSlots { word: GatedWord::new(area)?, locked: None });
        }
        let block = area.block(2)?;
        let locked = Box::new(Locked {
            counted: block.locked_word(0),
            collected: block.locked_word(1),
            hint: block.hint(),
            live: AtomicBool::new(false),
            _words: block.into_words(),
        });
        Ok(AreaSlots { word: GatedWord::inert(), locked: Some(locked) })
    }

    /// Returns the row in which the calling thread may try to count after its sequence did not
    /// commit.
    #[inline]
    pub(super) fn row_here(&self) -> Option<&AtomicI64> {
        let locked = self.locked.as_deref().filter(|locked| locked.is_live())?;
        let row = locked::row(locked.hint, locked.counted.rows());
        Some(locked.counted.at(row))
    }

    /// Returns the same row as [`row_here`](Self::row_here) if one load yields its number: the
    /// first choice of a put or get where there are no sequences. Calls nothing, so that its caller
    /// has no register to save: the full cost of a store before a locked instruction is paid.
    #[inline(always)]
    pub(super) fn row_by_hint(&self) -> Option<&AtomicI64> {
        let locked = self.locked.as_deref().filter(|locked| locked.is_live())?;
        let row = locked.hint.number()? as usize;
        (row < locked.counted.rows()).then(|| locked.counted.at(row))
    }

    fn each_row(&self, mut visit: impl FnMut(&AtomicI64, &AtomicI64)) {
        if let Some(Locked { counted, collected, .. }) = self.locked.as_deref() {
            for row in 0..counted.rows() {
                visit(counted.at(row), collected.at(row));
            }
        }
    }
}

impl Slots for AreaSlots {
    #[inline(always)]
    fn add_one<const N: i32>(&self) -> bool {
        self.word.adder().add_one::<N>()
    }

    #[inline(always)]
    fn add(&self, n: i64) -> bool {
        self.word.adder().add(n)
    }

    #[inline]
    fn add_slow(&self, n: i64) -> bool {
        match self.row_here() {
            Some(row) => rows::add(row, n),
            None => self.word.adder().add_again(n),
        }
    }

    fn is_open(&self) -> bool {
        match self.locked.as_deref() {
            Some(locked) => locked.is_live(),
            None => self.word.is_open(),
        }
    }

    fn prepare(&self) -> i64 {
        self.each_row(rows::forget);
        self.word.sum()
    }

    fn open(&self) {
        match self.locked.as_deref() {
            Some(locked) => {
                self.each_row(|row, _| rows::live(row));
                // Relaxed: a hint.
                locked.live.store(true, Ordering::Relaxed);
            }
            None => self.word.open(),
        }
    }

    fn close(&self) {
        match self.locked.as_deref() {
            // Relaxed: a hint.
            Some(locked) => locked.live.store(false, Ordering::Relaxed),
            None => self.word.close(),
        }
    }

    fn needs_barrier(&self) -> bool {
        // Locked rows need none: each dies by one instruction on the word to which its adders add.
        self.locked.is_none()
    }

    fn barrier(&self) {
        if self.needs_barrier() {
            #[cfg(test)]
            BARRIERS.set(BARRIERS.get() + 1);
            // Continuing would release objects in use.
            barrier::wait().expect("the start-up probe found it to work");
        }
    }

    fn collect(&self) -> i64 {
        if self.locked.is_none() {
            return self.word.sum();
        }
        let mut sum = 0i64;
        self.each_row(|row, collected| {
            rows::die(row, collected);
            sum = sum.wrapping_add(rows::collected(collected));
        });
        sum
    }
}

/// A name, stored inline where it is short, as most paths of groups are: a separate allocation
/// would be larger than the name, and a lookup would follow one more pointer.
#[derive(Clone, Debug)]
pub(super) enum Name {
    Static(&'static str),
    Short(ShortName),
    Long(Box<str>),
}

const _: () = assert!(size_of::<Name>() <= 24, "every group has one");

#[derive(Clone, Copy, Debug)]
pub(super) struct ShortName {
    len: u8,
    /// Invariant: the first `len` bytes are a string.
    bytes: [u8; SHORT],
}

/// The number of bytes for which [`Name`] has room beside two lengths.
const SHORT: usize = 22;

impl Name {
    #[inline(always)]
    pub(super) fn as_str(&self) -> &str {
        match self {
            Name::Static(name) => name,
            Name::Short(name) => {
                let bytes = &name.bytes[..usize::from(name.len)];
                // SAFETY: 1. The bytes are a string: only `from` makes a `ShortName`, and makes it
                // from one.
                unsafe { std::str::from_utf8_unchecked(bytes) }
            }
            Name::Long(name) => name,
        }
    }
}

impl From<Cow<'static, str>> for Name {
    fn from(name: Cow<'static, str>) -> Name {
        match name {
            Cow::Borrowed(name) => Name::Static(name),
            Cow::Owned(name) if name.len() <= SHORT => {
                let mut bytes = [0; SHORT];
                bytes[..name.len()].copy_from_slice(name.as_bytes());
                Name::Short(ShortName { len: name.len() as u8, bytes })
            }
            Cow::Owned(name) => Name::Long(name.into_boxed_str()),
        }
    }
}

#[cfg(test)]
thread_local!(static BARRIERS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });

/// Returns how many barriers the calling thread has issued.
#[cfg(test)]
pub(super) fn barriers_of_this_thread() -> u32 {
    BARRIERS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_length_is_what_it_was_made_of() {
        for len in [0, 1, SHORT - 1, SHORT, SHORT + 1, 300] {
            let name = "x".repeat(len);
            assert_eq!(Name::from(Cow::Owned(name.clone())).as_str(), name);
        }
        let name = format!("{}é", "x".repeat(SHORT - 2));
        let made = Name::from(Cow::Owned(name.clone()));
        assert!(matches!(made, Name::Short(_)));
        assert_eq!(made.as_str(), name, "not cut within a character");
        assert_eq!(Name::from(Cow::Borrowed("static")).as_str(), "static");
    }
}
