//! The protocol, one access of shared memory a step.

use crate::protocol::{
    A, At, B, BATCH, CAP, Leaf, Mistake, NONE, Op, REOPENED_MAX, ROOT, Scenario, State, Thread,
    Tight, is_below,
};

/// One thread's next step in a state.
struct Step<'a, P> {
    scenario: &'a Scenario,
    mistake: Mistake,
    state: State,
    index: usize,
    push: &'a mut P,
}

/// Passes each state that a step of the thread leads to; says what the step did wrong.
pub(crate) fn step<P: FnMut(State)>(
    scenario: &Scenario,
    mistake: Mistake,
    state: &State,
    index: usize,
    push: &mut P,
) -> Result<(), String> {
    let Some(&op) = scenario.threads[index].1.get(usize::from(state.threads[index].op)) else {
        return Ok(());
    };
    let mut step = Step { scenario, mistake, state: *state, index, push };
    match op {
        Op::Charge(leaf, n) => step.charge(leaf, n),
        Op::Release(leaf, n) => step.release(leaf, n),
        Op::SetLimit(level, limit) => {
            step.set_limit(level, limit);
            Ok(())
        }
        Op::Kill(leaf) => {
            step.kill(leaf);
            Ok(())
        }
    }
}

impl<P: FnMut(State)> Step<'_, P> {
    fn thread(&mut self) -> &mut Thread {
        &mut self.state.threads[self.index]
    }

    fn cpu(&self) -> usize {
        self.scenario.threads[self.index].0
    }

    /// Ends the step. Who is in a sequence on the same CPU was interrupted, and starts it again.
    fn go(&mut self, at: At) {
        let cpu = self.cpu();
        self.thread().at = at;
        self.restart(|of| of == cpu);
        (self.push)(self.state);
    }

    fn done(&mut self) {
        let thread = self.thread();
        // Registers that are not read again would only multiply the states.
        *thread = Thread::before(thread.op + 1, thread.holds);
        self.go(At::Next);
    }

    fn restart(&mut self, on: impl Fn(usize) -> bool) {
        let outside = self.mistake == Mistake::GateOutside;
        for (index, &(cpu, _)) in self.scenario.threads.iter().enumerate() {
            let thread = &mut self.state.threads[index];
            if index != self.index && on(cpu) && matches!(thread.at, At::Word | At::Commit) {
                thread.at = if outside { At::Word } else { At::Gate };
                thread.loaded = 0;
            }
        }
    }

    fn charge(&mut self, leaf: usize, n: u8) -> Result<(), String> {
        let at = self.thread().at;
        match at {
            At::Next => self.go(At::Gate),
            At::Gate | At::Word => self.look(leaf, At::Cold),
            At::Commit => {
                let (cpu, word) = (self.cpu(), self.thread().loaded);
                if word < n {
                    self.go(At::Cold);
                } else {
                    self.state.stock(leaf).words[cpu] = word - n;
                    self.thread().holds[leaf - A] += n;
                    self.keeps_limits(leaf)?;
                    self.done();
                }
            }
            At::Cold => self.cold(leaf),
            At::RefillLeaf | At::RefillRoot | At::RefillWord | At::RefillUndo => {
                self.refill(leaf, n);
            }
            At::RefillRootBack | At::RefillLeafBack => self.refill_back(leaf, n),
            At::OpenLeaf | At::OpenRoot | At::OpenUndo | At::OpenGate => self.open(leaf),
            At::ExactLeaf | At::ExactRoot | At::ExactUndo => self.exact(leaf, n),
            At::Refused | At::RefusedHeld | At::RefusedAgain => return self.refused(leaf, n),
            _ => self.fold(At::ExactLeaf),
        }
        Ok(())
    }

    /// The first two steps of a sequence.
    fn look(&mut self, leaf: usize, closed: At) {
        let cpu = self.cpu();
        if self.thread().at == At::Gate {
            let open = self.state.stock(leaf).gate;
            self.go(if open { At::Word } else { closed });
        } else {
            self.thread().loaded = self.state.stock(leaf).words[cpu];
            self.go(At::Commit);
        }
    }

    /// A grant from stock keeps to limits that were set before.
    fn keeps_limits(&self, leaf: usize) -> Result<(), String> {
        for level in [leaf, ROOT] {
            if self.state.usage(level) > self.state.levels[level].effective {
                return Err(format!("granted beyond a limit at {level}: {:?}", self.state));
            }
        }
        Ok(())
    }

    fn is_loose(&self, leaf: usize) -> bool {
        [leaf, ROOT].iter().all(|&level| self.state.levels[level].tight == Tight::Loose)
    }

    /// Takes the leaf's lock, where it is free, to refill or to open it.
    fn cold(&mut self, leaf: usize) {
        let asks = self.mistake != Mistake::OpenedUnasked;
        let loose = self.is_loose(leaf);
        let stock = *self.state.stock(leaf);
        let ignored = self.mistake == Mistake::FoldIgnoresRefill;
        if stock.locked && !ignored {
            self.go(At::ExactLeaf);
        } else if stock.state == Leaf::Open && loose {
            // The mistake: nothing keeps a fold out.
            self.state.stock(leaf).locked |= !ignored;
            self.go(At::RefillLeaf);
        } else if stock.state == Leaf::Closed
            && (loose || !asks)
            && !stock.killed
            && stock.opened < REOPENED_MAX
        {
            self.state.stock(leaf).locked = true;
            self.thread().loaded = stock.words.iter().sum();
            self.go(At::OpenLeaf);
        } else {
            self.go(At::ExactLeaf);
        }
    }

    fn reserve(&mut self, level: usize, n: u8) -> bool {
        let level = &mut self.state.levels[level];
        let fits = level.held + n <= level.limit;
        level.held += if fits { n } else { 0 };
        fits
    }

    fn unlock(&mut self, leaf: usize) {
        if self.mistake != Mistake::FoldIgnoresRefill {
            self.state.stock(leaf).locked = false;
        }
    }

    /// Reserves what is asked for, and a batch for the word.
    fn refill(&mut self, leaf: usize, n: u8) {
        let at = self.thread().at;
        match at {
            At::RefillLeaf => {
                if self.reserve(leaf, n + BATCH) {
                    self.go(At::RefillRoot);
                } else {
                    self.unlock(leaf);
                    self.go(At::ExactLeaf);
                }
            }
            At::RefillRoot => {
                let fits = self.reserve(ROOT, n + BATCH);
                self.go(if fits { At::RefillWord } else { At::RefillUndo });
            }
            At::RefillUndo => {
                self.state.levels[leaf].held -= n + BATCH;
                self.unlock(leaf);
                self.go(At::ExactLeaf);
            }
            // One step: the lock keeps the gate open, and other threads of this CPU restart it.
            _ => {
                let cpu = self.cpu();
                let word = &mut self.state.stock(leaf).words[cpu];
                if *word + BATCH > CAP {
                    self.go(At::RefillRootBack);
                    return;
                }
                *word += BATCH;
                self.unlock(leaf);
                self.thread().holds[leaf - A] += n;
                self.done();
            }
        }
    }

    /// The word was filled meanwhile, by what others released.
    fn refill_back(&mut self, leaf: usize, n: u8) {
        if self.thread().at == At::RefillRootBack {
            self.state.levels[ROOT].held -= BATCH;
            self.go(At::RefillLeafBack);
        } else {
            self.state.levels[leaf].held -= BATCH;
            self.unlock(leaf);
            self.thread().holds[leaf - A] += n;
            self.done();
        }
    }

    /// Reserves what the words hold already, then opens.
    fn open(&mut self, leaf: usize) {
        let (at, void) = (self.thread().at, self.thread().loaded);
        let unreserved = self.mistake == Mistake::OpenedUnreserved;
        match at {
            At::OpenLeaf if unreserved => self.go(At::OpenGate),
            At::OpenLeaf if self.reserve(leaf, void) => self.go(At::OpenRoot),
            At::OpenRoot => {
                let fits = self.reserve(ROOT, void);
                self.go(if fits { At::OpenGate } else { At::OpenUndo });
            }
            At::OpenGate => {
                let stock = self.state.stock(leaf);
                (stock.state, stock.gate, stock.locked) = (Leaf::Open, true, false);
                stock.opened += 1;
                self.thread().loaded = 0;
                self.go(At::Gate);
            }
            _ => {
                if at == At::OpenUndo {
                    self.state.levels[leaf].held -= void;
                }
                self.state.stock(leaf).locked = false;
                self.thread().loaded = 0;
                self.go(At::ExactLeaf);
            }
        }
    }

    fn exact(&mut self, leaf: usize, n: u8) {
        let at = self.thread().at;
        match at {
            At::ExactLeaf => {
                let fits = self.reserve(leaf, n);
                self.thread().level = if fits { 0 } else { leaf as u8 };
                self.go(if fits { At::ExactRoot } else { At::Refused });
            }
            At::ExactRoot if self.reserve(ROOT, n) => {
                self.thread().holds[leaf - A] += n;
                self.done();
            }
            At::ExactRoot => self.go(At::ExactUndo),
            _ => {
                self.state.levels[leaf].held -= n;
                self.thread().level = ROOT as u8;
                self.go(At::Refused);
            }
        }
    }

    /// Refuses if the level is drained, and stays so while what it holds is looked at.
    fn refused(&mut self, leaf: usize, n: u8) -> Result<(), String> {
        let thread = *self.thread();
        let at = usize::from(thread.level);
        let level = self.state.levels[at];
        match thread.at {
            At::Refused if level.tight != Tight::Drained => self.begin_fold(at),
            At::Refused => {
                self.thread().epoch = level.epoch;
                self.go(At::RefusedHeld);
            }
            At::RefusedHeld if level.held + n <= level.limit => self.go(At::ExactLeaf),
            At::RefusedHeld => {
                self.thread().justified = self.state.stocked(at) + self.surplus(at) == 0;
                self.go(At::RefusedAgain);
            }
            _ => {
                let same = level.tight == Tight::Drained && level.epoch == thread.epoch;
                if !same && self.mistake != Mistake::RefusedAtOnce {
                    self.go(At::Refused);
                } else if thread.justified {
                    self.done();
                } else {
                    let state = &self.state;
                    return Err(format!("refused although it fits, at {at} of {leaf}: {state:?}"));
                }
            }
        }
        Ok(())
    }

    /// What refills have reserved at a level and not put into a word.
    fn surplus(&self, level: usize) -> u8 {
        let of = |(thread, &(_, ops)): (&Thread, &(usize, &[Op]))| {
            let Some(&Op::Charge(leaf, _)) = ops.get(usize::from(thread.op)) else { return 0 };
            let reserved = match thread.at {
                At::RefillWord | At::RefillRootBack => true,
                At::RefillRoot | At::RefillUndo | At::RefillLeafBack => level != ROOT,
                _ => false,
            };
            if reserved && is_below(leaf, level) { BATCH } else { 0 }
        };
        self.state.threads.iter().zip(self.scenario.threads).map(of).sum()
    }

    fn begin_fold(&mut self, at: usize) {
        let level = &mut self.state.levels[at];
        if level.tight == Tight::Loose {
            level.tight = Tight::Tightening;
        }
        let epoch = level.epoch;
        let thread = self.thread();
        (thread.level, thread.epoch, thread.leaf) = (at as u8, epoch, A as u8);
        (thread.closing, thread.early) = ([NONE; 2], [0; 2]);
        self.go(At::FoldClose);
    }

    /// Makes the next leaf below the level the one to look at, or goes on.
    fn next_leaf(&mut self, again: At, then: At) {
        let leaf = self.thread().leaf;
        if usize::from(leaf) == A {
            self.thread().leaf = B as u8;
            self.go(again);
        } else {
            self.thread().leaf = A as u8;
            self.go(then);
        }
    }

    fn fold(&mut self, then: At) {
        let thread = *self.thread();
        let (leaf, level) = (usize::from(thread.leaf), usize::from(thread.level));
        match thread.at {
            At::FoldClose => self.fold_close(leaf, level),
            At::FoldBarrier => {
                if thread.closing != [NONE; 2] && self.mistake != Mistake::NoBarrier {
                    self.restart(|_| true);
                }
                self.go(At::FoldLock);
            }
            At::FoldLock => self.fold_lock(leaf),
            At::FoldRoot => {
                self.state.levels[ROOT].held -= thread.loaded;
                self.go(At::FoldLeaf);
            }
            At::FoldLeaf => {
                self.state.levels[leaf].held -= thread.loaded;
                let stock = self.state.stock(leaf);
                (stock.state, stock.locked) = (Leaf::Closed, false);
                self.thread().loaded = 0;
                self.next_leaf(At::FoldLock, At::FoldEnd);
            }
            _ => {
                let level = &mut self.state.levels[level];
                if level.tight == Tight::Tightening && level.epoch == thread.epoch {
                    level.tight = Tight::Drained;
                }
                let thread = self.thread();
                (thread.closing, thread.early) = ([NONE; 2], [0; 2]);
                self.go(then);
            }
        }
    }

    /// Waits for the lock, which is what waits for a refill under way.
    fn fold_close(&mut self, leaf: usize, level: usize) {
        let ignored = self.mistake == Mistake::FoldIgnoresRefill;
        let stock = self.state.stock(leaf);
        if is_below(leaf, level) {
            if stock.locked && !ignored {
                return;
            }
            if stock.state == Leaf::Open {
                (stock.state, stock.gate) = (Leaf::Closing, false);
            }
            if stock.state == Leaf::Closing {
                let (opened, sum) = (stock.opened, stock.words.iter().sum());
                let thread = self.thread();
                thread.closing[leaf - A] = opened;
                thread.early[leaf - A] = sum;
            }
        }
        self.next_leaf(At::FoldClose, At::FoldBarrier);
    }

    fn fold_lock(&mut self, leaf: usize) {
        let (closing, early) = (self.thread().closing[leaf - A], self.thread().early[leaf - A]);
        let stock = *self.state.stock(leaf);
        if stock.locked {
            return;
        }
        let known = closing == stock.opened || self.mistake == Mistake::AnyBarrier;
        if stock.state == Leaf::Closing && closing != NONE && known {
            self.state.stock(leaf).locked = true;
            let lowered = self.mistake == Mistake::LoweredEarly;
            self.thread().loaded = if lowered { early } else { stock.words.iter().sum() };
            self.go(At::FoldRoot);
        } else {
            self.next_leaf(At::FoldLock, At::FoldEnd);
        }
    }

    fn release(&mut self, leaf: usize, n: u8) -> Result<(), String> {
        let (at, cpu) = (self.thread().at, self.cpu());
        match at {
            At::Next if self.thread().holds[leaf - A] < n => self.done(),
            At::Next => self.go(At::Gate),
            At::Gate | At::Word => self.look(leaf, At::BackLeaf),
            At::Commit => {
                let word = self.thread().loaded;
                if word + n > CAP {
                    self.go(At::BackLeaf);
                } else {
                    self.state.stock(leaf).words[cpu] = word + n;
                    self.thread().holds[leaf - A] -= n;
                    self.done();
                }
            }
            At::BackLeaf => {
                self.state.levels[leaf].held -= n;
                self.thread().holds[leaf - A] -= n;
                self.go(At::BackRoot);
            }
            _ => {
                self.state.levels[ROOT].held -= n;
                self.done();
            }
        }
        Ok(())
    }

    fn set_limit(&mut self, at: usize, limit: u8) {
        match self.thread().at {
            At::Next => {
                let level = &mut self.state.levels[at];
                level.limit = limit;
                level.effective = level.effective.max(limit);
                self.thread().level = at as u8;
                self.go(At::Outside);
            }
            At::Outside => {
                let level = self.state.levels[at];
                let folds = level.held > limit && self.mistake != Mistake::LimitWithoutFold;
                if folds && level.tight != Tight::Drained {
                    self.begin_fold(at);
                } else {
                    self.go(At::LimitSet);
                }
            }
            At::LimitSet => {
                // What is used beyond it stays; only grants that come later must keep to it.
                self.state.levels[at].effective = limit;
                self.done();
            }
            _ => self.fold(At::LimitSet),
        }
    }

    fn kill(&mut self, leaf: usize) {
        match self.thread().at {
            At::Next => {
                self.state.stock(leaf).killed = true;
                self.begin_fold(leaf);
            }
            At::LimitSet => self.done(),
            _ => self.fold(At::LimitSet),
        }
    }
}
