//! A fleet in virtual time: members, a bank, and a network that loses, duplicates and delays
//! messages.
//!
//! Everything follows from the seed. This does not simulate sockets or tasks, as turmoil or madsim
//! do: the protocol has neither, and a queue of events runs a thousand times as many schedules.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use submeter_bank::{
    Answer, Budget, Holder, InForce, Ledger, Member, Outage, Past, RefusedError, Request, Use,
};

pub(crate) const TTL_MS: u64 = 2_000;
const FAULTS_END_MS: u64 = 12_000;
const END_MS: u64 = FAULTS_END_MS + 4 * TTL_MS;
/// As the documentation of `Ledger::on_wall_clock` requires.
const ENGINE_TICK_MS: u64 = TTL_MS / 10;
const ROOT: usize = 0;
/// The limits of the root and of its two children.
const LIMITS: [u64; 3] = [1_000, 700, 500];
const FLOOR: u64 = 20;

/// A rule of the protocol that a schedule leaves out, by changing what passes between the two
/// sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Without {
    Nothing,
    /// The member accepts any answer, not only that to its last request.
    LastAnswerOnly,
    /// The member uses its leases for twice as long.
    EarlyEnd,
    /// The member returns what it still uses.
    ShrinkFirst,
    /// The ledger counts what it answers, while the member still has more.
    CountOfWhatIsHad,
    /// The ledger treats old and duplicated requests as new ones.
    Sequence,
    /// A restarted ledger lends at once.
    Learning,
    /// The ledger believes jumps of its clock.
    WallClock,
    /// The ledger also lends what members fall back to.
    Floors,
}

/// A violation of the protocol's promises.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    Overshoot { budget: String, in_use: u64, limit: u64 },
    Miscount { budget: String, counted: u64 },
    Stranded { amount: u64, for_ms: u64 },
    NotRecovered { member: usize },
}

/// A clock that runs a little too fast or too slow. It is read in milliseconds.
#[derive(Clone, Copy)]
struct Clock {
    per_mille: u64,
    offset_ms: u64,
}

impl Clock {
    fn read(self, true_ms: u64) -> Duration {
        Duration::from_millis(true_ms * self.per_mille / 1_000 + self.offset_ms)
    }

    /// Returns the first true time at which this clock shows at least `time`.
    fn when(self, time: Duration) -> u64 {
        let ms = u64::try_from(time.as_nanos().div_ceil(1_000_000)).expect("a short time");
        (ms.saturating_sub(self.offset_ms) * 1_000).div_ceil(self.per_mille)
    }
}

/// A member's own limits: two groups below a root.
#[derive(Default)]
struct Local {
    limit: [u64; 3],
    used: [u64; 3],
    refused: [u64; 3],
}

impl Local {
    fn charge(&mut self, child: usize, n: u64) -> bool {
        for at in [ROOT, child] {
            if self.used[at] + n > self.limit[at] {
                self.refused[at] += n;
                return false;
            }
        }
        self.used[ROOT] += n;
        self.used[child] += n;
        true
    }

    fn release(&mut self, child: usize, n: u64) {
        let n = n.min(self.used[child]);
        self.used[ROOT] -= n;
        self.used[child] -= n;
    }

    /// What a program does at once when its lease has ended.
    fn give_back(&mut self) {
        for child in [1, 2] {
            self.release(child, self.used[child].saturating_sub(self.limit[child]));
        }
        for child in [1, 2] {
            self.release(child, self.used[ROOT].saturating_sub(self.limit[ROOT]));
        }
    }
}

fn index(budget: &Budget) -> usize {
    match budget.path() {
        "/" => ROOT,
        "/a" => 1,
        _ => 2,
    }
}

fn budgets() -> [Budget; 3] {
    ["/", "/a", "/b"].map(|path| Budget::new(path, "memory").expect("a name"))
}

impl Member for Local {
    fn set(&mut self, budget: &Budget, amount: u64) -> Use {
        let at = index(budget);
        self.limit[at] = amount;
        Use { used: self.used[at], refused: std::mem::take(&mut self.refused[at]) }
    }
}

struct Process {
    holder: Holder,
    local: Local,
    clock: Clock,
    epoch: u64,
    up: bool,
    frozen_until: u64,
    /// Frozen, and its timer has not run since: nothing else in it runs earlier.
    asleep: bool,
    cut_off_until: u64,
    /// How eager the program is, out of 100.
    appetite: u64,
    /// When the next wake-up is due, so that each process has one in the queue.
    wakes_at: u64,
    last_sequence: u64,
}

enum Event {
    Wake { member: usize, epoch: u64 },
    Load { member: usize },
    Request { member: usize, request: Request },
    Answer { member: usize, epoch: u64, answer: Answer },
    EngineTick,
    EngineStart,
    Start { member: usize },
    Fault,
}

pub(crate) struct World {
    rng: Rng,
    without: Without,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    budgets: [Budget; 3],
    processes: Vec<Process>,
    outage: Outage,
    engine: Option<Ledger>,
    engine_clock: Clock,
    wall_clock: bool,
    jumped_at: u64,
    /// When the engine last heard of each process.
    heard: BTreeMap<u64, u64>,
    arrivals: u64,
    pub(crate) admitted: u64,
}

impl World {
    pub(crate) fn new(seed: u64, without: Without) -> Self {
        let mut rng = Rng::with_seed(seed);
        let outage = if rng.bool() { Outage::Strict } else { Outage::Floor(FLOOR) };
        let wall_clock = rng.bool();
        let engine_clock = Clock { per_mille: rng.u64(980..=1_020), offset_ms: 1_000_000_000 };
        let mut world = Self {
            without,
            now: 0,
            queue: BTreeMap::new(),
            events: 0,
            budgets: budgets(),
            processes: Vec::new(),
            outage,
            engine: None,
            engine_clock,
            wall_clock,
            jumped_at: 0,
            heard: BTreeMap::new(),
            arrivals: 0,
            admitted: 0,
            rng,
        };
        world.engine = Some(world.ledger(Past::None));
        for member in 0..world.rng.usize(2..=4) {
            let process = world.process(member);
            world.processes.push(process);
            world.wake(member);
            world.after(0, Event::Load { member });
        }
        world.after(0, Event::EngineTick);
        world.after(100, Event::Fault);
        world
    }

    /// Runs the schedule to its end, or to the first violation.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            if at > END_MS {
                break;
            }
            self.now = at;
            self.handle(event)?;
            self.check_use()?;
        }
        // Long after the last fault, every member has a lease again.
        for (member, process) in self.processes.iter().enumerate() {
            if process.holder.in_force(&self.budgets[ROOT]) != Some(InForce::Lease) {
                return Err(Violation::NotRecovered { member });
            }
        }
        Ok(())
    }

    fn ledger(&self, past: Past) -> Ledger {
        let floor = match self.outage {
            Outage::Floor(floor) if self.without != Without::Floors => floor,
            _ => 0,
        };
        let past = if self.without == Without::Learning { Past::None } else { past };
        let mut ledger = Ledger::new(Duration::from_millis(TTL_MS), past);
        if self.wall_clock && self.without != Without::WallClock {
            ledger = ledger.on_wall_clock();
        }
        for (budget, limit) in self.budgets.iter().zip(LIMITS) {
            // At most four members are up at a time.
            ledger.set_limit(budget, limit, floor * 4).expect("floors below the limit");
        }
        ledger
    }

    fn process(&mut self, member: usize) -> Process {
        let epoch = self.rng.u64(..);
        let mut holder = Holder::new(&format!("member-{member}"), epoch);
        for budget in &self.budgets {
            holder.add(budget.clone(), 30, self.outage);
        }
        let clock =
            Clock { per_mille: self.rng.u64(980..=1_020), offset_ms: self.rng.u64(0..1_000_000) };
        Process {
            holder,
            local: Local::default(),
            clock,
            epoch,
            up: true,
            frozen_until: 0,
            asleep: false,
            cut_off_until: 0,
            appetite: self.rng.u64(0..=100),
            wakes_at: u64::MAX,
            last_sequence: 0,
        }
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.events += 1;
        self.queue.insert((self.now + ms, self.events), event);
    }

    /// Queues the process's next wake-up, unless an earlier one is queued.
    fn wake(&mut self, member: usize) {
        let process = &mut self.processes[member];
        let at = process.clock.when(process.holder.next()).max(self.now);
        if at < process.wakes_at {
            process.wakes_at = at;
            let epoch = process.epoch;
            self.after(at - self.now, Event::Wake { member, epoch });
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        // Events for a stopped process wait for it.
        let (Event::Wake { member, .. } | Event::Load { member } | Event::Answer { member, .. }) =
            event
        else {
            return self.handle_outside(event);
        };
        let process = &mut self.processes[member];
        let left = process.frozen_until.saturating_sub(self.now);
        if left > 0 || process.asleep && !matches!(event, Event::Wake { .. }) {
            self.after(left, event);
            return Ok(());
        }
        match event {
            // Other wake-ups were replaced by an earlier one.
            Event::Wake { epoch, .. }
                if epoch == process.epoch && process.up && process.wakes_at <= self.now =>
            {
                process.wakes_at = u64::MAX;
                process.asleep = false;
                self.act(member);
            }
            Event::Load { .. } => {
                if self.processes[member].up {
                    self.load(member);
                }
                let pause = self.rng.u64(20..200);
                self.after(pause, Event::Load { member });
            }
            Event::Answer { epoch, mut answer, .. } if epoch == process.epoch && process.up => {
                if self.without == Without::EarlyEnd {
                    answer.ttl *= 2;
                }
                if self.without == Without::LastAnswerOnly {
                    answer.sequence = process.last_sequence;
                }
                let process = &mut self.processes[member];
                let now = process.clock.read(self.now);
                process.holder.accept(now, &answer, &mut process.local);
                self.wake(member);
            }
            _ => {}
        }
        Ok(())
    }

    fn handle_outside(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Request { member, request } => self.deliver(member, request)?,
            Event::EngineTick => {
                if let Some(engine) = &mut self.engine {
                    engine.advance(self.engine_clock.read(self.now));
                    self.check_stranded()?;
                }
                self.after(ENGINE_TICK_MS, Event::EngineTick);
            }
            Event::EngineStart => {
                self.heard.clear();
                self.engine = Some(self.ledger(Past::Unknown));
            }
            Event::Start { member } => {
                self.processes[member] = self.process(member);
                self.wake(member);
            }
            Event::Fault => {
                if self.now < FAULTS_END_MS {
                    self.fault();
                    let pause = self.rng.u64(50..1_500);
                    self.after(pause, Event::Fault);
                }
            }
            Event::Wake { .. } | Event::Load { .. } | Event::Answer { .. } => unreachable!(),
        }
        Ok(())
    }

    /// Runs a process's timer: ends its leases, and asks the bank when it is time.
    fn act(&mut self, member: usize) {
        let process = &mut self.processes[member];
        let now = process.clock.read(self.now);
        let due = process.holder.tick(now, &mut process.local);
        if process.holder.in_force(&self.budgets[ROOT]) != Some(InForce::Lease) {
            process.local.give_back();
        }
        if due {
            let mut request = process.holder.request(now, &mut process.local);
            process.last_sequence = request.sequence;
            if self.without == Without::ShrinkFirst {
                let floor = if let Outage::Floor(floor) = self.outage { floor } else { 0 };
                for want in &mut request.wants {
                    want.has = process.local.limit[index(&want.budget)].saturating_sub(floor);
                }
            }
            self.send(member, |request| Event::Request { member, request }, &request);
        }
        self.wake(member);
    }

    /// Sends a message once, several times, or never.
    fn send<T: Clone>(&mut self, member: usize, event: impl Fn(T) -> Event, message: &T) {
        let faulty = self.now < FAULTS_END_MS;
        if self.now < self.processes[member].cut_off_until || (faulty && self.rng.u8(0..10) == 0) {
            return;
        }
        let copies = if faulty && self.rng.u8(0..8) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            let slow = faulty && self.rng.u8(0..6) == 0;
            let delay = self.rng.u64(if slow { 0..2 * TTL_MS } else { 1..10 });
            self.after(delay, event(message.clone()));
        }
    }

    /// Does the program's work: charges and gives back, at either child.
    fn load(&mut self, member: usize) {
        let process = &mut self.processes[member];
        if self.rng.u8(0..30) == 0 {
            process.appetite = self.rng.u64(0..=100);
        }
        for child in [1, 2] {
            if self.rng.u64(0..100) < process.appetite {
                if process.local.charge(child, self.rng.u64(1..200)) {
                    self.admitted += 1;
                } else {
                    process.holder.refused(&self.budgets[child]);
                }
            } else {
                process.local.release(child, self.rng.u64(1..200));
            }
        }
        self.wake(member);
    }

    /// Hands a request to the engine, and sends the answer back.
    fn deliver(&mut self, member: usize, mut request: Request) -> Result<(), Violation> {
        let Some(engine) = &mut self.engine else {
            return Ok(());
        };
        let (epoch, sequence) = (request.epoch, request.sequence);
        self.arrivals += 1;
        if self.without == Without::Sequence {
            request.sequence = self.arrivals;
        }
        if self.without == Without::CountOfWhatIsHad {
            request.wants.iter_mut().for_each(|want| want.has = 0);
        }
        let answer: Result<Answer, RefusedError> =
            engine.exchange(self.engine_clock.read(self.now), &request);
        let Ok(mut answer) = answer else {
            return Ok(());
        };
        self.heard.insert(epoch, self.now);
        answer.sequence = sequence;
        self.check_counts()?;
        self.send(member, |answer| Event::Answer { member, epoch, answer }, &answer);
        Ok(())
    }

    fn fault(&mut self) {
        let member = self.rng.usize(..self.processes.len());
        let pause = self.rng.u64(1..2 * TTL_MS);
        match self.rng.u8(0..6) {
            0 => {
                self.processes[member].up = false;
                self.processes[member].asleep = false;
                self.after(pause, Event::Start { member });
            }
            1 => {
                let process = &mut self.processes[member];
                process.frozen_until = process.frozen_until.max(self.now + pause);
                process.asleep = process.up;
                // The timer is the first to run again. A program that charges before it does so
                // under an old limit; only the operating system could prevent that.
                process.wakes_at = self.now + pause;
                let epoch = process.epoch;
                self.after(pause, Event::Wake { member, epoch });
            }
            2 | 3 => self.processes[member].cut_off_until = self.now + pause,
            4 => {
                self.engine = None;
                self.after(pause, Event::EngineStart);
            }
            _ => {
                let hour = 3_600_000;
                // One jump in each time to live, if the engine's clock may jump.
                if self.wall_clock && self.now >= self.jumped_at + 2 * TTL_MS {
                    self.jumped_at = self.now;
                    let offset = &mut self.engine_clock.offset_ms;
                    *offset = if self.rng.bool() { *offset + hour } else { *offset - hour };
                }
            }
        }
    }

    /// Checks that what all members may use, and do use, is within each limit.
    fn check_use(&self) -> Result<(), Violation> {
        for (at, budget) in self.budgets.iter().enumerate() {
            let awake = |process: &&Process| process.up && !process.asleep;
            let in_use = self
                .processes
                .iter()
                .filter(awake)
                .map(|process| process.local.limit[at].max(process.local.used[at]));
            let (in_use, limit) = (in_use.sum(), LIMITS[at]);
            if in_use > limit {
                return Err(Violation::Overshoot { budget: budget.to_string(), in_use, limit });
            }
        }
        Ok(())
    }

    /// Checks that the ledger never counts more than there is.
    fn check_counts(&self) -> Result<(), Violation> {
        let Some(engine) = &self.engine else { return Ok(()) };
        for (at, budget) in self.budgets.iter().enumerate() {
            let counted = engine.lent(budget).map(|lent| lent.amount).sum();
            if counted > LIMITS[at] {
                return Err(Violation::Miscount { budget: budget.to_string(), counted });
            }
        }
        Ok(())
    }

    /// Checks that a crashed process's part is free after one time to live, give or take the clock.
    fn check_stranded(&self) -> Result<(), Violation> {
        let Some(engine) = &self.engine else { return Ok(()) };
        for lent in self.budgets.iter().flat_map(|budget| engine.lent(budget)) {
            let lives = self.processes.iter().any(|one| one.up && one.epoch == lent.epoch);
            let for_ms = self.now - self.heard.get(&lent.epoch).copied().unwrap_or(0);
            if !lives && for_ms > TTL_MS * 103 / 100 + 3 * ENGINE_TICK_MS {
                return Err(Violation::Stranded { amount: lent.amount, for_ms });
            }
        }
        Ok(())
    }
}
