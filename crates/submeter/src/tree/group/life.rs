//! How groups end: they leave the tree at once, and are released with the last handle.

use std::sync::atomic::Ordering;

use submeter_percpu::PercpuOwner;
use submeter_percpu::percpu_ref::Writing;

use super::ends::Ends;
use super::{Group, GroupInner};
use crate::error::Error;
use crate::tree::children::ChildKey;
use crate::tree::killed::Killed;

impl Group {
    /// Takes the group out of the tree. Its name is free at once, lookups no longer find it, and
    /// its counts stay in every ancestor. So does the last value of a gauge: if it was
    /// [set](Group::set), set it to 0. Other handles and charges keep working; their later counts
    /// are added to the ancestors as well. When the last of them is dropped, the group is
    /// *released*: wait for that with the returned [`Killed`], or drop it.
    ///
    /// Tasks that wait for the kill ([`killed`](Group::killed)) or for a [charge](Group::charge) of
    /// this group are woken and stop waiting.
    ///
    /// Costs one barrier: some tens of microseconds where other CPUs run threads of this process.
    /// Once the last handle is gone, the next flush reads what the group has counted and frees its
    /// memory for reuse. Without flushes, the thread that releases the 256th such group does that.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.create("/web")?;
    /// let killed = web.kill()?;
    /// assert!(!killed.is_released(), "`web` still holds it");
    /// drop(web);
    /// assert!(killed.is_released());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the group is the root, has children, or was killed before.
    pub fn kill(&self) -> Result<Killed, Error> {
        let parent = self.inner.parent.as_ref().ok_or_else(Error::root)?;
        // Parent before child, as everywhere: creating a child holds only one of them.
        let mut siblings = parent.inner.children.write();
        let children = self.inner.children.write();
        if !children.is_empty() {
            return Err(Error::busy(self.path(), children.len()));
        }
        let owner = self.take_from(parent, &mut siblings)?;
        drop((siblings, children));
        let mut ends = Ends::of(self);
        ends.add(self);
        owner.kill();
        drop(ends);
        Ok(Killed::new(owner, self.id(), self.inner.extras.take_data()))
    }

    /// Returns whether the group was killed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        // Relaxed: a hint by nature, as the group may be killed right afterwards. A caller that
        // holds a lock sees a kill if the killer has since released that lock.
        self.inner.dead.load(Ordering::Relaxed)
    }

    /// Takes the group and everything below it out of the tree as [`kill`](Group::kill) does,
    /// behind one barrier, and returns the killed groups, this one last. From the start, lookups
    /// find none of them and nothing can be created below. The name of the topmost group is free at
    /// once.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// tree.get_or_create("/acme/web")?;
    /// let acme = tree.get("/acme").expect("made with its child");
    ///
    /// let killed = acme.kill_subtree()?;
    /// assert_eq!(killed.iter().map(|k| k.path()).collect::<Vec<_>>(), ["/acme/web", "/acme"]);
    /// assert!(tree.get("/acme").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the group is the root or was killed before.
    pub fn kill_subtree(&self) -> Result<Vec<Killed>, Error> {
        let parent = self.inner.parent.as_ref().ok_or_else(Error::root)?;
        let owner = {
            let mut siblings = parent.inner.children.write();
            let _children = self.inner.children.write();
            self.take_from(parent, &mut siblings)?
        };
        let mut ends = Ends::of(self);
        let mut killed = self.take_below(&mut ends);
        killed.push(Killed::new(owner, self.id(), self.inner.extras.take_data()));
        PercpuOwner::kill_many(killed.iter().map(|killed| &killed.owner));
        drop(ends);
        Ok(killed)
    }

    /// Clones the handle unless the group was killed. Certain to fail once the kill has returned.
    ///
    /// For programs that keep groups in a table of their own, where killed ones may linger. Testing
    /// [`is_killed`](Group::is_killed) first is not enough: the kill could come between the test
    /// and the clone.
    ///
    /// # Examples
    /// ```
    /// use submeter::{Schema, Tree};
    ///
    /// let tree = Tree::new(Schema::builder().build()?)?;
    /// let web = tree.create("/web")?;
    /// assert!(web.try_clone_live().is_some());
    /// web.kill()?;
    /// assert!(web.try_clone_live().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_clone_live(&self) -> Option<Group> {
        Some(Group { inner: self.inner.try_clone_live()? })
    }

    /// Kills everything below and then `root`, behind one barrier.
    pub(crate) fn kill_tree(&self, root: &PercpuOwner<GroupInner>) {
        let mut ends = Ends::of(self);
        let below = self.take_below(&mut ends);
        PercpuOwner::kill_many(below.iter().map(|killed| &killed.owner).chain([root]));
        drop(ends);
        drop(self.inner.extras.take_data());
    }

    /// Marks this group dead and removes it from its parent's children. Its own children must be
    /// locked as well.
    fn take_from(
        &self,
        parent: &Group,
        siblings: &mut Writing<'_, GroupInner>,
    ) -> Result<PercpuOwner<GroupInner>, Error> {
        // Relaxed: guarded by `children`, see the field.
        if self.inner.dead.swap(true, Ordering::Relaxed) {
            return Err(Error::killed(self.path()));
        }
        let sought = ChildKey::new(parent.path(), self.name());
        let owner = siblings.remove(sought.hash, |path| sought.is(path));
        owner.ok_or_else(|| Error::killed(self.path()))
    }

    /// Marks this group and everything below dead, without recursion, and takes the groups below
    /// out of the tree: children before their parents.
    fn take_below(&self, ends: &mut Ends<'_>) -> Vec<Killed> {
        let mut killed: Vec<Killed> = Vec::new();
        let mut stack = vec![(self.clone(), None)];
        while let Some((group, place)) = stack.pop() {
            let mut children = group.inner.children.write();
            // Relaxed: guarded by `children`, see the field.
            group.inner.dead.store(true, Ordering::Relaxed);
            let below = children.take().into_iter().filter_map(|owner| {
                let inner = owner.try_clone_live()?;
                Some((owner, Group { inner }))
            });
            let mut below: Vec<_> = below.collect();
            drop(children);
            // Sorted by their words, so that words are given back in order. The table has them in
            // any order: each page of words would then be given back separately, and only with its
            // last group.
            below.sort_unstable_by_key(|(_, child)| child.inner.stats.id());
            for (owner, child) in below {
                let id = child.id();
                stack.push((child, Some(killed.len())));
                killed.push(Killed::new(owner, id, None));
            }
            if let Some(place) = place {
                killed[place].set_data(group.inner.extras.take_data());
            }
            ends.add(&group);
        }
        // Found from the top down.
        killed.reverse();
        killed
    }
}
