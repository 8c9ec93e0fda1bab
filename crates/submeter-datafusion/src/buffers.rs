//! Arrow's pool for buffers.

use std::fmt;

use arrow_buffer::{MemoryPool, MemoryReservation};
use submeter::{Bytes, Charge, Group, Quota};

use crate::levels;

/// Arrow's memory pool for one group: buffers that are claimed for it count in the group until the
/// last array that shares them is dropped, wherever it is held.
///
/// Arrow cannot refuse: each claim is charged in any case, and counts as an overdraft of limits
/// that it exceeds. To let a query be refused, first reserve with its
/// [`GroupPool`](crate::GroupPool).
///
/// # Examples
/// ```
/// use arrow_buffer::{Buffer, MemoryPool};
/// use submeter::{Bytes, Schema, Tree};
/// use submeter_datafusion::GroupBuffers;
///
/// let mut schema = Schema::builder();
/// let memory = schema.quota::<Bytes>("memory", "Memory of buffers");
/// let tree = Tree::new(schema.build()?)?;
/// let acme = tree.create("/acme")?;
/// acme.set_limit(memory, Some(4096));
///
/// let buffers = GroupBuffers::new(&acme, memory);
/// let buffer = Buffer::from(vec![0_u8; 1024]);
/// buffer.claim(&buffers);
/// let shared = buffer.slice(512); // the same memory: counted once
/// shared.claim(&buffers);
/// assert_eq!((acme.usage(memory).current, buffers.available()), (1024, 3072));
///
/// drop(buffer);
/// assert_eq!(buffers.used(), 1024, "it is shared");
/// drop(shared);
/// assert_eq!(buffers.used(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct GroupBuffers {
    group: Group,
    quota: Quota<Bytes>,
}

struct Reserved {
    quota: Quota<Bytes>,
    charge: Charge,
}

impl GroupBuffers {
    /// Creates a pool that charges this group.
    ///
    /// # Panics
    /// When the quota belongs to another tree's schema.
    #[must_use]
    pub fn new(group: &Group, quota: Quota<Bytes>) -> GroupBuffers {
        let _checked = group.usage(quota);
        GroupBuffers { group: group.clone(), quota }
    }
}

impl MemoryPool for GroupBuffers {
    fn reserve(&self, size: usize) -> Box<dyn MemoryReservation> {
        let charge = self.group.charge_forced(self.quota, size as u64);
        Box::new(Reserved { quota: self.quota, charge })
    }

    fn available(&self) -> isize {
        let left = levels::limits(&self.group, self.quota).map_or(i128::MAX, |(_, left)| left);
        let nearest = if left < 0 { isize::MIN } else { isize::MAX };
        isize::try_from(left).unwrap_or(nearest)
    }

    fn used(&self) -> usize {
        usize::try_from(self.group.usage(self.quota).current).unwrap_or(usize::MAX)
    }

    fn capacity(&self) -> usize {
        let limit = levels::limits(&self.group, self.quota).map_or(u64::MAX, |(limit, _)| limit);
        usize::try_from(limit).unwrap_or(usize::MAX)
    }
}

impl MemoryReservation for Reserved {
    fn size(&self) -> usize {
        self.charge.amount() as usize
    }

    fn resize(&mut self, size: usize) {
        match (size as u64).checked_sub(self.charge.amount()) {
            Some(more) => {
                let more = self.charge.group().charge_forced(self.quota, more);
                self.charge.merge(more);
            }
            None => self.charge.resize(size as u64).expect("less is never refused"),
        }
    }
}

impl fmt::Debug for GroupBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GroupBuffers({})", self.group.path())
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.charge.fmt(f)
    }
}
