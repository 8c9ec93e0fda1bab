//! What a program does with groups before anybody finds them.

use std::sync::{Arc, Weak};

use submeter_percpu::process_lock::ProcessRwLock;

use super::Group;

/// Sets groups up as they are created, such as their limits: see
/// [`Tree::on_create`](crate::Tree::on_create).
///
/// # Examples
/// A limit that holds for a tenant of this name whenever it comes back:
/// ```
/// use std::sync::Arc;
/// use submeter::{Bytes, Group, OnCreate, Quota, Schema, Tree};
///
/// struct Limits(Quota<Bytes>);
///
/// impl OnCreate for Limits {
///     fn create(&self, group: &Group, publish: &mut dyn FnMut()) {
///         if group.path() == "/acme" {
///             group.set_limit(self.0, Some(1000));
///         }
///         publish();
///     }
/// }
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory held");
/// let tree = Tree::new(schema.build()?)?;
/// let limits = Arc::new(Limits(memory));
/// tree.on_create(&limits);
/// for _ in 0..3 {
///     let acme = tree.create("/acme")?;
///     assert!(acme.try_charge(memory, 1001).is_err());
///     acme.kill()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait OnCreate: Send + Sync {
    /// Sets `group` up and calls `publish`, after which others find it. Where it does not, the
    /// group is published when this returns.
    ///
    /// What changes at other times, as a limit of a file that is read again, is read under a lock
    /// that is held until `publish` has returned. Who changes it, and looks for the group after
    /// that, finds it, or it will be created with what is new.
    ///
    /// The children of the group's parent are locked meanwhile: this must not create, kill or list
    /// them, nor flush the tree or take a snapshot, nor drop the last handle of the tree. To set a
    /// limit may wake charges that wait in the tree: a waker that takes a lock under which others
    /// create groups would wait for ever. If it panics before it has published, the group is not
    /// created; after that it is, and whoever created it has the panic.
    fn create(&self, group: &Group, publish: &mut dyn FnMut());
}

/// Those of one tree.
#[derive(Default)]
pub(crate) struct OnCreateAll(ProcessRwLock<Vec<Weak<dyn OnCreate>>>);

impl OnCreateAll {
    pub(crate) fn add(&self, hook: Weak<dyn OnCreate>) {
        let mut hooks = self.0.write();
        hooks.retain(|hook| hook.strong_count() > 0);
        hooks.push(hook);
    }

    /// Has all of them set a group up, one within the other, and then publishes it.
    pub(crate) fn create(&self, group: &Group, publish: &mut dyn FnMut()) {
        // Called without the lock: one that adds another would wait for itself.
        let hooks: Vec<_> = self.0.read().iter().filter_map(Weak::upgrade).collect();
        nest(&hooks, group, publish);
    }
}

fn nest(hooks: &[Arc<dyn OnCreate>], group: &Group, publish: &mut dyn FnMut()) {
    let Some((hook, others)) = hooks.split_first() else { return publish() };
    let mut is_published = false;
    let mut once = || {
        if !is_published {
            nest(others, group, publish);
            // Last: a panic of another that this one catches is no reason to pass it over.
            is_published = true;
        }
    };
    hook.create(group, &mut once);
    once();
}
