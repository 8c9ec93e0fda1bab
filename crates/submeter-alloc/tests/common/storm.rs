//! Threads that allocate in groups that live and die, and resize and free what others allocated.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use submeter::{Group, Tree};

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
    // Each with the thread that had it last.
    let lists: Vec<Mutex<(usize, Vec<Block>)>> =
        (0..THREADS).map(|at| Mutex::new((at, Vec::with_capacity(held)))).collect();
    let ended = [const { AtomicBool::new(false) }; THREADS];
    let (passed_on, killed) = (Witness::new(), Witness::new());
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
            let (lists, place, flush, ended) = (&lists, &place, &flush, &ended);
            let (passed_on, killed) = (&passed_on, &killed);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                let mut own: Vec<Block> = Vec::with_capacity(held);
                let rounds = (operations / THREADS / ROUND) as u64;
                for round in (0..).take_while(|&round| passed_on.goes_on(round, rounds)) {
                    let name = format!("/storm/t{}", random.u32(..20));
                    let group = tree.get_or_create(&name).expect("room");
                    let at = place(&group);
                    group.run(|| (0..ROUND).for_each(|_| change_one(&mut own, at, &mut random)));
                    let mut list = lists[random.usize(..THREADS)].lock().expect("whole");
                    // Relaxed: a thread that seems to run has just ended.
                    let runs = list.0 != thread && !ended[list.0].load(Ordering::Relaxed);
                    passed_on.met(runs && !list.1.is_empty());
                    list.0 = thread;
                    std::mem::swap(&mut own, &mut list.1);
                    drop(list);
                    if random.u32(..LIVES) == 0 {
                        killed.met(group.kill().is_ok());
                    }
                    if round % 64 == 0 {
                        flush();
                    }
                }
                // Relaxed: as above.
                ended[thread].store(true, Ordering::Relaxed);
                lists[thread].lock().expect("whole").1.append(&mut own);
            });
        }
    });
    passed_on.assert_met();
    killed.assert_met();
    let (all, _) = groups.into_inner().expect("whole");
    let left = lists.into_iter().flat_map(|list| list.into_inner().expect("whole").1).collect();
    (left, all)
}
