//! `--heap`: how much of the process's memory is whose.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use submeter_alloc::Live;
use submeter_alloc::exact::{Balance, Heap};
use submeter_cache::Cache;
use submeter_http::wire::{CellDoc, Shape};
use submeter_http::{Column, Dashboard, Panel, View};
use submeter_terminal::{self as show, BOLD, DIM, Failure};
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::HeapArg;

/// How often what the allocator knows is brought to the groups: once for each look at the page.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// How often books that differ are looked at again at the end, and how soon.
const LOOKS: usize = 20;
const LOOK_EVERY: Duration = Duration::from_millis(10);

const FILES: &str = "Of it, the program and its libraries, which the system can read again";
const TENANTS: &str = "Blocks that were allocated for tenants, as asked for: what was never written \
                       is not resident";
const UNATTRIBUTED: &str = "The rest: blocks of no tenant, such as buffers of connections; what the \
                            allocator keeps or rounds up; stacks; the groups";

/// The heap's books, and what they are in the tree.
#[derive(Clone)]
pub(super) struct Books {
    heap: Arc<Heap>,
    live: Live,
    cache: Cache,
}

/// Begins to charge tenants what their blocks take, before any of them has one.
pub(super) fn start(how: HeapArg, cache: &Cache) -> Result<Option<Books>, Failure> {
    if matches!(how, HeapArg::Off) {
        return Ok(None);
    }
    let failed = |error: &dyn std::fmt::Display| Failure::new(format_args!("--heap: {error}"));
    let live: Live = cache.tree().declare().map_err(|error| failed(&error))?;
    let heap = Heap::start(cache.tree(), live).map_err(|error| failed(&error))?;
    let books = Books { heap: Arc::new(heap), live, cache: cache.clone() };
    tokio::spawn(books.clone().flush_always());
    Ok(Some(books))
}

impl Books {
    async fn flush_always(self) {
        let mut ticks = interval(FLUSH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.heap.flush();
        }
    }

    /// Returns what the page shows of each tenant.
    pub(super) fn view(&self) -> View {
        View::gauge("heap_bytes", "Heap", self.live.bytes)
            .help("Heap memory that was allocated for the group and is not freed yet")
    }

    /// Shows what the process has, and how much of it is whose.
    pub(super) fn show(self, shown: Dashboard) -> Dashboard {
        let panel = Panel::new(
            "process_memory",
            "Memory of the process",
            vec![
                Column::gauge("resident_bytes", "Resident", "Memory that the process takes"),
                Column::gauge("files_bytes", "Files", FILES),
                Column::gauge("tenants_bytes", "Tenants", TENANTS),
                Column::gauge("unattributed_bytes", "Unattributed", UNATTRIBUTED),
            ],
        );
        shown.panel(panel.rows(move || self.row().into_iter().collect()))
    }

    /// None where the system does not say what the process has.
    fn row(&self) -> Option<Vec<CellDoc>> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let [all, files] = ["VmRSS:", "RssFile:"].map(|name| kib(&status, name));
        let (all, files) = (all? << 10, files? << 10);
        // The root's, so that it is what the groups beside it say.
        let tenants = self.cache.tree().root().sum(self.live.bytes).max(0).unsigned_abs();
        let rest = all.saturating_sub(files).saturating_sub(tenants);
        Some([all, files, tenants, rest].map(|bytes| CellDoc::figure(bytes, Shape::Bytes)).into())
    }

    /// Compares the books with the groups once nothing is served. Returns a line for the summary,
    /// and whether they agree.
    pub(super) fn finish(&self) -> (String, bool) {
        let agree = |balance: &Balance| balance.booked_bytes == balance.attributed_bytes;
        let mut balance = self.heap.balance();
        // A connection that outlived the grace period may still give up what it had.
        for _ in 0..LOOKS {
            if agree(&balance) {
                break;
            }
            thread::sleep(LOOK_EVERY);
            balance = self.heap.balance();
        }
        let held = show::bytes(balance.attributed_bytes.max(0).unsigned_abs());
        let is_exact = agree(&balance);
        let text = match is_exact {
            true => format!(
                "{DIM}heap{DIM:#}    {BOLD}exact{BOLD:#}: tenants hold {held}, as the books of the \
                 allocator say\n"
            ),
            false => format!(
                "{BOLD}heap    NOT EXACT{BOLD:#}: tenants hold {held}, and the books of the \
                 allocator say {} B\n",
                balance.booked_bytes
            ),
        };
        (text, is_exact)
    }
}

/// Returns a line's number of a process's status.
fn kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use submeter_cache::Config;

    use super::*;

    #[test]
    fn books_that_the_groups_do_not_equal_are_said_and_no_success() {
        let cache = Cache::new(Config::default()).expect("the default configuration");
        let live: Live = cache.tree().declare().expect("room");
        let heap = Heap::start(cache.tree(), live).expect("linked, and the only one here");
        let books = Books { heap: Arc::new(heap), live, cache: cache.clone() };
        let (said, is_exact) = books.finish();
        assert!(is_exact && said.contains("exact"), "{said}");
        // As if a flush had left out a block.
        cache.tree().root().adjust(live.bytes, -1);
        let (said, is_exact) = books.finish();
        assert!(!is_exact && said.contains("NOT EXACT"), "{said}");
    }
}
