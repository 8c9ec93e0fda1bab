//! What it costs to have room made at a full limit, by how many could make it.
//!
//! A callback gives back what is wanted of it at once, so that what is timed is the search for the
//! one to ask. After each charge all is as before: it is released, and who gave takes it back.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use submeter::{Bytes, Charge, Group, Quota, Reclaimable, Schema, Tree};

use super::limiter::AMOUNT;
use crate::bench::record::Reading;
use crate::bench::runner::{Cell, Sample};
use crate::bench::threads::Preemptions;
use crate::row::{Param, Params};

/// As many as are looked at for each charge, and more.
const CALLBACKS: [usize; 5] = [1, 8, 64, 1000, 10_000];
/// What each tenant holds; what one gives makes it the smallest.
const EACH: u64 = 1000 * AMOUNT;
/// Charges of a sample, of which the median is taken.
const TIMES: usize = 200;

/// Adds the cells.
pub(super) fn cells(groups: &mut Vec<Vec<Cell>>) -> io::Result<()> {
    for callbacks in CALLBACKS {
        let params = Params::from([("callbacks", Param::number(callbacks as u64))]);
        groups.push(vec![
            cell("submeter", &params, callbacks, Groups::new(callbacks)?),
            cell("scan", &params, callbacks, Scan::new(callbacks)),
            cell("ordered_set", &params, callbacks, Ordered::new(callbacks)),
        ]);
    }
    Ok(())
}

/// A limit that is full, below which tenants hold what they can give back.
trait Full {
    /// Charges, which makes the largest tenant give as much; returns which it was.
    fn charge(&mut self) -> Option<usize>;

    /// Releases that charge, and has the tenant take back what it gave.
    fn undo(&mut self, gave: usize);
}

fn cell(
    variant: &'static str,
    params: &Params,
    tenants: usize,
    mut full: impl Full + 'static,
) -> Cell {
    Cell::new(params.clone(), variant, move || {
        let preemptions = Preemptions::count();
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let from = Instant::now();
            let gave = full.charge();
            times.push(from.elapsed().as_nanos() as f64);
            let gave = gave.filter(|gave| *gave < tenants);
            let gave = gave.ok_or_else(|| {
                io::Error::other(format!("{variant} made no room, though all could, a bug"))
            })?;
            full.undo(gave);
        }
        times.sort_by(f64::total_cmp);
        let readings = vec![Reading::of("ns", vec![times[TIMES / 2]])];
        Ok(Sample { readings, disturbed: preemptions.any(), notes: Vec::new() })
    })
}

/// Groups of submeter, each with a callback.
struct Groups {
    web: Group,
    quota: Quota<Bytes>,
    held: Option<Charge>,
    /// Which callback was called last.
    asked: Arc<AtomicUsize>,
    tenants: Vec<Arc<Mutex<Charge>>>,
    _registered: Vec<Reclaimable>,
    _tree: Tree,
}

impl Groups {
    fn new(callbacks: usize) -> io::Result<Groups> {
        let mut schema = Schema::builder();
        let quota = schema.quota::<Bytes>("memory", "Memory held");
        let schema = schema.build().map_err(io::Error::other)?;
        let tree = Tree::new(schema).map_err(io::Error::other)?;
        tree.root().set_limit(quota, Some(callbacks as u64 * EACH));
        let asked = Arc::new(AtomicUsize::new(usize::MAX));
        let (mut tenants, mut registered) = (Vec::new(), Vec::new());
        for tenant in 0..callbacks {
            let group = tree.create(&format!("/{tenant}")).map_err(io::Error::other)?;
            let held = group.try_charge(quota, EACH).map_err(io::Error::other)?;
            let held = Arc::new(Mutex::new(held));
            let (gives, asked) = (Arc::clone(&held), Arc::clone(&asked));
            registered.push(group.on_pressure(quota, move |wanted| {
                let mut held = gives.lock();
                let rest = held.amount().saturating_sub(wanted);
                held.resize(rest).expect("less is never refused");
                // Relaxed: the thread that reads it is this one.
                asked.store(tenant, Ordering::Relaxed);
            }));
            tenants.push(held);
        }
        let web = tree.create("/web").map_err(io::Error::other)?;
        Ok(Groups { web, quota, held: None, asked, tenants, _registered: registered, _tree: tree })
    }
}

impl Full for Groups {
    fn charge(&mut self) -> Option<usize> {
        self.held = Some(self.web.charge_reclaiming(self.quota, AMOUNT).ok()?);
        // Relaxed: as above.
        Some(self.asked.swap(usize::MAX, Ordering::Relaxed))
    }

    fn undo(&mut self, gave: usize) {
        self.held = None;
        let _ = self.tenants[gave].lock().resize(EACH);
    }
}

/// Tenants' sizes under one lock, all of which are looked at for the largest.
struct Scan(Mutex<Vec<u64>>);

impl Scan {
    fn new(tenants: usize) -> Scan {
        Scan(Mutex::new(vec![EACH; tenants]))
    }
}

impl Full for Scan {
    fn charge(&mut self) -> Option<usize> {
        let mut sizes = self.0.lock();
        let largest = sizes.iter().enumerate().max_by_key(|(_, size)| **size)?.0;
        sizes[largest] -= AMOUNT;
        Some(largest)
    }

    fn undo(&mut self, gave: usize) {
        self.0.lock()[gave] += AMOUNT;
    }
}

/// Tenants in the order of their sizes, under one lock: each charge and release of one moves it.
struct Ordered(Mutex<Order>);

struct Order {
    sizes: Vec<u64>,
    order: BTreeSet<(u64, usize)>,
}

impl Ordered {
    fn new(tenants: usize) -> Ordered {
        let order = (0..tenants).map(|tenant| (EACH, tenant)).collect();
        Ordered(Mutex::new(Order { sizes: vec![EACH; tenants], order }))
    }
}

impl Full for Ordered {
    fn charge(&mut self) -> Option<usize> {
        let Order { sizes, order } = &mut *self.0.lock();
        let (size, largest) = order.pop_last()?;
        sizes[largest] = size - AMOUNT;
        order.insert((sizes[largest], largest));
        Some(largest)
    }

    fn undo(&mut self, gave: usize) {
        let Order { sizes, order } = &mut *self.0.lock();
        order.remove(&(sizes[gave], gave));
        sizes[gave] += AMOUNT;
        order.insert((sizes[gave], gave));
    }
}
