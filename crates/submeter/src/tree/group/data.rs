//! The program's own value of a group.

use std::any::Any;
use std::sync::Arc;

use super::Group;
use crate::error::Error;
use crate::tree::extras::NoData;

impl Group {
    /// Returns what the program keeps for this group, such as a tenant's items; `make` makes it at
    /// the first use. If several threads want it at once, one makes it and the others wait.
    ///
    /// The group owns the value until it is [killed](Group::kill). Then the value goes to the
    /// group's [`Killed`](crate::Killed), and is dropped with the last reference. It may hold
    /// handles and charges of its group: deleting a tenant deletes its data and gives back what
    /// that is charged with, as soon as the tenant's connections and tasks have ended. A new group
    /// of the same name starts without a value.
    ///
    /// It must not hold the [`Tree`](crate::Tree), whose drop kills the groups, and each reference
    /// keeps it: hold none in a table of your own. For a value that changes, make a `Mutex` or an
    /// atomic.
    ///
    /// The first use allocates four times. Groups without a value take no memory for it. Later uses
    /// cost as much as [`data`](Group::data).
    ///
    /// # Examples
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::{Arc, Mutex};
    /// use submeter::{Bytes, Charge, Group, Quota, Schema, Tree};
    ///
    /// struct Db {
    ///     group: Group,
    ///     items: Mutex<HashMap<String, (String, Charge)>>,
    /// }
    ///
    /// let mut schema = Schema::builder();
    /// let memory: Quota<Bytes> = schema.quota("memory", "Memory of items");
    /// let tree = Tree::new(schema.build()?)?;
    ///
    /// let login = |name: &str| {
    ///     let group = tree.root().get_or_create_child(name)?;
    ///     group.data_or_init(|| {
    ///         group.set_limit(memory, Some(1000));
    ///         Db { group: group.clone(), items: Mutex::default() }
    ///     })
    /// };
    /// let db = login("acme")?;
    /// assert!(Arc::ptr_eq(&db, &login("acme")?));
    /// let charge = db.group.try_charge(memory, 5)?;
    /// db.items.lock().unwrap().insert("key".to_owned(), ("value".to_owned(), charge));
    ///
    /// let killed = db.group.kill()?;
    /// drop(db); // with the last connection
    /// killed.released_blocking(std::time::Duration::from_secs(1))?;
    /// assert_eq!(tree.root().usage(memory).current, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the group was killed, or has a value of another type.
    ///
    /// # Panics
    /// In a forked child, if another thread was making the value during the fork. A panic of `make`
    /// reaches the caller, and the next one makes the value. If `make` asks for this group's value,
    /// or kills this group, it waits for itself.
    pub fn data_or_init<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> T,
    ) -> Result<Arc<T>, Error> {
        if let Some(data) = self.data() {
            return Ok(data);
        }
        let children = self.inner.children.read();
        // With `children` locked the group is killed before or after. If after, the killer finds
        // the room, and what is in it.
        if !self.is_killed() {
            self.inner.extras.make_room_for_data();
        }
        drop(children);
        let data = self.inner.extras.data_or_init(|| self.is_killed(), make);
        data.map_err(|none| match none {
            NoData::Killed => Error::killed(self.path()),
            NoData::OtherType => Error::other_type(self.path()),
        })
    }

    /// Returns the value that [`data_or_init`](Group::data_or_init) made, if it is a `T`: without a
    /// lock, by an add to its reference count. Keep it for a connection's or a task's lifetime:
    /// CPUs that take and drop it at the same time wait for each other's cache.
    ///
    /// Of a killed group it returns the value as long as anything else holds it.
    #[must_use]
    pub fn data<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.inner.extras.data()
    }
}
