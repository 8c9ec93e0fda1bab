//! Visits every state that can be reached, and says what is wrong with the first that is.

use std::collections::{HashSet, VecDeque};

use crate::protocol::{A, At, B, Leaf, Mistake, ROOT, Scenario, State, Tight};
use crate::steps::step;

/// More than any scenario has: a model that grows is to be noticed.
const STATES_MAX: usize = 3_000_000;

/// Returns how many states there are, or what is wrong in one of them.
pub(crate) fn explore(scenario: &Scenario, mistake: Mistake) -> Result<usize, String> {
    let start = State::new(scenario);
    let (mut seen, mut next) = (HashSet::from([start]), VecDeque::from([start]));
    let mut found = Vec::new();
    while let Some(state) = next.pop_front() {
        check(&state)?;
        for thread in 0..scenario.threads.len() {
            step(scenario, mistake, &state, thread, &mut |after| found.push(after))?;
        }
        let over = (0..scenario.threads.len()).all(|thread| is_over(scenario, &state, thread));
        if !over && found.is_empty() {
            return Err(format!("nobody can go on: {state:?}"));
        }
        loosen(&state, &mut |after| found.push(after));
        next.extend(found.drain(..).filter(|&after| seen.insert(after)));
        if seen.len() > STATES_MAX {
            return Err("more states than are looked at".to_owned());
        }
    }
    Ok(seen.len())
}

fn is_over(scenario: &Scenario, state: &State, thread: usize) -> bool {
    usize::from(state.threads[thread].op) == scenario.threads[thread].1.len()
}

/// A level that has room again lets leaves open. When, is policy: here, whenever it is drained.
fn loosen(state: &State, push: &mut impl FnMut(State)) {
    for level in [ROOT, A, B] {
        if state.loosened > 0 && state.levels[level].tight == Tight::Drained {
            let mut after = *state;
            after.loosened -= 1;
            after.levels[level].tight = Tight::Loose;
            after.levels[level].epoch += 1;
            push(after);
        }
    }
}

fn check(state: &State) -> Result<(), String> {
    let at_rest = state.threads.iter().all(|thread| thread.at == At::Next);
    for level in [ROOT, A, B] {
        let (held, used) = (state.levels[level].held, state.usage(level));
        if used > held {
            return Err(format!("more is used than held at {level}: {state:?}"));
        }
        if at_rest && held != used + state.stocked(level) {
            return Err(format!("room is lost at {level}: {state:?}"));
        }
    }
    let closing = state.stocks.iter().any(|stock| stock.state == Leaf::Closing || stock.locked);
    if at_rest && closing {
        return Err(format!("a leaf is left half-closed: {state:?}"));
    }
    Ok(())
}
