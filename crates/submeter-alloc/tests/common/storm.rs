//! Threads that allocate in groups that live and die, and resize and free what others allocated.

use std::collections::HashMap;
use std::sync::Mutex;
use std::thread;

use submeter::{Group, Tree};

use crate::lists::Lists;
use crate::witness::Witness;

/// A block, and the index of its group in the list of all groups that ever existed.
pub(crate) type Block = (Vec<u8>, usize);

/// Allocates, grows, shrinks or frees one of these blocks, for the group at an index in the list.
pub(crate) type ChangeOne = fn(&mut Vec<Block>, usize, &mut fastrand::Rng);

/// Makes threads change blocks below `/storm`, each in a list with room for `held` blocks. Returns
/// the remaining blocks, and the list of groups.
///
/// # Panics
/// When no thread was given what a thread that still runs has allocated, or no group was killed.
pub(crate) fn storm(
    tree: &Tree,
    flush: impl Fn() + Sync,
    (held, change_one): (usize, ChangeOne),
    operations: usize,
) -> (Vec<Block>, Vec<Group>) {
    const THREADS: usize = 4;
    const ROUND: usize = if cfg!(miri) { 40 } else { 100 };
    /// One in this many rounds ends with its group.
    const LIVES: u32 = if cfg!(miri) { 5 } else { 50 };
    let (lists, killed) = (Lists::new(THREADS, held), Witness::new());
    let groups: Mutex<(Vec<Group>, HashMap<Group, usize>)> = Mutex::default();
    let place = |group: &Group| {
        let (all, known) = &mut *groups.lock().expect("whole");
        *known.entry(group.clone()).or_insert_with(|| {
            all.push(group.clone());
            all.len() - 1
        })
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (lists, killed, place, flush) = (&lists, &killed, &place, &flush);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                let mut own: Vec<Block> = Vec::with_capacity(held);
                for round in lists.rounds(operations / THREADS / ROUND) {
                    let name = format!("/storm/t{}", random.u32(..20));
                    let group = tree.get_or_create(&name).expect("room");
                    let at = place(&group);
                    group.run(|| (0..ROUND).for_each(|_| change_one(&mut own, at, &mut random)));
                    lists.exchange(thread, &mut own, &mut random);
                    if random.u32(..LIVES) == 0 {
                        killed.met(group.kill().is_ok());
                    }
                    if round % 64 == 0 {
                        flush();
                    }
                }
                lists.end(thread, own);
            });
        }
    });
    killed.assert_met();
    let (all, _) = groups.into_inner().expect("whole");
    (lists.left(), all)
}
