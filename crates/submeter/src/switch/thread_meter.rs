//! Counts that a thread keeps anyway, such as an allocator's, charged to the group that it leaves.

use crate::metric::schema::{Metering, THREAD_COUNTS};
use crate::tree::group::Group;

impl Metering {
    /// Starts an interval.
    pub(super) fn mark(&self, last: &mut [u64; THREAD_COUNTS]) {
        *last = self.counts();
    }

    /// Ends an interval: charges `group` with the increase. The next one begins.
    #[inline]
    pub(super) fn charge(&self, group: &Group, last: &mut [u64; THREAD_COUNTS]) {
        let now = self.counts();
        if now == *last {
            return;
        }
        for ((counter, now), last) in self.counters().iter().zip(now).zip(*last) {
            let gained = now.wrapping_sub(last);
            if let &Some((key, batch_mask)) = counter
                && gained != 0
            {
                group.add_gained(key, gained, batch_mask);
            }
        }
        *last = now;
    }
}
