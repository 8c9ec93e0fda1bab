//! The places for tenants and connections, and the memory for what connections send and read:
//! shown, with a warning when little is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter::Usage;
use submeter_cache::{Cache, ConnectionPlaces, TenantPlaces};
use submeter_http::wire::{CellDoc, Shape};
use submeter_http::{Column, Dashboard, Endpoint, Panel, Places};
use submeter_terminal::bytes;
use tokio::time::{MissedTickBehavior, interval};

/// How often the places are checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The time without refusals after which the next refusal causes another warning.
const CALM: Duration = Duration::from_secs(60);

/// How scarce places are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Free,
    /// Fewer than an eighth are free.
    Few,
    /// A request for a place was refused.
    Refused,
}

impl State {
    const NAMES: [&str; 3] = ["free", "few", "refused"];

    fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The current places of some kind.
#[derive(Clone, Copy, Debug)]
struct Look {
    taken: u64,
    max: u64,
    /// Number of refusals so far.
    refused: u64,
}

impl From<&TenantPlaces> for Look {
    fn from(places: &TenantPlaces) -> Look {
        let TenantPlaces { max, taken, refused, .. } = *places;
        Look { taken: taken as u64, max: max as u64, refused }
    }
}

impl From<ConnectionPlaces> for Look {
    fn from(places: ConnectionPlaces) -> Look {
        let ConnectionPlaces { max, taken, refused, .. } = places;
        Look { taken: taken as u64, max: max as u64, refused }
    }
}

impl From<&Places> for Look {
    fn from(places: &Places) -> Look {
        let [taken, max] = [places.taken(), places.most()].map(|n| n as u64);
        Look { taken, max, refused: places.refused() }
    }
}

impl From<Usage> for Look {
    fn from(usage: Usage) -> Look {
        let Usage { current, limit, refused, .. } = usage;
        Look { taken: current, max: limit.unwrap_or(u64::MAX), refused }
    }
}

/// The result of the last check of the places.
#[derive(Debug)]
struct Watch {
    state: State,
    refused: u64,
    /// When the last refusal occurred.
    at: Option<Instant>,
}

impl Watch {
    fn new() -> Watch {
        Watch { state: State::Free, refused: 0, at: None }
    }

    /// Evaluates a look. Returns the state when it has just become worse; the same state is
    /// returned again only after it was better.
    fn look(&mut self, look: Look, now: Instant) -> Option<State> {
        if look.refused > self.refused {
            (self.refused, self.at) = (look.refused, Some(now));
        }
        let is_refused = self.at.is_some_and(|at| now.duration_since(at) < CALM);
        let free = look.max.saturating_sub(look.taken);
        // The threshold to leave the state differs from the one to enter it: one more or less is no
        // news.
        let few = if self.state == State::Few { look.max / 4 } else { look.max / 8 };
        let state = match (is_refused, free < few) {
            (true, _) => State::Refused,
            (false, true) => State::Few,
            (false, false) => State::Free,
        };
        let is_worse = state > self.state;
        self.state = state;
        is_worse.then_some(state)
    }
}

fn warning(state: State, places: &TenantPlaces) -> String {
    let TenantPlaces { max, taken, largest, .. } = places;
    let what = match state {
        State::Refused => "new tenants find no place and count to \":other\" below their parents",
        _ => "places for tenants are running out",
    };
    let most = largest.as_ref().map(|(path, n)| format!(", {n} of them by {path} and below"));
    format!(
        "{what}: {taken} of {max} are taken{}. Allow more (--tenants-max), or reserve places for \
         important tenants with a limit (--tenant-limit)",
        most.unwrap_or_default()
    )
}

/// Everything that is checked.
struct Watched {
    cache: Cache,
    page: Places,
    tenants: Mutex<Watch>,
    /// The connections of the cache, and those of the page.
    connections: [Mutex<Watch>; 2],
    buffers: Mutex<Watch>,
}

impl Watched {
    /// Checks the table of tenants, and warns if it is full or nearly so.
    fn tenants(&self) -> (State, TenantPlaces) {
        let mut watch = self.tenants.lock();
        let places = self.cache.places();
        if let Some(state) = watch.look(Look::from(&places), Instant::now()) {
            log::warn!("{}", warning(state, &places));
        }
        (watch.state, places)
    }

    /// Checks the connections of both ports, and warns if few are free.
    fn connections(&self) -> [(&'static str, State, Look); 2] {
        let now = Instant::now();
        let [mut cache, mut page] = self.connections.each_ref().map(Mutex::lock);
        let looks = [Look::from(self.cache.connection_places()), Look::from(&self.page)];
        if cache.look(looks[0], now).is_some() {
            let Look { taken, max, .. } = looks[0];
            let largest = self.cache.largest_holder();
            let most = largest.map(|(holder, n)| format!(", {n} of them from {holder}"));
            log::warn!(
                "{taken} of at most {max} connections are open{}: others may be turned away. Allow \
                 more (--connections), or close idle ones (--idle-timeout)",
                most.unwrap_or_default()
            );
        }
        if page.look(looks[1], now).is_some() {
            let Look { taken, max, .. } = looks[1];
            log::warn!(
                "{taken} of at most {max} connections to the page are open: others may be turned \
                 away. Close pages that nobody reads; with --token-file, clients without the token \
                 hold no place"
            );
        }
        [("cache", cache.state, looks[0]), ("page", page.state, looks[1])]
    }

    /// Checks the memory for partially sent requests and unread answers, and warns if little of it
    /// is left. Returns a message as long as that is so.
    fn buffers(&self) -> Option<String> {
        let usage = self.cache.tree().root().usage(self.cache.metrics().buffers);
        // A refusal is no shortage yet: the client waits, and the slowest one makes room.
        let look = Look { refused: 0, ..Look::from(usage) };
        let mut watch = self.buffers.lock();
        let is_worse = watch.look(look, Instant::now()).is_some();
        if watch.state == State::Free {
            return None;
        }
        let [taken, max] = [look.taken, look.max].map(bytes);
        let largest = self.cache.largest_buffer_holder();
        let most = largest.map(|(holder, n)| format!(", {} of it {holder}", bytes(n)));
        let hold = format!(
            "that are slow to send or read hold {taken} of {max} for requests and answers{}",
            most.unwrap_or_default()
        );
        if is_worse {
            log::warn!(
                "clients {hold}: others may wait, and the slowest are disconnected. Find them with \
                 stats conns, or allow more (--buffers)"
            );
        }
        Some(format!("Clients {hold}."))
    }
}

/// Checks periodically, whether anyone watches the page or not.
async fn look_always(watched: Arc<Watched>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        watched.tenants();
        watched.connections();
        watched.buffers();
    }
}

/// Shows how much room there is, and warns when there is little.
pub(super) fn show(shown: Dashboard, cache: &Cache, page: &Endpoint) -> Dashboard {
    let watch = || Mutex::new(Watch::new());
    let connections = [watch(), watch()];
    let (tenants, buffers) = (watch(), watch());
    let watched = Arc::new(Watched {
        cache: cache.clone(),
        page: page.places(),
        tenants,
        connections,
        buffers,
    });
    tokio::spawn(look_always(Arc::clone(&watched)));
    let slow = Arc::clone(&watched);
    let shown = shown.notice(move || slow.buffers());
    shown.panel(tenants_panel(Arc::clone(&watched))).panel(ports_panel(watched))
}

fn count(n: u64) -> CellDoc {
    CellDoc::figure(n, Shape::Count)
}

fn tenants_panel(watched: Arc<Watched>) -> Panel {
    let panel = Panel::new(
        "tenants",
        "Places for tenants",
        vec![
            Column::state("state", "State", "Whether new tenants find a place", &State::NAMES),
            Column::gauge("taken", "Taken", "Tenants that have a place"),
            Column::gauge("max", "Of", "Tenants that may have one"),
            Column::counter("refused", "Refused", "Requests whose tenant found no place"),
            Column::text("largest", "Most by"),
        ],
    );
    panel.rows(move || {
        let (state, places) = watched.tenants();
        let [taken, max] = [places.taken, places.max].map(|n| count(n as u64));
        let largest = places.largest.map(|(path, n)| format!("{path} ({n})")).unwrap_or_default();
        vec![vec![state.name().into(), taken, max, count(places.refused), largest.as_str().into()]]
    })
}

fn ports_panel(watched: Arc<Watched>) -> Panel {
    let panel = Panel::new(
        "ports",
        "Places for connections",
        vec![
            Column::label("port", "Port"),
            Column::state("state", "State", "Whether new clients find a place", &State::NAMES),
            Column::gauge("taken", "Taken", "Connections that are open"),
            Column::gauge("max", "Of", "Connections that may be open"),
            Column::counter("refused", "Refused", "Times that a client found no place"),
        ],
    );
    panel.rows(move || {
        let row = |(port, state, Look { taken, max, refused }): (&str, State, Look)| {
            vec![port.into(), state.name().into(), count(taken), count(max), count(refused)]
        };
        watched.connections().map(row).into()
    })
}

#[cfg(test)]
mod tests {
    use submeter_cache::Config;

    use super::*;

    #[test]
    fn a_full_table_is_warned_of_once_until_better() {
        let cache = Cache::new(Config { tenants_max: 80, ..Config::default() }).expect("sound");
        let mut places = cache.places();
        let mut watch = Watch::new();
        let start = Instant::now();
        let mut look = |seconds, taken, refused| {
            (places.taken, places.refused) = (taken, refused);
            places.largest = Some(("/acme".to_owned(), 40));
            let now = start + Duration::from_secs(seconds);
            watch.look(Look::from(&places), now).map(|state| {
                let text = warning(state, &places);
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
