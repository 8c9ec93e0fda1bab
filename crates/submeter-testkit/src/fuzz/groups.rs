//! Operations on groups: create, find, kill, and the wait for the dead.

use std::time::{Duration, Instant};

use submeter::{Error, Group, Killed};

use super::Fuzz;
use crate::oracle::{Id, Refused};

/// Few, so that they meet again.
const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "other one"];

/// Each breaks another rule.
const BAD_NAMES: [&str; 5] = ["", ".", "..", "a/b", "a\u{7}"];

/// Bounds what a list of the dead may keep.
const KILLED_MAX: usize = 256;

/// Only a handle that was lost misses it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Levels below the topmost: enough for long walks, few enough for siblings to be many.
const DEPTH_MAX: usize = 7;

impl Fuzz {
    pub(super) fn create(&mut self, id: Id) {
        if self.ledger.live_len() >= self.groups_max {
            return self.kill(id);
        }
        let bad = self.random.below(20) == 0;
        let name = *self.random.pick(if bad { &BAD_NAMES[..] } else { &NAMES[..] });
        if self.group(id).depth() - self.group(0).depth() >= DEPTH_MAX {
            return;
        }
        match (self.group(id).create(name), self.ledger.create(id, name)) {
            (Ok(group), Ok(id)) => {
                self.tally.created += 1;
                self.adopt(id, group);
            }
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (group, id) => panic!("create {name:?} in {id:?}: {group:?}"),
        }
    }

    /// Finds or creates a path from the topmost down.
    pub(super) fn get_or_create(&mut self, _: Id) {
        if self.ledger.live_len() + DEPTH_MAX >= self.groups_max {
            return;
        }
        let mut path = self.ledger.get(0).path.trim_end_matches('/').to_owned();
        let mut id = 0;
        for _ in 0..=self.random.below(4) {
            let name = *self.random.pick(&NAMES);
            path = format!("{path}/{name}");
            id = match self.ledger.get(id).children.get(name) {
                Some(&child) => child,
                None => {
                    self.tally.created += 1;
                    self.ledger.create(id, name).expect("a live parent and a free name")
                }
            };
        }
        let group = self.tree.get_or_create(&path).expect("good names and room");
        self.adopt(id, group);
    }

    /// Looks a group up by its path, from the topmost down as far as chance will have it.
    pub(super) fn find(&mut self, picked: Id) {
        let path = self.ledger.get(picked).path.clone();
        if self.ledger.get(picked).dead {
            // Somebody else may have the name by now; what was killed must not be found.
            if let Some(found) = self.tree.get(&path) {
                assert_ne!(found, *self.group(picked), "{path} is dead");
            }
        }
        let mut id = 0;
        while self.random.below(6) != 0 {
            let children = &self.ledger.get(id).children;
            if children.is_empty() {
                break;
            }
            let nth = self.random.below(children.len() as u64) as usize;
            id = *children.values().nth(nth).expect("below the length");
        }
        let found = self.tree.get(&self.ledger.get(id).path).expect("a live group");
        let paths: Vec<String> =
            found.children().iter().map(|child| child.path().to_owned()).collect();
        let children = self.ledger.get(id).children.values();
        let expected: Vec<&str> = children.map(|&child| &*self.ledger.get(child).path).collect();
        assert_eq!(paths, expected);
        let parent = self.ledger.get(id).parent.map(|parent| &*self.ledger.get(parent).path);
        if parent.is_some() {
            assert_eq!(found.parent().map(Group::path), parent);
        }
        self.adopt(id, found);
    }

    pub(super) fn kill(&mut self, id: Id) {
        if id == 0 && !self.alone {
            return;
        }
        match (self.group(id).kill(), self.ledger.kill(id)) {
            (Ok(killed), Ok(())) => {
                assert_eq!(killed.path(), self.ledger.get(id).path);
                self.tally.killed += 1;
                self.remember(id, killed);
            }
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (killed, expected) => panic!("kill {id}: {killed:?}, ledger {expected:?}"),
        }
    }

    pub(super) fn kill_subtree(&mut self, id: Id) {
        if id == 0 && !self.alone {
            return;
        }
        let below = self.ledger.live_below(id);
        let mut expected: Vec<String> =
            below.iter().map(|&id| self.ledger.get(id).path.clone()).collect();
        match (self.group(id).kill_subtree(), self.ledger.kill_subtree(id)) {
            (Ok(killed), Ok(_)) => {
                self.tally.killed += killed.len() as u64;
                assert_eq!(killed.last().map(Killed::path), Some(&*expected[0]));
                // Children come first; which of two siblings does is not promised.
                let mut paths: Vec<&str> = killed.iter().map(Killed::path).collect();
                paths.sort_unstable();
                expected.sort_unstable();
                assert_eq!(paths, expected);
                assert_eq!(self.group(id).children_len(), 0);
                let topmost = killed.into_iter().next_back().expect("itself at least");
                self.remember(id, topmost);
            }
            (Err(error), Err(refused)) => assert_refused(&error, refused),
            (killed, expected) => panic!("kill_subtree {id}: {killed:?}, ledger {expected:?}"),
        }
        assert_eq!(self.group(id).is_dying(), self.ledger.get(id).dead);
    }

    fn remember(&mut self, id: Id, killed: Killed) {
        self.killed.push_back((id, killed));
        if self.killed.len() > KILLED_MAX {
            self.check_released(0);
        }
    }

    /// The oldest of the dead is released if, and only if, nobody holds it.
    pub(super) fn check_released(&mut self, _: Id) {
        let Some((id, killed)) = self.killed.pop_front() else { return };
        self.tally.compared += 1;
        if self.ledger.exists(id) {
            assert!(!killed.is_released(), "{} released while held", killed.path());
            if self.killed.len() < KILLED_MAX {
                self.killed.push_back((id, killed));
            }
        } else if self.alone {
            assert!(killed.is_released(), "{}: {}", killed.path(), killed.holders());
        } else {
            // Somebody's snapshot may hold it for a moment.
            let deadline = Instant::now() + RELEASE_TIMEOUT;
            killed.wait_released(deadline).expect("nobody holds it for long");
        }
    }
}

pub(super) fn assert_refused(error: &Error, refused: Refused) {
    let said = match refused {
        Refused::Name => error.is_invalid_name(),
        Refused::Exists => error.is_exists(),
        Refused::Dead => error.is_dead(),
        Refused::Busy => error.is_busy(),
        Refused::Root => error.to_string().contains("root"),
    };
    assert!(said, "{error:?} for {refused:?}");
}
