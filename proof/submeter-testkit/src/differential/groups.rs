//! Operations on groups: create, find, kill, and wait for release.

use std::time::Duration;

use submeter::{Error, Group, Killed};

use super::Differential;
use crate::op::picked;
use crate::oracle::{Id, Refused};

/// Maximum number of killed groups that wait for a check.
const KILLED_MAX: usize = 256;

/// Long enough that only a leaked handle exceeds it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

impl Differential {
    pub(super) fn create(&mut self, id: Id, name: &str) {
        if self.oracle.live_len() >= self.groups_max {
            return self.kill(id);
        }
        if self.group(id).depth() - self.group(0).depth() >= self.depth_max {
            return;
        }
        match (self.group(id).create_child(name), self.oracle.create(id, name)) {
            (Ok(group), Ok(id)) => {
                self.tally.created += 1;
                self.adopt(id, group);
            }
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (group, expected) => panic!("create {name:?} in {id}: {group:?}, not {expected:?}"),
        }
    }

    /// Finds or creates a path from the top group down.
    pub(super) fn get_or_create(&mut self, names: &[&str]) {
        if names.len() > self.groups_max.saturating_sub(self.oracle.live_len()) {
            return;
        }
        let mut id = 0;
        for name in names {
            id = match self.oracle.get(id).children.get(*name) {
                Some(&child) => child,
                None => {
                    self.tally.created += 1;
                    self.oracle.create(id, name).expect("a live parent and a free name")
                }
            };
        }
        let group = self.tree.get_or_create(&self.oracle.get(id).path).expect("room");
        self.adopt(id, group);
    }

    /// Looks up the path of a group, extended by names.
    pub(super) fn find(&mut self, id: Id, names: &[&str]) {
        let mut path = self.oracle.get(id).path.trim_end_matches('/').to_owned();
        names.iter().for_each(|name| path = format!("{path}/{name}"));
        self.look_up(if path.is_empty() { "/" } else { &path });
    }

    /// Looks up a live group by walking from the top group down as far as the turns lead.
    pub(super) fn descend(&mut self, turns: &[u32]) {
        let mut id = 0;
        for &turn in turns {
            let children = &self.oracle.get(id).children;
            if children.is_empty() {
                break;
            }
            let nth = picked(turn, children.len());
            id = *children.values().nth(nth).expect("below the length");
        }
        let path = self.oracle.get(id).path.clone();
        assert_eq!(self.look_up(&path), Some(id));
    }

    fn look_up(&mut self, path: &str) -> Option<Id> {
        match (self.tree.get(path), self.oracle.find(path)) {
            (Some(group), Some(id)) => {
                let children = group.children();
                let paths: Vec<&str> = children.iter().map(Group::path).collect();
                assert_eq!(paths, self.oracle.children(id));
                assert_eq!(group.child_count(), paths.len());
                self.adopt(id, group);
                Some(id)
            }
            (None, None) => None,
            (group, id) => panic!("{path}: {group:?}, not {id:?}"),
        }
    }

    pub(super) fn kill(&mut self, id: Id) {
        // The top group of a shared tree is not a root, and must stay.
        if id == 0 && !self.alone {
            return;
        }
        match (self.group(id).kill(), self.oracle.kill(id)) {
            (Ok(killed), Ok(())) => {
                assert_eq!(killed.path(), self.oracle.get(id).path);
                self.tally.killed += 1;
                self.remember(id, killed);
            }
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (killed, expected) => panic!("kill {id}: {killed:?}, not {expected:?}"),
        }
        assert_eq!(self.group(id).is_killed(), self.oracle.get(id).dead);
    }

    pub(super) fn kill_subtree(&mut self, id: Id) {
        if id == 0 && !self.alone {
            return;
        }
        let below = self.oracle.live_below(id);
        let mut expected: Vec<String> =
            below.iter().map(|&id| self.oracle.get(id).path.clone()).collect();
        match (self.group(id).kill_subtree(), self.oracle.kill_subtree(id)) {
            (Ok(killed), Ok(())) => {
                self.tally.killed += killed.len() as u64;
                assert_eq!(killed.last().map(Killed::path), Some(&*expected[0]));
                // Children come first; the order of siblings is unspecified.
                let mut paths: Vec<&str> = killed.iter().map(Killed::path).collect();
                paths.sort_unstable();
                expected.sort_unstable();
                assert_eq!(paths, expected);
                assert_eq!(self.group(id).child_count(), 0);
                let topmost = killed.into_iter().next_back().expect("itself at least");
                self.remember(id, topmost);
            }
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (killed, expected) => panic!("kill_subtree {id}: {killed:?}, not {expected:?}"),
        }
        assert_eq!(self.group(id).is_killed(), self.oracle.get(id).dead);
    }

    fn remember(&mut self, id: Id, killed: Killed) {
        self.killed.push_back((id, killed));
        if self.killed.len() > KILLED_MAX {
            self.check_released();
        }
    }

    /// Checks that the oldest killed group is released if, and only if, it has no holder.
    pub(super) fn check_released(&mut self) {
        let Some((id, killed)) = self.killed.pop_front() else { return };
        self.tally.compared += 1;
        if self.oracle.exists(id) {
            assert!(!killed.is_released(), "{} released while held", killed.path());
            if self.killed.len() < KILLED_MAX {
                self.killed.push_back((id, killed));
            }
        } else if self.alone {
            assert!(killed.is_released(), "{}: {}", killed.path(), killed.holders());
        } else {
            // Another thread's snapshot may hold it briefly.
            killed.released_blocking(RELEASE_TIMEOUT).expect("it is held only briefly");
        }
    }
}

fn assert_refused(error: &Error, refused: Refused) {
    let said = match refused {
        Refused::Name => error.is_invalid_name(),
        Refused::Exists => error.is_already_exists(),
        Refused::Dead => error.is_killed(),
        Refused::Busy => error.is_busy(),
        Refused::Root => error.is_root(),
    };
    assert!(said, "{error:?} for {refused:?}");
}
