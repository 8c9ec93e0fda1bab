//! Work of rayon's pools in a group. For parallel iterators, use [`Group::bind`] on the closure.

use rayon::Scope;

use crate::group::Group;

/// Runs both functions, perhaps at once, each in `group` on whichever thread it ends up.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree, switch};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.get_or_create("/acme/web")?;
/// let (left, right) = switch::join_in(&web, switch::current, switch::current);
/// assert_eq!((left.as_ref(), right.as_ref()), (Some(&web), Some(&web)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn join_in<A, B, RA, RB>(group: &Group, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    rayon::join(|| group.run(a), || group.run(b))
}

/// Spawns a function into `scope` that runs in `group`.
///
/// While a thread waits inside of rayon, it may run other jobs, in their own groups.
///
/// # Examples
/// ```
/// use submeter::{Schema, Tree, switch};
///
/// let tree = Tree::new(Schema::builder().build()?)?;
/// let web = tree.create("/web")?;
/// rayon::scope(|scope| {
///     switch::scope_spawn_in(scope, &web, |_| assert!(switch::current().is_some()));
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg_attr(debug_assertions, track_caller)]
pub fn scope_spawn_in<'scope, F>(scope: &Scope<'scope>, group: &Group, work: F)
where
    F: FnOnce(&Scope<'scope>) + Send + 'scope,
{
    let group = group.clone();
    scope.spawn(move |scope| group.run(|| work(scope)));
}
