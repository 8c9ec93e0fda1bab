//! What programs set for a group: its weight, its limit, and the limit's mode.

use submeter_percpu::LimitMode;

use super::{Fair, Node};
use crate::admission::parts::{Setting, State};
use crate::tree::group::Group;

impl Node {
    /// Whether its limit is reached. A soft limit only counts that.
    pub(super) fn is_full(&self) -> bool {
        self.limit.is_some_and(|most| self.place.in_flight >= most)
    }

    /// Whether its limit lets one more be in flight.
    pub(super) fn has_room(&self) -> bool {
        self.mode == LimitMode::Soft || !self.is_full()
    }
}

impl Fair {
    /// Changes a group's weight, its limit on work in flight in it and below, or the limit's mode.
    pub(in crate::admission) fn configure(
        &mut self,
        group: &Group,
        setting: Setting,
        watch: &mut dyn FnMut(&Group) -> Option<u64>,
    ) {
        let at = self.node(group, watch);
        // In a group that is gone, nothing would ever remove the setting.
        if self.nodes[at].kept.is_some() {
            match setting {
                Setting::Weight(weight) => self.set_weight(at, weight),
                Setting::Limit(limit) => self.set_limit(at, limit),
                Setting::Mode(mode) => self.nodes[at].mode = mode,
            }
        }
        self.settle(at);
    }

    pub(super) fn set_limit(&mut self, at: usize, limit: Option<u32>) {
        self.note_close();
        let before = std::mem::replace(&mut self.nodes[at].limit, limit);
        self.limited -= usize::from(before.is_some());
        self.limited += usize::from(limit.is_some());
        if limit.is_none() {
            self.nodes[at].overdrafts = 0;
        }
    }

    /// Returns a group's settings, and the number of waiters in it and below.
    pub(in crate::admission) fn state(&self, group: &Group) -> State {
        let node = self.places.get(&group.id()).map(|&at| &self.nodes[at]);
        node.map_or_else(State::default, |node| State {
            weight: node.weight,
            limit: node.limit,
            mode: node.mode,
            overdrafts: node.overdrafts,
            waiting: node.waiting,
        })
    }
}
