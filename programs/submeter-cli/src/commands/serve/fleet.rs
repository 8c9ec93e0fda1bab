//! The server as a member of a fleet: the limits of `--limit-fleet` are leases of a bank.
//!
//! A lease that falls below what a tenant holds takes items from the tenant at once, because what
//! it holds counts at the bank until it is given back. Each time the server has lost the bank, it
//! declares limits to the bank where the bank has none: the bank's own limits as last read, at most
//! half a minute before, or else those of its flags. An operator's settings thus survive a bank
//! that forgets. If the bank is unreachable, the server starts and runs all the same, by the rule
//! that `--outage` declares.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use submeter::LimitMode;
use submeter_bank::{Answer, Bank, Budget, InForce, Limit, Operate, Outage, Request};
use submeter_cache::{Address, Cache, TenantLimits};
use submeter_fleet::{Driver, Fleet, Status};
use submeter_http::wire::{CellDoc, Shape};
use submeter_http::{Column, Dashboard, Panel};
use submeter_terminal::Failure;
use tokio::task::JoinHandle;

use super::reading::Turn;
use super::shown::requests;
use crate::cli::{FleetLimit, MEMORY, OutageArg, ServiceArgs};
use crate::fleet::{Certificates, Engine, EngineError};

/// The part of each limit that a server wants unless it is idle: enough for a first request, and
/// small enough that dozens of servers can all have it.
const LEAST_PART: u64 = 32;

/// How often the tenants' use is compared with their leases: a few times within the 50 ms after
/// which the bank is told.
const WATCH_EVERY: Duration = Duration::from_millis(20);

/// What a bank does that may have forgotten what it has lent.
const LEARNS: &str = "bank was restarted and is learning what was lent before: for about the \
                      length of a lease it lends nothing new, and refuses requests that need more \
                      (--bank)";

/// A server's part in a fleet.
pub(super) struct Member {
    bank: submeter_address::Address,
    name: String,
    limits: usize,
    fleet: Arc<Fleet>,
    watching: JoinHandle<()>,
    asked: Arc<Declaring>,
}

/// The bank's address and what it lends.
pub(super) struct Plan {
    pub(super) bank: Option<submeter_address::Address>,
    pub(super) service: ServiceArgs,
    /// The name of `--member`.
    pub(super) name: Option<String>,
    pub(super) outage: OutageArg,
    pub(super) leased: Leased,
}

/// The limits of `--limit-fleet`.
#[derive(Clone)]
pub(super) struct Leased(Arc<[(Budget, u64)]>);

impl Leased {
    pub(super) fn new(limits: &[FleetLimit]) -> Leased {
        Leased(limits.iter().flat_map(|limit| limit.budgets.iter().cloned()).collect())
    }

    /// Returns whether any of the limits is a rate.
    pub(super) fn has_rates(&self) -> bool {
        self.0.iter().any(|(budget, _)| budget.resource() != MEMORY)
    }

    /// Returns the tenants with limits; they have a place from the start.
    pub(super) fn tenants(&self) -> Vec<String> {
        let paths = self.0.iter().map(|(budget, _)| budget.path().to_owned());
        paths.filter(|path| path != "/").collect()
    }

    /// Refuses limits that two sources set.
    pub(super) fn check(&self, set: &[(String, TenantLimits)]) -> Result<(), Failure> {
        let mut seen: Vec<&Budget> = Vec::new();
        for (budget, _) in &*self.0 {
            let refuse =
                |why: &str| Err(Failure::new(format_args!("{budget} {why} (--limit-fleet)")));
            if seen.contains(&budget) {
                return refuse("has two limits: keep one");
            }
            seen.push(budget);
            let is_memory = budget.resource() == MEMORY;
            if is_memory && budget.path() == "/" {
                return refuse("is for the whole server, which --memory limits: use a tenant");
            }
            let own = set.iter().find(|(path, _)| path == budget.path());
            if own.is_some_and(|(_, own)| own.mode == Some(LimitMode::Soft)) {
                return refuse(
                    "would have no effect, because mode=soft grants what exceeds it: leave one \
                     out",
                );
            }
            let is_own = own.is_some_and(|(_, own)| match is_memory {
                true => own.memory.is_some(),
                false => own.rate.is_some(),
            });
            if is_own {
                return refuse("also has a limit of this server alone: leave one of them out");
            }
        }
        Ok(())
    }
}

impl Plan {
    /// Returns the server's name among those that share limits or are billed together.
    pub(super) fn name(&self, listen: &Address) -> String {
        if let Some(name) = &self.name {
            return name.clone();
        }
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("localhost");
        match listen.tcp() {
            Some(addr) => format!("{host}:{}", addr.port()),
            None => format!("{host}:{listen}"),
        }
    }
}

/// Joins the fleet, if there is a bank. Until the bank has answered, `--outage` applies.
pub(super) fn join(plan: &Plan, cache: &Cache, name: &str) -> Result<Option<Member>, Failure> {
    let Some(address) = &plan.bank else { return Ok(None) };
    let engine = Engine::new(address, &plan.service)?;
    plan.leased.check(&cache.config().tenant_limits)?;
    let metrics = cache.metrics();
    let mut driver = Driver::new(cache.tree(), name);
    let mut limits = Vec::new();
    for (budget, most) in &*plan.leased.0 {
        let (outage, floors) = match plan.outage {
            OutageArg::Strict => (Outage::Strict, 0),
            OutageArg::Open => (Outage::Open(*most), 0),
            OutageArg::Floor(part) => (Outage::Floor(part.of(*most)), part.of(*most)),
        };
        let least = (most / LEAST_PART).max(1);
        let added = match budget.resource() {
            MEMORY => driver.add_level(budget, metrics.memory, least, outage),
            _ => driver.add_rate(budget, metrics.requests, requests(metrics), least, outage),
        };
        added.map_err(|e| Failure::new(format_args!("tenant {:?}: {e}", budget.path())))?;
        limits.push(Limit { budget: budget.clone(), most: *most, floors, per_member: None });
    }
    let count = limits.len();
    let has_files = plan.service.bank_ca.is_some() || plan.service.bank_cert.is_some();
    let certificates = has_files.then(|| (address.clone(), plan.service.clone()));
    let asked = Arc::new(Declaring::new(engine, certificates, limits));
    let fleet = driver.start(Asked(Arc::clone(&asked)));
    let fleet = fleet.map_err(|e| Failure::new(format_args!("cannot start threads: {e}")))?;
    let fleet = Arc::new(fleet);
    let watching = tokio::spawn(watch(Arc::downgrade(&fleet), cache.clone()));
    let (bank, name) = (address.clone(), name.to_owned());
    Ok(Some(Member { bank, name, limits: count, fleet, watching, asked }))
}

/// A bank that is told the limits before the first request, and again after each failure: a
/// restarted bank has forgotten them.
pub(super) struct Declaring {
    engine: Mutex<Engine>,
    /// The bank's address, and the files that hold the trusted authorities and this server's
    /// certificate, if there are any.
    certificates: Option<(submeter_address::Address, ServiceArgs)>,
    limits: Vec<Limit>,
    known: Mutex<Known>,
    /// Whether the next request gives the leases back; such a request waits for nothing.
    leaves: AtomicBool,
}

/// A bank shared by the fleet's thread and others.
struct Asked(Arc<Declaring>);

/// The limits that the bank reported when they were last read. A bank that has forgotten them is
/// told these, not those of the command line: what an operator has set since then stays in force,
/// and what others' floors reserve is not lent.
#[derive(Default)]
struct Known {
    is_declared: bool,
    limits: Vec<Limit>,
    /// When they were last read.
    at: Option<Instant>,
    /// Why limits are not declared, so that the same reason is not reported again.
    undeclared: BTreeMap<Budget, String>,
    refused: Option<Refused>,
}

/// The state of a bank that refuses. It will refuse until an operator changes something there, so
/// it is not asked again for a while, which doubles each time. A bank that is unreachable is asked:
/// that costs it nothing.
#[derive(Debug)]
struct Refused {
    error: EngineError,
    wait: Duration,
    until: Instant,
}

impl Refused {
    /// Short compared with a lease: a request that is refused once, for instance because another
    /// overtook it, is repeated before a lease ends.
    const FIRST: Duration = Duration::from_millis(250);
    /// As long as an operator who has just admitted the server is willing to wait.
    const LONGEST: Duration = Duration::from_secs(15);

    fn again(before: Option<&Refused>, error: EngineError, now: Instant) -> Refused {
        let wait = before.map_or(Self::FIRST, |before| (before.wait * 2).min(Self::LONGEST));
        Refused { error, wait, until: now + wait }
    }
}

/// Maximum age of the known limits.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

impl Declaring {
    fn new(
        engine: Engine,
        certificates: Option<(submeter_address::Address, ServiceArgs)>,
        limits: Vec<Limit>,
    ) -> Declaring {
        let (engine, leaves) = (Mutex::new(engine), AtomicBool::new(false));
        Declaring { engine, certificates, limits, known: Mutex::default(), leaves }
    }

    /// Reads the files of `--bank-ca`, `--bank-cert` and `--bank-key` again, for connections to the
    /// bank from now on. Waits for the request in progress.
    pub(super) fn read_again(&self, turn: &Turn) -> Result<(), Failure> {
        let Some((address, service)) = &self.certificates else { return Ok(()) };
        let file = service.bank_ca.as_deref().or(service.bank_cert.as_deref());
        let read = || Certificates::read(service);
        let new = turn.now.reading("--bank-ca, --bank-cert, --bank-key", file, read)?;
        // Locked only now, not while a file was read: it may be a pipe that nothing writes to. And
        // locked before the turn, which the next one takes on a thread that must not wait.
        let mut engine = self.engine.lock();
        turn.if_latest(|| engine.renew(&new, address)).unwrap_or(Ok(()))
    }

    fn leaves(&self) -> bool {
        // Relaxed: set before the process's last request goes through a channel to this thread.
        self.leaves.load(Ordering::Relaxed)
    }

    fn declare(&self, engine: &Engine, known: &mut Known) -> Result<(), EngineError> {
        let of = |limits: &[Limit], budget: &Budget| {
            limits.iter().find(|limit| limit.budget == *budget).cloned()
        };
        let with_floors = self.limits.iter().any(|limit| limit.floors > 0);
        let there = match engine.limits() {
            // The error of a member that is not an operator of the bank; its limits exist or are
            // refused.
            Err(error) if error.is_refused() && !with_floors => Vec::new(),
            there => there?,
        };
        let mut limits = Vec::new();
        for limit in &self.limits {
            let before = of(&known.limits, &limit.budget);
            let now = match of(&there, &limit.budget) {
                Some(now) => now,
                // Only an operator knows what the floors of all servers add up to.
                None if before.is_none() && limit.floors > 0 => {
                    Limit { floors: 0, ..limit.clone() }
                }
                None => {
                    let declared = before.as_ref().unwrap_or(limit);
                    match engine.set_if_none(declared) {
                        // A member that is not an operator of the bank takes what its operator
                        // sets.
                        Err(error) if error.is_refused() => known.not_declared(limit, &error),
                        set => {
                            set?;
                            known.undeclared.remove(&limit.budget);
                        }
                    }
                    declared.clone()
                }
            };
            if now.floors < limit.floors {
                return Err(EngineError::refused(format!(
                    "the bank reserves no floor of {} for {}: set one for all servers with \
                     `submeter fleet set --floors`, or leave out --outage",
                    limit.floors, limit.budget
                )));
            }
            limits.push(now);
        }
        (known.limits, known.at) = (limits, Some(Instant::now()));
        Ok(())
    }

    fn ask(&self, known: &mut Known, request: &Request) -> Result<Answer, EngineError> {
        let engine = self.engine.lock();
        if !known.is_declared && !self.leaves() {
            self.declare(&engine, known)?;
        }
        let answer = engine.exchange(request);
        known.is_declared = answer.is_ok();
        // A failure here occurs in the next exchange, too.
        if known.is_declared && known.at.is_none_or(|at| at.elapsed() >= LOOK_AGAIN) {
            let _ = self.look(&engine, known);
        }
        answer
    }

    fn look(&self, engine: &Engine, known: &mut Known) -> Result<(), EngineError> {
        match engine.limits() {
            Ok(mut limits) => {
                limits.retain(|limit| self.limits.iter().any(|own| own.budget == limit.budget));
                known.limits = limits;
            }
            // It will not be allowed later either: see `declare`.
            Err(error) if error.is_refused() => {}
            Err(error) => return Err(error),
        }
        known.at = Some(Instant::now());
        Ok(())
    }
}

impl Bank for Asked {
    type Error = EngineError;

    fn exchange(&self, request: &Request) -> Result<Answer, EngineError> {
        self.0.exchange(request)
    }
}

impl Declaring {
    fn exchange(&self, request: &Request) -> Result<Answer, EngineError> {
        let mut known = self.known.lock();
        let refused = known.refused.as_ref().filter(|refused| Instant::now() < refused.until);
        if let Some(refused) = refused.filter(|_| !self.leaves()) {
            return Err(refused.error.clone());
        }
        let answer = self.ask(&mut known, request);
        known.refused = match &answer {
            Err(error) if error.is_refused() => {
                Some(Refused::again(known.refused.as_ref(), error.clone(), Instant::now()))
            }
            _ => None,
        };
        answer
    }
}

impl Known {
    fn not_declared(&mut self, limit: &Limit, error: &EngineError) {
        let why = error.to_string();
        if self.undeclared.get(&limit.budget) != Some(&why) {
            log::warn!("cannot declare {} at the bank: {why}", limit.budget);
            self.undeclared.insert(limit.budget.clone(), why);
        }
    }
}

/// Drops items of tenants that hold more than their lease, and reports when the bank is lost and
/// found again.
async fn watch(fleet: Weak<Fleet>, cache: Cache) {
    let mut ticks = tokio::time::interval(WATCH_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = None;
    let mut learnt = false;
    loop {
        ticks.tick().await;
        let Some(fleet) = fleet.upgrade() else { return };
        let learns = fleet.learns();
        if learns != learnt {
            learnt = learns;
            match learns {
                true => log::warn!("the {LEARNS}"),
                false => log::info!("the bank has learned what was lent before"),
            }
        }
        let error = fleet.exchanges().last_error;
        // Reported whenever it differs: a bank that was unreachable may refuse once it is back.
        if error != last {
            match &error {
                Some(error) => log::warn!("no new leases (--bank): {error}"),
                None => log::info!("the bank lends again"),
            }
            last = error;
        }
        for Status { budget, limit, .. } in fleet.status() {
            let group = cache.tree().get(budget.path());
            let held = group.map_or(0, |group| group.usage(cache.metrics().memory).current);
            if budget.resource() == MEMORY && held > limit {
                let cache = cache.clone();
                // This fails only if it panics, which is reported.
                let _ = tokio::task::spawn_blocking(move || cache.shrink(budget.path())).await;
            }
        }
    }
}

impl Member {
    /// Says where the limits come from, for the greeting.
    pub(super) fn line(&self) -> String {
        let s = if self.limits == 1 { "" } else { "s" };
        format!("{}, with {} limit{s} from {}", self.name, self.limits, self.bank)
    }

    /// Returns the bank whose certificates come from files, if it has any: they are read again.
    pub(super) fn certified(&self) -> Option<Arc<Declaring>> {
        self.asked.certificates.is_some().then(|| Arc::clone(&self.asked))
    }

    /// Shows the leases, and how the bank answers.
    pub(super) fn show(&self, shown: Dashboard) -> Dashboard {
        let leases = Panel::new(
            "fleet",
            "Limits leased",
            vec![
                Column::label("group", "Tenant"),
                Column::label("resource", "Limit"),
                Column::state(
                    "rule",
                    "In force",
                    "Which rule sets the limit",
                    &["lease", "strict", "floor", "open"],
                ),
                Column::gauge("limit", "This server", "What this server may use now"),
                Column::gauge("used", "Used", "What it used at the last request to the bank"),
                Column::gauge(
                    "lease_left_seconds",
                    "Ends in s",
                    "Time until the lease ends unless renewed",
                ),
            ],
        );
        let fleet = Arc::downgrade(&self.fleet);
        let leases = leases.rows(move || {
            let status = fleet.upgrade().map(|fleet| fleet.status()).unwrap_or_default();
            status.iter().map(row).collect()
        });
        let bank = Panel::new(
            "bank",
            "Bank",
            vec![
                Column::label("bank", "Address"),
                Column::state("state", "State", "Whether it lends", &["lends", "learns", "away"]),
                Column::counter("answered", "Answered", "Requests to the bank that it answered"),
                Column::counter("failed", "Failed", "Requests that it did not answer, or refused"),
                Column::counter("late", "Late", "Answers that came too late to be useful"),
                Column::text("why", "Why"),
            ],
        );
        let (fleet, address) = (Arc::downgrade(&self.fleet), self.bank.to_string());
        let bank = bank.rows(move || {
            let row = |fleet: Arc<Fleet>| {
                let exchanges = fleet.exchanges();
                let state = match (&exchanges.last_error, fleet.learns(), exchanges.answered) {
                    (Some(_), ..) | (None, _, 0) => "away",
                    (None, true, _) => "learns",
                    (None, false, _) => "lends",
                };
                let count = |n: u64| CellDoc::figure(n, Shape::Count);
                let why = exchanges.last_error.as_deref().unwrap_or("");
                let counts = [exchanges.answered, exchanges.failed, exchanges.late].map(count);
                let [answered, failed, late] = counts;
                vec![address.as_str().into(), state.into(), answered, failed, late, why.into()]
            };
            fleet.upgrade().map(row).into_iter().collect()
        });
        let fleet = Arc::downgrade(&self.fleet);
        let learns = move || fleet.upgrade().is_some_and(|fleet| fleet.learns());
        let notice = move || learns().then(|| format!("The {LEARNS}."));
        shown.panel(leases).panel(bank).notice(notice)
    }

    /// Returns the leases, so that other servers have them at once.
    pub(super) async fn leave(self) {
        self.watching.abort();
        // Relaxed: the channel to the thread that asks orders it.
        self.asked.leaves.store(true, Ordering::Relaxed);
        // Waits for the bank. This fails only if it panics, which is reported.
        let _ = tokio::task::spawn_blocking(move || drop(self.fleet)).await;
    }
}

fn row(status: &Status) -> Vec<CellDoc> {
    let rule = match status.in_force {
        InForce::Lease => "lease",
        InForce::Strict => "strict",
        InForce::Floor => "floor",
        InForce::Open => "open",
    };
    let shape = match status.budget.resource() {
        MEMORY => Shape::Bytes,
        _ => Shape::Rate,
    };
    vec![
        status.budget.path().into(),
        status.budget.resource().into(),
        rule.into(),
        CellDoc::figure(status.limit, shape),
        CellDoc::figure(status.used, shape),
        CellDoc::figure(status.ends_in.map(|left| left.as_secs()), Shape::Count),
    ]
}

#[cfg(test)]
mod tests {
    use submeter_bank::{Holder, SocketBank, Use};

    use super::*;

    struct Nobody;

    impl submeter_bank::Member for Nobody {
        fn set(&mut self, _: &Budget, _: u64) -> Use {
            Use::default()
        }
    }

    #[test]
    fn a_bank_that_refuses_is_asked_ever_more_seldom() {
        let now = Instant::now();
        let mut refused = None;
        let mut waits = Vec::new();
        for _ in 0..9 {
            let error = EngineError::refused("wrong password".to_owned());
            let next = Refused::again(refused.as_ref(), error, now);
            assert_eq!(next.until, now + next.wait);
            waits.push(next.wait.as_millis());
            refused = Some(next);
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
    }

    /// A member that leaves returns its leases, even if the bank has refused it.
    #[test]
    fn a_leaving_member_returns_its_leases() {
        let engine = Engine::Socket(SocketBank::new("/nowhere/bank.sock"));
        let bank = Declaring::new(engine, None, Vec::new());
        let error = EngineError::refused("wrong password".to_owned());
        bank.known.lock().refused = Some(Refused::again(None, error, Instant::now()));
        let request = Holder::new("a", 1).release(Duration::ZERO, &mut Nobody);
        let answer = || bank.exchange(&request).expect_err("it is nowhere").to_string();
        assert!(answer().contains("wrong password"), "it is not asked");
        // Relaxed: one thread.
        bank.leaves.store(true, Ordering::Relaxed);
        assert!(answer().contains("/nowhere/bank.sock"), "{}", answer());
    }
}
