//! How much callbacks could free for the sake of a group.

use std::collections::HashMap;
use std::iter::{successors, zip};

use super::registry::{Registry, let_go};
use crate::charge::protect::{Division, Held, claimed};
use crate::group::Group;
use crate::quota::Quotas;

/// What a group with callbacks uses and has protected, without those below that have their own:
/// every unit is of the lowest that can be asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// With everything below it.
    pub(super) current: u64,
    own: u64,
    protected: [u64; 2],
}

impl Standing {
    /// What it uses beyond all protection.
    pub(super) fn beyond_low(&self) -> u64 {
        let [min, low] = self.protected;
        self.own.saturating_sub(min.max(low))
    }

    /// What it uses beyond what is never reclaimed.
    pub(super) fn beyond_min(&self) -> u64 {
        self.own.saturating_sub(self.protected[0])
    }
}

/// Returns how groups stand for the sake of `target`, which is one of them or above all. Each comes
/// once.
pub(super) fn standings(target: &Group, slot: usize, groups: &[&Group]) -> Vec<Standing> {
    let usages = Quotas::usages(slot, groups.iter().map(|group| &group.inner.quotas));
    let held: Vec<Held> =
        zip(groups, usages).map(|(group, usage)| Held::new(group, usage)).collect();
    let mut division = Division::of(target, slot);
    let mut whole = |group: &Group, held: Held| {
        if group == target { claimed_below(target, slot) } else { division.part(group, held) }
    };
    let whole: Vec<[u64; 2]> =
        zip(groups, &held).map(|(group, held)| whole(group, *held)).collect();

    let places: HashMap<u64, usize> =
        groups.iter().enumerate().map(|(place, group)| (group.id(), place)).collect();
    let mut standings: Vec<Standing> = zip(&held, &whole)
        .map(|(held, &protected)| Standing { current: held.current, own: held.current, protected })
        .collect();
    for (place, group) in groups.iter().enumerate().filter(|(_, group)| **group != target) {
        let to_target = successors(group.parent(), |at| at.parent().filter(|_| *at != target));
        let above = to_target.filter_map(|at| places.get(&at.id())).next();
        if let Some(&above) = above {
            let above = &mut standings[above];
            above.own = above.own.saturating_sub(held[place].current);
            above.protected = [0, 1].map(|at| above.protected[at].saturating_sub(whole[place][at]));
        }
    }
    standings
}

/// Returns how one group with a callback stands. Costs a look at the callbacks of those below it,
/// and, where its parent is protected, at its siblings.
pub(super) fn standing(target: &Group, slot: usize, group: &Group) -> Standing {
    let below = Registry::of(group, slot).map_or_else(Vec::new, Registry::entries);
    let mut groups: Vec<&Group> = below.iter().map(|entry| entry.group()).collect();
    groups.push(group);
    groups.sort_unstable_by_key(|group| group.id());
    groups.dedup();
    let place = groups.iter().position(|at| *at == group).expect("it is one of them");
    let standing = standings(target, slot, &groups)[place];
    let_go(below);
    standing
}

/// What a group's children use of their claims. Against the group itself nothing else is protected.
fn claimed_below(group: &Group, slot: usize) -> [u64; 2] {
    let children = group.live_children();
    let usages = Quotas::usages(slot, children.iter().map(|child| &child.inner.quotas));
    claimed(zip(&children, usages))
}
