//! Larger mixes than loom can exhaust, at random: `RUSTFLAGS="--cfg shuttle" cargo test --release`.

use std::sync::Arc;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::models::{Locked, Model, Sequences};
use super::switch::Slots;

const SCHEDULES: usize = 3_000;
/// For a bug that must be found: the first schedule that shows it ends the search.
const SCHEDULES_TO_FIND: usize = 100 * SCHEDULES;
const USERS: usize = 4;

/// Explores at random, and with priorities, which reach the rare orders of few preemptions.
fn explore(model: fn()) {
    shuttle::check_random(model, SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 4);
}

/// Users that get, try and put, a thread that changes the mode, and a kill.
fn everybody_at_once<S: Slots + Default + Send + Sync + 'static>() {
    let model = Model::<S>::new();
    let spawn = |work: Box<dyn FnOnce(&Model<S>) + Send>| {
        let model = Arc::clone(&model);
        thread::spawn(move || work(&model))
    };
    let mut threads: Vec<_> = (0..USERS)
        .map(|place| {
            model.get();
            spawn(Box::new(move |model| {
                let mut mine = 1;
                for _ in 0..4 {
                    match thread_rng().gen_range(0..4u32) {
                        0 => {
                            model.get();
                            mine += 1;
                        }
                        1 => mine += i32::from(model.try_get(true)),
                        2 => mine += i32::from(model.try_get(false)),
                        _ if mine > 1 => {
                            model.put();
                            mine -= 1;
                        }
                        _ => thread::yield_now(),
                    }
                }
                (1..mine).for_each(|_| model.put());
                model.write_and_put(place);
            }))
        })
        .collect();
    threads.push(spawn(Box::new(|model| {
        model.to_atomic();
        model.to_percpu();
        model.to_atomic();
    })));
    threads.push(spawn(Box::new(|model| {
        model.to_percpu();
        model.act(model.switch.help());
    })));
    threads.push(spawn(Box::new(|model| {
        model.kill();
        if model.resurrect() {
            model.kill();
        }
    })));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    model.must_be_released();
    model.reinit();
    model.kill();
    model.must_be_released();
}

#[test]
fn shuttle_percpu_ref_everybody_at_once() {
    explore(everybody_at_once::<Sequences>);
}

#[test]
fn shuttle_percpu_ref_everybody_at_once_locked() {
    explore(everybody_at_once::<Locked>);
}

/// A get that lands in a row that was folded already shows as a release while held, a second one,
/// none at all, or a sum below zero: which comes first is chance, so that no message is expected.
/// That each is this bug's follows from the two models above, which are the same but for it.
#[test]
#[should_panic]
fn shuttle_percpu_ref_finds_a_mode_test_outside_of_the_section() {
    shuttle::check_random(everybody_at_once::<Sequences<true>>, SCHEDULES_TO_FIND);
}
