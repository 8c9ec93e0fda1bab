//! The allocator itself, and nothing else that is unsafe.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::Layout;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use super::{GroupAlloc, exactly};

// SAFETY: 1. Every block is one of `inner`, from which it is requested and to which it is returned
// with the layouts that this allocator was given: `exactly` leaves a block a single size that fits,
// which fits the block of `inner`, too. So blocks are valid for as long as those of `inner` are.
// 2. A clone has a clone of `inner`, which behaves like the same allocator. A move moves `inner`.
// 3. What is charged or released beside that touches no block.
unsafe impl<A: Allocator> Allocator for GroupAlloc<A> {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.charged(layout.size(), layout, || self.inner.allocate(layout))
    }

    #[inline]
    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.charged(layout.size(), layout, || self.inner.allocate_zeroed(layout))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: 1. The caller's promises are for the same method: the block is in use, and its
        // layout fits. 2. It is one of `inner`, like every block.
        unsafe { self.inner.deallocate(block, layout) };
        self.release(layout.size());
    }

    #[inline]
    unsafe fn grow(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: 1. The caller's promises are for the same method: the block is in use, the old
        // layout fits, and the new one is no smaller. 2. It is one of `inner`, like every block.
        let grow = || unsafe { self.inner.grow(block, old, new) };
        self.charged(new.size() - old.size(), new, grow)
    }

    #[inline]
    unsafe fn grow_zeroed(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: 1. The caller's promises are for the same method.
        let grown = unsafe { self.grow(block, old, new) }?;
        // Not by `inner`, which may keep what lies behind the old size and within the block that it
        // gave. SAFETY: 1. The block has the new size, which is no smaller than the old one. 2.
        // Nothing else uses it yet.
        unsafe { grown.cast::<u8>().add(old.size()).write_bytes(0, new.size() - old.size()) };
        Ok(grown)
    }

    #[inline]
    unsafe fn shrink(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: 1. The caller's promises are for the same method: the block is in use, the old
        // layout fits, and the new one is no larger. 2. It is one of `inner`, like every block.
        let shrunk = unsafe { self.inner.shrink(block, old, new) }?;
        self.release(old.size() - new.size());
        Ok(exactly(shrunk, new.size()))
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use allocator_api2::alloc::Global;
    use hashbrown::{DefaultHashBuilder, HashMap};
    use submeter::{Bytes, Group, Quota, Schema, Tree};

    use super::*;

    /// An inner allocator that gives blocks more than was requested, does not clear what it gave
    /// before, and fails when it is told to: all of which an `Allocator` may do.
    #[derive(Debug, Default)]
    struct Roomy {
        fails: AtomicBool,
        given: AtomicUsize,
    }

    /// A small table would have room for four times as many entries.
    const ROOM: usize = 256;
    const DIRT: u8 = 0xAA;

    impl Roomy {
        fn fails(&self, fails: bool) {
            // Relaxed, all: the test's one thread.
            self.fails.store(fails, Ordering::Relaxed);
        }

        fn given(&self) -> usize {
            self.given.load(Ordering::Relaxed)
        }

        /// Returns whether a block need not move.
        fn stays(&self, old: Layout, new: Layout) -> Result<bool, AllocError> {
            if self.fails.load(Ordering::Relaxed) {
                Err(AllocError)
            } else {
                Ok(room(old) == room(new))
            }
        }
    }

    /// The same for all sizes that fit a block.
    fn room(layout: Layout) -> Layout {
        let size = layout.size().next_multiple_of(ROOM);
        Layout::from_size_align(size, layout.align()).expect("valid")
    }

    fn roomy(block: NonNull<u8>, layout: Layout) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(block, room(layout).size())
    }

    // SAFETY: 1. Every block is one of `Global`, of a size that depends on its room alone, which is
    // the same for each layout that fits. 2. It has no state that a move would change.
    unsafe impl Allocator for Roomy {
        fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
            self.stays(layout, layout)?;
            let block = Global.allocate(room(layout))?;
            self.given.fetch_add(block.len(), Ordering::Relaxed);
            // SAFETY: 1. The block is new and has this size.
            unsafe { block.cast::<u8>().write_bytes(DIRT, block.len()) };
            Ok(block)
        }

        unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
            self.given.fetch_sub(room(layout).size(), Ordering::Relaxed);
            // SAFETY: 1. The caller's promise: it was allocated with this room.
            unsafe { Global.deallocate(block, room(layout)) }
        }

        unsafe fn grow(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            if self.stays(old, new)? {
                return Ok(roomy(block, new));
            }
            let grown = self.allocate(new)?;
            // SAFETY: 1. The caller's promise: the block is in use and has the old size, which is
            // no larger than the new one. 2. They do not overlap.
            unsafe {
                ptr::copy_nonoverlapping(block.as_ptr(), grown.as_ptr().cast(), old.size());
                self.deallocate(block, old);
            }
            Ok(grown)
        }

        unsafe fn grow_zeroed(
            &self,
            block: NonNull<u8>,
            old: Layout,
            new: Layout,
        ) -> Result<NonNull<[u8]>, AllocError> {
            // SAFETY: 1. The caller's promise is for the same method; what it gave the block before
            // stays as it is, and the rest is cleared.
            unsafe {
                let grown = self.grow(block, old, new)?;
                let had = room(old).size();
                grown.cast::<u8>().add(had).write_bytes(0, grown.len() - had);
                Ok(grown)
            }
        }
    }

    fn tree() -> (Tree, Quota<Bytes>) {
        let mut schema = Schema::builder();
        let memory = schema.quota::<Bytes>("memory", "Memory of containers");
        (Tree::new(schema.build().expect("valid")).expect("room"), memory)
    }

    struct Block {
        at: NonNull<u8>,
        layout: Layout,
        group: usize,
        content: u8,
    }

    impl Block {
        /// The block must have its size and no more, and is filled.
        fn made(made: NonNull<[u8]>, layout: Layout, group: usize, content: u8) -> Block {
            assert_eq!(made.len(), layout.size());
            let at = made.cast::<u8>();
            assert_eq!(at.addr().get() % layout.align(), 0);
            // SAFETY: 1. It has this size, and nothing else uses it.
            unsafe { at.write_bytes(content, layout.size()) };
            Block { at, layout, group, content }
        }

        fn must_begin_with(block: NonNull<u8>, content: u8, size: usize) {
            // SAFETY: 1. The callers' blocks have at least this size.
            let all = unsafe { std::slice::from_raw_parts(block.as_ptr(), size) };
            assert!(all.iter().all(|&byte| byte == content));
        }
    }

    /// Groups by index, with the one above, and their limits.
    const GROUPS: [(&str, Option<usize>, usize); 5] = [
        ("/", None, 4_000),
        ("/a", Some(0), 3_000),
        ("/a/x", Some(1), 2_000),
        ("/a/y", Some(1), usize::MAX),
        ("/b", Some(0), 1_500),
    ];

    struct Ledger<'a> {
        memory: Quota<Bytes>,
        groups: [Group; GROUPS.len()],
        inner: &'a Roomy,
        held: [usize; GROUPS.len()],
        random: fastrand::Rng,
        blocks: Vec<Block>,
    }

    impl Ledger<'_> {
        fn up(group: usize) -> impl Iterator<Item = usize> {
            std::iter::successors(Some(group), |&at| GROUPS[at].1)
        }

        fn fits(&self, group: usize, more: usize) -> bool {
            more == 0 || Self::up(group).all(|at| self.held[at] + more <= GROUPS[at].2)
        }

        fn layout(&mut self, sizes: std::ops::RangeInclusive<usize>) -> Layout {
            let size =
                if self.random.u8(..) < 20 { *sizes.start() } else { self.random.usize(sizes) };
            Layout::from_size_align(size, 1 << self.random.u32(..9)).expect("valid")
        }

        fn alloc(&self, group: usize) -> GroupAlloc<&Roomy> {
            GroupAlloc::new_in(&self.groups[group], self.memory, self.inner)
        }

        /// Books a new block or a change of one, which must have been granted if it fits.
        fn book(&mut self, group: usize, more: isize, is_granted: bool, fails: bool) {
            let fits = more <= 0 || self.fits(group, more.unsigned_abs());
            assert_eq!(is_granted, fits && !fails, "{more} more for {}", GROUPS[group].0);
            if is_granted {
                Self::up(group)
                    .for_each(|at| self.held[at] = self.held[at].wrapping_add_signed(more));
            }
        }

        fn allocate(&mut self, fails: bool, zeroed: bool) {
            let (layout, group) = (self.layout(0..=600), self.random.usize(..GROUPS.len()));
            let alloc = self.alloc(group);
            let made = if zeroed { alloc.allocate_zeroed(layout) } else { alloc.allocate(layout) };
            self.book(group, layout.size().cast_signed(), made.is_ok(), fails);
            let Ok(made) = made else { return };
            if zeroed {
                Block::must_begin_with(made.cast(), 0, layout.size());
            }
            let content = self.random.u8(..);
            self.blocks.push(Block::made(made, layout, group, content));
        }

        fn resize(&mut self, at: usize, fails: bool, grows: bool, zeroed: bool) {
            let Block { at: block, layout: old, group, content } = self.blocks.swap_remove(at);
            let sizes = if grows { old.size()..=old.size() + 300 } else { 0..=old.size() };
            let (new, alloc) = (self.layout(sizes), self.alloc(group));
            // SAFETY: 1. The block is in use, its layout fits, and the new size is as required.
            let made = unsafe {
                match (grows, zeroed) {
                    (true, true) => alloc.grow_zeroed(block, old, new),
                    (true, false) => alloc.grow(block, old, new),
                    (false, _) => alloc.shrink(block, old, new),
                }
            };
            let more = new.size().cast_signed() - old.size().cast_signed();
            self.book(group, more, made.is_ok(), fails);
            let (now, layout) = made.map_or((block, old), |made| (made.cast(), new));
            Block::must_begin_with(now, content, old.size().min(layout.size()));
            if grows && zeroed && made.is_ok() {
                // SAFETY: 1. The block is at least as large.
                let more = unsafe { now.add(old.size()) };
                Block::must_begin_with(more, 0, new.size() - old.size());
            }
            let now =
                NonNull::slice_from_raw_parts(now, made.map_or(old.size(), |made| made.len()));
            self.blocks.push(Block::made(now, layout, group, content.wrapping_add(1)));
        }

        fn free(&mut self, at: usize) {
            let Block { at: block, layout, group, content } = self.blocks.swap_remove(at);
            Block::must_begin_with(block, content, layout.size());
            // SAFETY: 1. The block is in use, and its layout fits.
            unsafe { self.alloc(group).deallocate(block, layout) };
            self.book(group, -layout.size().cast_signed(), true, false);
        }

        fn must_agree(&self) {
            let current = |group: &Group| group.usage(self.memory).current as usize;
            assert_eq!(self.groups.each_ref().map(current), self.held);
        }
    }

    /// A block is granted if it fits every limit and the inner allocator has it, and in no other
    /// case; usage is what blocks have, to the byte, after each operation.
    #[test]
    fn usage_and_refusals_are_those_of_a_ledger() {
        let ((tree, memory), inner) = (tree(), Roomy::default());
        let groups = GROUPS.map(|(path, _, limit)| {
            let group =
                if path == "/" { Ok(tree.root().clone()) } else { tree.get_or_create(path) };
            let group = group.expect("room");
            group.set_limit(memory, Some(limit as u64).filter(|&limit| limit < u64::MAX));
            group
        });
        let (held, random) = ([0; GROUPS.len()], fastrand::Rng::with_seed(1));
        let mut ledger = Ledger { memory, groups, inner: &inner, held, random, blocks: Vec::new() };
        for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
            let [fails, zeroed] = [ledger.random.u8(..8) == 0, ledger.random.bool()];
            inner.fails(fails);
            let at = ledger.random.usize(..ledger.blocks.len().max(1));
            match ledger.random.u8(..10) {
                _ if ledger.blocks.is_empty() => ledger.allocate(fails, zeroed),
                0..4 => ledger.allocate(fails, zeroed),
                4..6 => ledger.resize(at, fails, true, zeroed),
                6..8 => ledger.resize(at, fails, false, zeroed),
                _ => ledger.free(at),
            }
            ledger.must_agree();
        }
        while !ledger.blocks.is_empty() {
            ledger.free(0);
        }
        ledger.must_agree();
        assert_eq!((tree.root().usage(memory).current, inner.given()), (0, 0));
        assert!(cfg!(miri) || tree.root().usage(memory).refused > 0, "it was near its limit");
    }

    /// A table uses all that its block has, and frees that much: it is charged for it.
    #[test]
    fn a_table_gets_no_more_than_it_is_charged() {
        let ((tree, memory), inner) = (tree(), Roomy::default());
        tree.root().set_limit(memory, Some(if cfg!(miri) { 500 } else { 3_000 }));
        let alloc = GroupAlloc::new_in(tree.root(), memory, &inner);
        let mut table: HashMap<u32, u8, _, _> =
            HashMap::with_hasher_in(DefaultHashBuilder::default(), &alloc);
        let mut most = 0;
        for key in 0..1_000 {
            if table.try_reserve(1).is_err() {
                break;
            }
            table.insert(key, 0);
            let usage = tree.root().usage(memory);
            assert_eq!(usage.current as usize, table.allocation_size());
            most = most.max(usage.current);
        }
        assert!((1..1_000).contains(&table.len()) && most > 200, "{} by {most}", table.len());
        drop(table);
        assert_eq!((tree.root().usage(memory).current, inner.given()), (0, 0));
    }

    /// Nothing is no memory, even for a group over its limit or killed.
    #[test]
    fn a_block_without_size_is_never_refused() {
        let (tree, memory) = tree();
        let web = tree.create("/web").expect("room");
        let held = tree.root().try_charge(memory, 60).expect("no limit");
        tree.root().set_limit(memory, Some(50));
        let alloc = GroupAlloc::new(&web, memory);
        let empty = Layout::new::<()>();
        for _ in 0..2 {
            let block = alloc.allocate(empty).expect("it takes nothing");
            assert!(alloc.allocate(Layout::new::<u8>()).is_err());
            // SAFETY: 1. The block is in use, with this layout.
            unsafe { alloc.deallocate(block.cast(), empty) };
            let _ = web.kill();
        }
        assert_eq!(tree.root().usage(memory).current, 60);
        drop(held);
    }

    /// A request that no allocator can serve is charged for no longer than it is asked. Miri ends
    /// when its memory does, and refuses nothing.
    #[cfg(not(miri))]
    #[test]
    fn what_inner_refuses_is_given_back() {
        let (tree, memory) = tree();
        let alloc = GroupAlloc::new(tree.root(), memory);
        let huge = Layout::from_size_align(isize::MAX as usize, 1).expect("valid");
        assert!(alloc.allocate(huge).is_err() && alloc.allocate_zeroed(huge).is_err());
        assert_eq!(tree.root().usage(memory).current, 0);
        assert_eq!(tree.root().usage(memory).refused, 0, "by no limit");
    }
}
