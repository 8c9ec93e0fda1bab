//! A model of a tree of groups that hold and claim something. It is obviously correct: everything
//! is added up again for each question.

/// Groups by number; parents come before their children.
#[derive(Clone, Debug, Default)]
pub(crate) struct Naive {
    pub(crate) groups: Vec<NaiveGroup>,
}

#[derive(Clone, Debug)]
pub(crate) struct NaiveGroup {
    pub(crate) parent: Option<usize>,
    /// What the group itself holds.
    pub(crate) own: u64,
    /// `min` and `low`.
    pub(crate) claims: [u64; 2],
}

impl Naive {
    pub(crate) fn add(&mut self, parent: Option<usize>, own: u64, claims: [u64; 2]) {
        self.groups.push(NaiveGroup { parent, own, claims });
    }

    pub(crate) fn children(&self, at: usize) -> impl Iterator<Item = usize> {
        (0..self.groups.len()).filter(move |&child| self.groups[child].parent == Some(at))
    }

    pub(crate) fn is_below(&self, at: usize, top: usize) -> bool {
        at == top || self.groups[at].parent.is_some_and(|parent| self.is_below(parent, top))
    }

    /// Returns what a group and those below it hold.
    pub(crate) fn usage(&self, at: usize) -> u128 {
        let below = self.children(at).map(|child| self.usage(child)).sum::<u128>();
        u128::from(self.groups[at].own) + below
    }

    /// Returns the protection that every group gets from reclaim for `top`: of `min` if `which` is
    /// 0, else of `low`.
    pub(crate) fn protection(&self, top: usize, which: usize) -> Vec<u128> {
        let mut got = vec![0; self.groups.len()];
        self.hand_out(top, None, which, &mut got);
        got
    }

    /// Divides the protection that a group has among those below it: `None` for the group for which
    /// something is reclaimed. Records what each gets.
    fn hand_out(&self, at: usize, has: Option<u128>, which: usize, got: &mut [u128]) {
        let claim = |child: usize| u128::from(self.groups[child].claims[which]);
        let wants = |child: usize| self.usage(child).min(claim(child));
        let wanted: u128 = self.children(at).map(wants).sum();
        for child in self.children(at) {
            got[child] = match has {
                None => wants(child),
                Some(has) if has < wanted => wants(child) * has / wanted,
                Some(has) if wants(child) == self.usage(child) || has == wanted => wants(child),
                Some(has) => {
                    let bare = self.usage(at) - wanted;
                    wants(child) + (has - wanted) * (self.usage(child) - wants(child)) / bare
                }
            };
            self.hand_out(child, Some(got[child]), which, got);
        }
    }
}
