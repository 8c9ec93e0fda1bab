//! `--heap`: how much of the process's memory belongs to which tenant.

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use submeter::{Bytes, Gauge, GroupValues};
use submeter_alloc::exact::Balance;
use submeter_alloc::{Live, exact, sampled};
use submeter_cache::Cache;
use submeter_http::wire::{CellDoc, Shape};
use submeter_http::{Column, Dashboard, Panel, View};
use submeter_terminal::{self as show, BOLD, DIM, Failure};
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::HeapArg;

/// How often the allocator's figures are written to the groups: once for each look at the page.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// How often, and at what interval, books that differ are checked again at the end.
const LOOKS: usize = 20;
const LOOK_EVERY: Duration = Duration::from_millis(10);

const FILES: &str = "Part of it: the program and its libraries, which the system can reload";
const TENANTS: &str = "Blocks allocated for tenants, at their requested size: memory never written \
                       to is not resident";
const ERROR: &str = "Standard error of both, because Tenants is an estimate";
const UNATTRIBUTED: &str = "The rest: blocks of no tenant, such as connection buffers; memory that \
                            the allocator keeps or adds by rounding; stacks; the groups";

/// The source of the books.
enum Heap {
    Exact(exact::Heap),
    Sampled(sampled::Heap),
}

/// The heap's books, and their metrics in the tree.
#[derive(Clone)]
pub(super) struct Books {
    heap: Arc<Heap>,
    bytes: Gauge<Bytes>,
    /// Set where the bytes are an estimate.
    sampled: Option<sampled::Live>,
    cache: Cache,
}

/// Starts to charge tenants for their blocks, before any of them has one.
pub(super) fn start(how: HeapArg, cache: &Cache) -> Result<Option<Books>, Failure> {
    let started = match how {
        HeapArg::Off => return Ok(None),
        HeapArg::Sampled => Books::sampled(cache),
        HeapArg::Exact => Books::exact(cache),
    };
    let books = started.map_err(|error| Failure::new(format_args!("--heap: {error}")))?;
    tokio::spawn(books.clone().flush_always());
    Ok(Some(books))
}

impl Heap {
    fn flush(&self) {
        match self {
            Heap::Exact(heap) => heap.flush(),
            Heap::Sampled(heap) => heap.flush(),
        }
    }

    fn balance(&self) -> Balance {
        match self {
            Heap::Exact(heap) => heap.balance(),
            Heap::Sampled(heap) => heap.balance(),
        }
    }
}

impl Books {
    fn exact(cache: &Cache) -> Result<Books, Box<dyn Error>> {
        let live: Live = cache.tree().declare()?;
        let heap = Arc::new(Heap::Exact(exact::Heap::start(cache.tree(), live)?));
        Ok(Books { heap, bytes: live.bytes, sampled: None, cache: cache.clone() })
    }

    fn sampled(cache: &Cache) -> Result<Books, Box<dyn Error>> {
        let live: sampled::Live = cache.tree().declare()?;
        let heap = Arc::new(Heap::Sampled(sampled::Heap::start(cache.tree(), live)?));
        Ok(Books { heap, bytes: live.bytes, sampled: Some(live), cache: cache.clone() })
    }

    async fn flush_always(self) {
        let mut ticks = interval(FLUSH_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.heap.flush();
        }
    }

    /// Returns what the page shows of each tenant.
    pub(super) fn views(&self) -> Vec<View> {
        let held = View::gauge("heap_bytes", "Heap", self.bytes)
            .help("Heap memory allocated for the group and not freed yet");
        let error = self.sampled.map(|live| {
            let error = move |group: &GroupValues| Some(live.error_bytes_in(group) as f64);
            View::level::<Bytes>("heap_error_bytes", "Heap \u{b1}", error)
                .help("Standard error of Heap: 19 of 20 estimates are within three times this")
        });
        std::iter::once(held).chain(error).collect()
    }

    /// Shows the memory of the process, and how much of it belongs to tenants.
    pub(super) fn show(self, shown: Dashboard) -> Dashboard {
        let mut columns = vec![
            Column::gauge("resident_bytes", "Resident", "Resident memory of the process"),
            Column::gauge("files_bytes", "Files", FILES),
            Column::gauge("tenants_bytes", "Tenants", TENANTS),
            Column::gauge("unattributed_bytes", "Unattributed", UNATTRIBUTED),
        ];
        if self.sampled.is_some() {
            columns.push(Column::gauge("error_bytes", "\u{b1}", ERROR));
        }
        let panel = Panel::new("process_memory", "Memory of the process", columns);
        shown.panel(panel.rows(move || self.row().into_iter().collect()))
    }

    /// Returns `None` where the system does not report the memory of the process.
    fn row(&self) -> Option<Vec<CellDoc>> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let [all, files] = ["VmRSS:", "RssFile:"].map(|name| kib(&status, name));
        let (all, files) = (all? << 10, files? << 10);
        // The root's figure, so that it agrees with the groups shown beside it.
        let root = self.cache.tree().root();
        let tenants = root.sum(self.bytes).max(0).unsigned_abs();
        let rest = all.saturating_sub(files).saturating_sub(tenants);
        let error = self.sampled.map(|live| live.error_bytes(root));
        let figures = [all, files, tenants, rest].into_iter().chain(error);
        Some(figures.map(|bytes| CellDoc::figure(bytes, Shape::Bytes)).collect())
    }

    /// Compares the books with the groups once nothing is served. Returns a line for the summary,
    /// and whether they agree.
    pub(super) fn finish(&self) -> (String, bool) {
        let agree = |balance: &Balance| balance.booked_bytes == balance.attributed_bytes;
        let mut balance = self.heap.balance();
        // A connection that outlived the grace period may still release what it had.
        for _ in 0..LOOKS {
            if agree(&balance) {
                break;
            }
            thread::sleep(LOOK_EVERY);
            balance = self.heap.balance();
        }
        let held = show::bytes(balance.attributed_bytes.max(0).unsigned_abs());
        let (rung, held) = match self.sampled {
            None => ("exact", held),
            Some(live) => {
                let error = live.error_bytes(self.cache.tree().root());
                ("sampled", format!("{held} \u{b1} {}", show::bytes(error)))
            }
        };
        let is_equal = agree(&balance);
        let text = match is_equal {
            true => format!(
                "{DIM}heap{DIM:#}    {BOLD}{rung}{BOLD:#}: tenants hold {held}, the same as in the \
                 allocator's books\n"
            ),
            false => format!(
                "{BOLD}heap    NOT EQUAL{BOLD:#}: tenants hold {held}, but the allocator's books \
                 differ by {:+} B\n",
                balance.booked_bytes - balance.attributed_bytes
            ),
        };
        (text, is_equal)
    }
}

/// Returns the number on a line of a process's status.
fn kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use submeter_cache::Config;

    use super::super::{Deleted, conclude};
    use super::*;

    /// Books that differ from the groups are reported and set the exit code to 1.
    #[test]
    fn books_that_differ_from_groups_exit_with_1() {
        let cache = Cache::new(Config::default()).expect("the default configuration");
        let books = Books::exact(&cache).expect("linked, and the only ones here");
        let ends = |checked| {
            let deleted = Deleted::default();
            conclude(&cache, None, &deleted, Duration::ZERO, [Some(checked), None]).expect("said")
        };
        let (said, is_equal) = books.finish();
        assert!(is_equal && said.contains("exact"), "{said}");
        assert_eq!(ends((said, is_equal)), ExitCode::SUCCESS);
        // As if a flush had omitted a block.
        cache.tree().root().adjust(books.bytes, -1);
        let (said, is_equal) = books.finish();
        assert!(!is_equal && said.contains("NOT EQUAL"), "{said}");
        assert!(said.contains("differ by +1 B"), "{said}");
        assert_eq!(ends((said, is_equal)), ExitCode::FAILURE);
    }
}
