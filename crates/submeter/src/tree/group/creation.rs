//! Hooks that set groups up before a lookup can find them.

use std::sync::{Arc, Weak};

use submeter_percpu::process_lock::ProcessRwLock;

use super::Group;

/// Sets groups up as they are created, such as their limits: see
/// [`Tree::on_create`](crate::Tree::on_create).
///
/// # Examples
/// A limit for the tenant of this name, each time it comes back:
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
    /// Sets `group` up and calls `publish`, after which others can find it. Without that call the
    /// group is published when this returns.
    ///
    /// To follow limits that change, such as those of a file, read them under a lock and hold it
    /// until `publish` has returned. A thread that changes a limit and then looks for the group
    /// either finds it, or the group will be created with the new limit.
    ///
    /// The children of the group's parent are locked meanwhile: this must not create, kill or list
    /// them, nor flush the tree or take a snapshot, nor drop the last handle of the tree. Setting a
    /// limit may wake charges that wait in the tree: a waker must not take a lock that another
    /// thread holds while it creates a group, or both wait forever. A panic before `publish`
    /// prevents the creation; after it the group exists. In both cases the panic reaches the
    /// caller that wanted the group.
    fn create(&self, group: &Group, publish: &mut dyn FnMut());
}

/// A closure sets a group up; the group is published when it returns.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use submeter::{Bytes, Group, Schema, Tree};
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory held");
/// let tree = Tree::new(schema.build()?)?;
/// let limits = Arc::new(move |group: &Group| {
///     group.set_limit(memory, Some(1000));
/// });
/// tree.on_create(&limits);
/// assert_eq!(tree.create("/acme")?.usage(memory).limit, Some(1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<F: Fn(&Group) + Send + Sync> OnCreate for F {
    fn create(&self, group: &Group, _: &mut dyn FnMut()) {
        self(group);
    }
}

/// The hooks of one tree.
#[derive(Default)]
pub(crate) struct OnCreateAll(ProcessRwLock<Vec<Weak<dyn OnCreate>>>);

impl OnCreateAll {
    pub(crate) fn add(&self, hook: Weak<dyn OnCreate>) {
        let mut hooks = self.0.write();
        hooks.retain(|hook| hook.strong_count() > 0);
        hooks.push(hook);
    }

    /// Calls all hooks to set a group up, one within the other, and then publishes it.
    pub(crate) fn create(&self, group: &Group, publish: &mut dyn FnMut()) {
        // Called after the lock is released: a hook that adds another would wait for itself.
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
            // Set last: if another hook panics and this one catches it, the group is still to be
            // published.
            is_published = true;
        }
    };
    hook.create(group, &mut once);
    once();
}
