//! Tasks that follow their spawner's group although the spawning code does not mention it. It uses
//! tokio's hooks behind `--cfg tokio_unstable`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Builder;
use tokio::task::Id;

use super::Entered;
use crate::tree::group::Group;

/// Makes each task of a runtime run in the group in which it was spawned, whether by
/// `tokio::spawn`, a `JoinSet` or a `TaskTracker`. Covers tasks that libraries spawn, whose code
/// names no group.
///
/// Exists where tokio's unstable hooks do, with `--cfg tokio_unstable` in `RUSTFLAGS`, and takes
/// all four of them: `on_task_spawn`, `on_before_task_poll`, `on_after_task_poll` and
/// `on_task_terminate`. A program's own hooks would be replaced, or would replace these.
///
/// A poll costs two switches and a lookup in a map that all workers share; spawning a task, and its
/// end, cost a change of that map. Where the spawning is in your own code, [`spawn`](super::spawn)
/// costs less. Not followed: `spawn_blocking`, `spawn_local` and the runtime's `block_on` (use
/// [`inherit`] and [`spawn_local`](super::spawn_local) for those), and whatever a task drops when
/// it is aborted. A task spawned outside of all groups runs in its thread's group, which is mostly
/// none.
///
/// [`inherit`]: super::inherit
///
/// # Examples
/// ```
/// use submeter::switch::{self, InGroup};
/// use submeter::{Schema, Tree};
///
/// let mut builder = tokio::runtime::Builder::new_multi_thread();
/// let runtime = switch::follow_tasks(&mut builder).build()?;
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.get_or_create("/acme/web")?;
/// // In a library that knows nothing of groups.
/// let handler = async { tokio::spawn(async { switch::current() }).await };
/// assert_eq!(runtime.block_on(handler.in_group(&web))?, Some(web));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn follow_tasks(builder: &mut Builder) -> &mut Builder {
    let spawned = Arc::new(Tasks::default());
    let (polled, ended) = (Arc::clone(&spawned), Arc::clone(&spawned));
    builder
        .on_task_spawn(move |task| {
            if let Some(group) = super::current() {
                spawned.insert(task.id(), group);
            }
        })
        .on_before_task_poll(move |task| begin_poll(polled.get(task.id())))
        .on_after_task_poll(|_| end_poll())
        .on_task_terminate(move |task| ended.remove(task.id()))
}

/// Number of maps: workers that poll at the same time seldom meet in one.
const SHARDS: usize = 64;

/// The groups of tasks that were spawned in one and have not ended.
struct Tasks {
    hasher: RandomState,
    shards: [Mutex<HashMap<Id, Group>>; SHARDS],
}

impl Default for Tasks {
    fn default() -> Tasks {
        let shard = |_| Mutex::new(HashMap::new());
        Tasks { hasher: RandomState::new(), shards: std::array::from_fn(shard) }
    }
}

impl Tasks {
    fn shard(&self, id: Id) -> MutexGuard<'_, HashMap<Id, Group>> {
        let shard = &self.shards[self.hasher.hash_one(id) as usize % SHARDS];
        // Nothing in here panics halfway.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, id: Id, group: Group) {
        self.shard(id).insert(id, group);
    }

    fn get(&self, id: Id) -> Option<Group> {
        self.shard(id).get(&id).cloned()
    }

    fn remove(&self, id: Id) {
        let group = self.shard(id).remove(&id);
        // After the lock is released: dropping a handle may be the end of a group.
        drop(group);
    }
}

thread_local! {
    /// One for each poll under way, the innermost last: a task may run another runtime.
    static POLLS: RefCell<Vec<Option<Entered>>> = const { RefCell::new(Vec::new()) };
}

fn begin_poll(group: Option<Group>) {
    let entered = group.map(|group| group.enter());
    // Without the thread's values the guard ends here: work this late is in no group.
    let _ = POLLS.try_with(|polls| polls.borrow_mut().push(entered));
}

fn end_poll() {
    let entered = POLLS.try_with(|polls| polls.borrow_mut().pop());
    // Outside of the borrow, as in `remove`.
    drop(entered);
}
