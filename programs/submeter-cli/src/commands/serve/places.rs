//! How many tenants there may be: shown, and warned of when new ones find no place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter_cache::{Cache, TenantPlaces};
use submeter_http::wire::{CellDoc, Shape};
use submeter_http::{Column, Dashboard, Panel};
use tokio::time::{MissedTickBehavior, interval};

/// How often the table is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After how long without refusals a refusal is worth another warning.
const CALM: Duration = Duration::from_secs(60);

/// How it stands with places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Free,
    /// Fewer than the eighth part are free.
    Few,
    /// Somebody found none.
    Refused,
}

impl State {
    fn name(self) -> &'static str {
        ["free", "few", "refused"][self as usize]
    }
}

/// What was found when the table was looked at last.
#[derive(Debug)]
struct Watch {
    state: State,
    refused: u64,
    /// When somebody was refused last.
    at: Option<Instant>,
}

impl Watch {
    fn new() -> Watch {
        Watch { state: State::Free, refused: 0, at: None }
    }

    /// Takes a look into account. Returns a warning the first time that things are so bad: again
    /// only once they were better.
    fn look(&mut self, places: &TenantPlaces, now: Instant) -> Option<String> {
        if places.refused > self.refused {
            (self.refused, self.at) = (places.refused, Some(now));
        }
        let is_refused = self.at.is_some_and(|at| now.duration_since(at) < CALM);
        let free = places.max.saturating_sub(places.taken);
        // Not at the border that it came from: one tenant more or less is no news.
        let few = if self.state == State::Few { places.max / 4 } else { places.max / 8 };
        let state = match (is_refused, free < few) {
            (true, _) => State::Refused,
            (false, true) => State::Few,
            (false, false) => State::Free,
        };
        let is_worse = state > self.state;
        self.state = state;
        is_worse.then(|| warning(state, places))
    }
}

fn warning(state: State, places: &TenantPlaces) -> String {
    let TenantPlaces { max, taken, largest, .. } = places;
    let what = match state {
        State::Refused => "tenants find no place, and count to \":other\" below their parents",
        _ => "places for tenants are running out",
    };
    let most = largest.as_ref().map(|(path, n)| format!(", {n} of them by {path} and below"));
    format!(
        "{what}: {taken} of {max} are taken{}. Allow more (--tenants-max), or keep some for those \
         that matter by a limit (--tenant-limit)",
        most.unwrap_or_default()
    )
}

/// Looks at the table, and warns if it is full or nearly so.
fn look(cache: &Cache, watch: &Mutex<Watch>) -> (State, TenantPlaces) {
    let mut watch = watch.lock();
    let places = cache.places();
    if let Some(warning) = watch.look(&places, Instant::now()) {
        log::warn!("{warning}");
    }
    (watch.state, places)
}

/// Looks at the table from time to time, whether anybody watches the page or not.
async fn look_always(cache: Cache, watch: Arc<Mutex<Watch>>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        look(&cache, &watch);
    }
}

/// Shows how many tenants there may be, and are, and warns when that is nearly all.
pub(super) fn show(shown: Dashboard, cache: &Cache) -> Dashboard {
    let watch = Arc::new(Mutex::new(Watch::new()));
    tokio::spawn(look_always(cache.clone(), Arc::clone(&watch)));
    let states = [State::Free, State::Few, State::Refused].map(State::name);
    let panel = Panel::new(
        "tenants",
        "Places for tenants",
        vec![
            Column::state("state", "State", "Whether new tenants find a place", &states),
            Column::gauge("taken", "Taken", "Tenants that have a place"),
            Column::gauge("max", "Of", "Tenants that may have one"),
            Column::counter("refused", "Refused", "Requests whose tenant found no place"),
            Column::text("largest", "Most by"),
        ],
    );
    let cache = cache.clone();
    shown.panel(panel.rows(move || {
        let (state, places) = look(&cache, &watch);
        let count = |n: u64| CellDoc::figure(n, Shape::Count);
        let TenantPlaces { max, taken, refused, largest, .. } = places;
        let [taken, max] = [taken, max].map(|n| count(n as u64));
        let largest = largest.map(|(path, n)| format!("{path} ({n})")).unwrap_or_default();
        vec![vec![state.name().into(), taken, max, count(refused), largest.as_str().into()]]
    }))
}

#[cfg(test)]
mod tests {
    use submeter_cache::Config;

    use super::*;

    #[test]
    fn a_full_table_is_warned_of_once_until_it_was_better() {
        let cache = Cache::new(Config { tenants_max: 80, ..Config::default() }).expect("sound");
        let mut places = cache.places();
        let mut watch = Watch::new();
        let start = Instant::now();
        let mut look = |seconds, taken, refused| {
            (places.taken, places.refused) = (taken, refused);
            places.largest = Some(("/acme".to_owned(), 40));
            let now = start + Duration::from_secs(seconds);
            watch.look(&places, now).map(|text| {
                assert!(text.contains(&format!("{taken} of 80")), "{text}");
                assert!(text.contains("40 of them by /acme") && text.contains("--tenants-max"));
                text.contains("find no place")
            })
        };
        let (few, refused) = (Some(false), Some(true));
        assert_eq!(look(0, 70, 0), None);
        assert_eq!(look(1, 71, 0), few);
        assert_eq!([look(2, 79, 0), look(3, 65, 0), look(4, 71, 0)], [None; 3], "still few");
        assert_eq!([look(5, 60, 0), look(6, 71, 0)], [None, few], "a quarter was free");
        assert_eq!([look(7, 80, 3), look(8, 80, 4), look(60, 10, 4)], [refused, None, None]);
        assert_eq!([look(70, 10, 4), look(71, 10, 5)], [None, refused], "after a minute");
    }
}
