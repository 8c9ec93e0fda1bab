//! How much groups counted lately, by which an export chooses them unless the program says how.

use std::collections::HashMap;
use std::f64::consts::LN_2;
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;

/// The time after which a count weighs half. A group twice as busy as another is chosen before it
/// after the same time, whatever the other had counted before.
const HALF_LIFE: Duration = Duration::from_secs(300);

/// The recent counts of groups, from one scrape to the next: 24 bytes for each group that has
/// counted anything.
#[derive(Debug, Default)]
pub(super) struct Activity {
    last: Option<SystemTime>,
    of: HashMap<u64, Recent, RandomState>,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    /// Everything that the group had counted by the last scrape.
    counted: u64,
    /// The counts, each by its weight at the last scrape.
    weighed: f64,
}

/// Returns by how much two equally busy groups may well differ. Recent counts are small, where
/// totals would have grown beyond such differences.
pub(super) fn by_chance(recent: u64) -> u64 {
    2 * recent.isqrt() + 2
}

impl Activity {
    /// Learns what each group has counted since the tree began, given by its number, and returns
    /// how much of that is recent. Groups that are not listed are forgotten.
    pub(super) fn advance(
        &mut self,
        counted: impl Iterator<Item = (u64, u64)>,
        began: SystemTime,
        now: SystemTime,
    ) -> Vec<u64> {
        let half_lives = |from| {
            let time = now.duration_since(from).unwrap_or_default();
            time.as_secs_f64() / HALF_LIFE.as_secs_f64()
        };
        let weight = self.last.map_or(1.0, |last| 0.5_f64.powf(half_lives(last)));
        // When it is not known, counts came at a steady rate since the tree began.
        let steady = |whole: f64| (1.0 - 0.5_f64.powf(whole)) / (whole * LN_2).max(f64::EPSILON);
        let first = match self.last.replace(now) {
            Some(_) => 1.0,
            None => steady(half_lives(began)).clamp(f64::MIN_POSITIVE, 1.0),
        };
        let before = std::mem::take(&mut self.of);
        let recent = |(id, counted): (u64, u64)| {
            let weighed = match before.get(&id) {
                Some(last) => last.weighed * weight + counted.saturating_sub(last.counted) as f64,
                None => counted as f64 * first,
            };
            if counted > 0 {
                self.of.insert(id, Recent { counted, weighed });
            }
            weighed.ceil() as u64
        };
        counted.map(recent).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    fn after(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Scrapes each 15 s: an old group counts 10 a second, a new one 40. Returns after how many
    /// seconds the new one has the most.
    fn overtaken(mut scrapes: Activity, started: u64) -> u64 {
        let seconds = (15..).step_by(15);
        seconds
            .take_while(|seconds| *seconds < 60 * MINUTE)
            .find(|&seconds| {
                let counted = [(1, (started + seconds) * 10), (2, seconds * 40)].into_iter();
                let recent = scrapes.advance(counted, after(0), after(started + seconds));
                recent[1] > recent[0]
            })
            .expect("it never has the most")
    }

    /// Weeks of history weigh as much as some minutes.
    #[test]
    fn history_weighs_as_much_as_minutes() {
        let weeks = 21 * 24 * 60 * MINUTE;
        // The first scrape was before, or is the first after the new group began.
        let mut scraped = Activity::default();
        scraped.advance([(1, weeks * 10)].into_iter(), after(0), after(weeks));
        for scrapes in [scraped, Activity::default()] {
            let seconds = overtaken(scrapes, weeks);
            assert!(seconds <= 5 * MINUTE, "after {seconds} s");
        }
    }

    /// Among two hundred groups that count as seldom as each other, the hundred shown hardly
    /// change.
    #[test]
    fn equals_hardly_change_places() {
        let (mut rng, mut scrapes) = (fastrand::Rng::with_seed(1), Activity::default());
        let (mut counted, mut shown, mut new) = ([0; 200], [false; 200], 0);
        for scrape in 1..500 {
            counted.iter_mut().for_each(|of| *of += u64::from(rng.u32(0..20) == 0));
            let of = (0..).zip(counted);
            let recent = scrapes.advance(of, after(0), after(scrape * 15));
            let bonus =
                |at: usize| if shown[at] { recent[at] / 4 + by_chance(recent[at]) } else { 0 };
            let mut order: Vec<_> = (0..200).collect();
            order.sort_by_key(|&at| (std::cmp::Reverse(recent[at] + bonus(at)), at));
            let before = std::mem::replace(&mut shown, [false; 200]);
            order[..100].iter().for_each(|&at| shown[at] = recent[at] > 0);
            let changed = (0..200).filter(|&at| shown[at] && !before[at]).count();
            new += if scrape > 100 { changed } else { 0 };
        }
        assert!(new < 400, "{new} new series in 400 scrapes");
    }

    /// A short pause does not let a less busy group pass.
    #[test]
    fn a_pause_of_a_minute_is_nothing() {
        let mut scrapes = Activity::default();
        scrapes.advance([(1, 6_000), (2, 3_000)].into_iter(), after(0), after(600));
        let recent = scrapes.advance([(1, 6_000), (2, 3_300)].into_iter(), after(0), after(660));
        assert!(recent[0] > recent[1], "{recent:?}");
        assert_eq!(scrapes.advance([(2, 3_300)].into_iter(), after(0), after(660)).len(), 1);
        assert_eq!(scrapes.of.len(), 1, "groups that ended are forgotten");
    }
}
