//! Every interleaving, within loom's memory model: `RUSTFLAGS="--cfg loom" cargo test --release`.
//!
//! Each model runs over sequences and over locked rows. Models of mistakes pass only while loom
//! finds the mistake, each by its own message.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::count::{Count, Kill, Put};
use super::models::{Locked, Mistake, Model, Modelled, Sequences, was_per_cpu};
use super::switch::Stopping;
use crate::models::{Note, either_first, explore_all, explore_briefly, explore_within, witness};

/// Explores with two preemptions, which are enough to show each of the mistakes here.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    explore_briefly(2, model);
}

/// Instantiates a model for both implementations of words.
macro_rules! on_both {
    ($model:ident: $sequences:ident, $locked:ident) => {
        #[test]
        fn $sequences() {
            explore($model::<Sequences>);
        }

        #[test]
        fn $locked() {
            explore($model::<Locked>);
        }
    };
}

/// Witnesses either thread as the last one, after a kill across which others hold references.
fn witness_either_last<S: Modelled>(model: &Model<S>) {
    witness("a last put that the fold meets", model.releases() == 1);
    witness("a last put after the fold", model.releases() == 0);
}

/// A user takes another reference, and puts both, while the owner kills.
fn users_and_a_kill<S: Modelled>() {
    let model = Model::<S>::new();
    model.get();
    let user = model.spawn(|model| {
        model.get();
        model.put();
        model.write_and_put(0);
    });
    model.kill();
    witness_either_last(&model);
    user.join().unwrap();
    model.must_be_released();
}
on_both!(users_and_a_kill: loom_percpu_ref_1_releases_once,
    loom_percpu_ref_1_releases_once_locked);

/// Two users each hold a reference that was taken elsewhere.
fn each_put_meets_the_fold<S: Modelled>() {
    let model = Model::<S>::new();
    model.get();
    model.get();
    let users: Vec<_> =
        (0..2).map(|place| model.spawn(move |model| model.write_and_put(place))).collect();
    model.kill();
    witness_either_last(&model);
    users.into_iter().for_each(|user| user.join().unwrap());
    model.must_be_released();
}
on_both!(each_put_meets_the_fold: loom_percpu_ref_2_no_zero_too_early,
    loom_percpu_ref_2_no_zero_too_early_locked);

/// Finds that folding CPU by CPU reaches zero early.
///
/// The mistake: the bias is removed first, then the CPUs' words are added one after the other.
#[test]
#[should_panic(expected = "released while held")]
fn loom_percpu_ref_2_finds_an_early_zero() {
    explore_all(|| {
        // The get was on the second CPU: the words are 0 and 1. The first word is folded with the
        // bias.
        let count = Arc::new(Count::new(1, false));
        assert!(count.bias(0));
        assert_eq!(count.kill(false), Kill::Done(Put::Held));
        let user = thread::spawn({
            let count = Arc::clone(&count);
            // Holds another reference for a while.
            move || count.get(1) && count.put(1) == Put::Last
        });
        let early = count.fold(0) == Put::Last;
        let in_between = user.join().unwrap();
        assert!(!early && !in_between, "released while held");
        assert!(count.get(1), "the second CPU's");
    });
}

/// The way in which a count stops counting per CPU.
#[derive(Clone, Copy, Debug)]
enum Stop {
    Kill,
    KillAndConfirm,
    KillMany,
    ToAtomic,
    /// By a thread that finds the gate closed by a thread that is gone.
    Help,
}

impl Stop {
    const ALL: [Stop; 5] =
        [Stop::Kill, Stop::KillAndConfirm, Stop::KillMany, Stop::ToAtomic, Stop::Help];

    fn run<S: Modelled>(self, model: &Model<S>) {
        match self {
            Stop::Kill => model.kill(),
            Stop::KillAndConfirm => model.kill_and_confirm(|| ()),
            // The barrier is the first count's.
            Stop::KillMany => Model::over(model.switch.slots.beside()).kill_both(model),
            Stop::ToAtomic => model.to_atomic(),
            Stop::Help => {
                let (after, _vanished) = model.begin_kill();
                model.act(after);
                model.act(model.switch.help());
            }
        }
    }
}

/// A get while the count stops counting per CPU; the count is exact afterwards.
fn a_get_meets<S: Modelled>(stop: Stop, mistake: Mistake) {
    explore(move || {
        let model = Model::over(S::with(mistake));
        // The reference on which the other get relies.
        model.get();
        let user = model.spawn(|model| {
            model.get();
            witness("a get that is counted per CPU", was_per_cpu());
            witness("a get that meets the stop", !was_per_cpu());
        });
        stop.run(&model);
        user.join().unwrap();
        model.must_be_exact(&format!("{stop:?}, {mistake:?}"));
    });
}

/// No add lands after the fold, however the counting stops.
#[test]
fn loom_percpu_ref_4_no_add_after_the_fold() {
    Stop::ALL.into_iter().for_each(|stop| a_get_meets::<Sequences>(stop, Mistake::Nothing));
}

/// The same with locked adds.
#[test]
fn loom_percpu_ref_4_no_add_after_fold_locked() {
    Stop::ALL.into_iter().for_each(|stop| a_get_meets::<Locked>(stop, Mistake::Nothing));
}

/// Each step that stops a count, omitted or misplaced, and loom's message in that case.
macro_rules! finds_a_lost_get {
    ($($test:ident: $slots:ty, $stop:ident, $mistake:ident, $message:literal;)*) => {$(
        #[test]
        #[should_panic(expected = $message)]
        fn $test() {
            a_get_meets::<$slots>(Stop::$stop, Mistake::$mistake);
        }
    )*};
}
finds_a_lost_get! {
    loom_percpu_ref_4_finds_a_barrierless_kill:
        Sequences, Kill, NoBarrier, "Kill, NoBarrier: a get was lost";
    loom_percpu_ref_4_finds_a_barrierless_confirm:
        Sequences, KillAndConfirm, NoBarrier, "KillAndConfirm, NoBarrier: a get was lost";
    loom_percpu_ref_4_finds_barrierless_kills:
        Sequences, KillMany, NoBarrier, "KillMany, NoBarrier: a get was lost";
    loom_percpu_ref_4_finds_a_barrierless_change:
        Sequences, ToAtomic, NoBarrier, "ToAtomic, NoBarrier: a get was lost";
    loom_percpu_ref_4_finds_a_barrierless_helper:
        Sequences, Help, NoBarrier, "Help, NoBarrier: a get was lost";
    loom_percpu_ref_4_finds_an_early_barrier:
        Sequences, Kill, BarrierTooEarly, "Kill, BarrierTooEarly: a get was lost";
    loom_percpu_ref_4_finds_a_mode_test_outside:
        Sequences, Kill, TestOutside, "Kill, TestOutside: a get was lost";
    loom_percpu_ref_4_finds_a_row_left_alive:
        Locked, Kill, NoBarrier, "Kill, NoBarrier: a get was lost";
}

/// `tryget_live` against a kill that confirms, from either mode. A reference is held all the time,
/// so that only its death can refuse another.
fn confirm_against_tryget<S: Modelled>(atomic: bool, live: bool) {
    let model = Model::<S>::new();
    model.get();
    if atomic {
        model.to_atomic();
    }
    let confirmed = Arc::new(AtomicBool::new(false));
    let user = model.spawn({
        let confirmed = Arc::clone(&confirmed);
        move |model| {
            // Acquire: pairs with the Release below, so that a get counts as late only if it
            // follows the confirmation.
            let late = confirmed.load(Ordering::Acquire);
            let took = model.try_get(live);
            witness("a tryget that succeeds", took);
            witness("one after the confirmation", late);
            assert!(!(late && took), "a tryget_live after the confirmation");
            if took {
                model.put();
            }
        }
    });
    // Release: as above.
    model.kill_and_confirm(|| confirmed.store(true, Ordering::Release));
    user.join().unwrap();
    assert_eq!(model.releases(), 0, "released while held");
    model.put();
    model.must_be_released();
}
fn confirm_per_cpu<S: Modelled>() {
    confirm_against_tryget::<S>(false, true);
}
fn confirm_atomic<S: Modelled>() {
    confirm_against_tryget::<S>(true, true);
}
on_both!(confirm_per_cpu: loom_percpu_ref_3_confirm_ends_tryget,
    loom_percpu_ref_3_confirm_ends_tryget_locked);
on_both!(confirm_atomic: loom_percpu_ref_3_tryget_in_atomic,
    loom_percpu_ref_3_tryget_in_atomic_locked);

/// The mistake: the get does not check for death.
#[test]
#[should_panic(expected = "a tryget_live after the confirmation")]
fn loom_percpu_ref_3_finds_a_tryget_after_death() {
    explore(|| confirm_against_tryget::<Sequences>(false, false));
}

/// A thread folds late after its barrier for one closing: another thread has folded, opened the
/// gate and closed it again.
fn a_late_fold<S: Modelled>(fold: fn(&Model<S>, Stopping)) {
    let model = Model::<S>::new();
    model.get();
    let first = model.switch.begin_atomic().expect("it counts per CPU");
    model.switch.slots.barrier();
    let user = model.spawn(|model| {
        model.get();
        witness("a get in the later opening", was_per_cpu());
    });
    let opened = Note::default();
    let other = model.spawn({
        let opened = opened.clone();
        move |model| {
            model.to_percpu();
            opened.take();
            model.to_atomic();
        }
    });
    either_first();
    witness("a fold behind a later opening", opened.is_taken());
    fold(&model, first);
    user.join().unwrap();
    other.join().unwrap();
    model.must_be_exact("a late fold");
}
fn a_late_fold_of_its_own_opening<S: Modelled>() {
    a_late_fold::<S>(|model, first| model.act(model.switch.finish(first)));
}
on_both!(a_late_fold_of_its_own_opening: loom_percpu_ref_5_a_late_fold_is_void,
    loom_percpu_ref_5_a_late_fold_is_void_locked);

/// The mistake: the fold does not check the number of the opening.
#[test]
#[should_panic(expected = "a late fold: a get was lost")]
fn loom_percpu_ref_5_finds_a_fold_of_any_opening() {
    explore(|| a_late_fold::<Sequences>(|model, _| model.act(model.switch.finish_any())));
}

/// Changes of mode by two threads, while a third one uses the count.
fn changes_of_mode<S: Modelled>() {
    let model = Model::<S>::new();
    model.get();
    let user = model.spawn(|model| {
        model.get();
        let first = was_per_cpu();
        model.put();
        let second = was_per_cpu();
        model.put();
        witness("a user that meets a stop", first && !second);
        witness("a user that meets an opening", !second && was_per_cpu());
    });
    let other = model.spawn(|model| {
        model.to_atomic();
        model.to_percpu();
    });
    model.kill();
    witness_either_last(&model);
    user.join().unwrap();
    other.join().unwrap();
    model.must_be_released();
}
/// Two preemptions: three threads that change the mode take hours with more.
fn bounded(model: fn()) {
    explore_within(2, model);
}
#[test]
fn loom_percpu_ref_5_modes_serialise() {
    bounded(changes_of_mode::<Sequences>);
}
#[test]
fn loom_percpu_ref_5_modes_serialise_locked() {
    bounded(changes_of_mode::<Locked>);
}

/// A kill that is undone in time, or not, and then another kill.
fn kill_against_resurrect<S: Modelled>() {
    let model = Model::<S>::new();
    model.get();
    let begun = model.begin_kill();
    let user = model.spawn(|model| model.put());
    let other = model.spawn(|model| model.resurrect());
    model.finish(begun);
    user.join().unwrap();
    let revived = other.join().unwrap();
    witness("a kill that is taken back", revived);
    witness("one that is not: the last put comes before", !revived);
    if revived {
        assert_eq!(model.releases(), 0, "released while alive");
        model.kill();
    }
    model.must_be_released();
}
on_both!(kill_against_resurrect: loom_percpu_ref_5_resurrect_meets_put,
    loom_percpu_ref_5_resurrect_meets_put_locked);

/// A lookup that races with a new life finds it, or nothing; its count is not lost in words of the
/// old life.
fn lookup_against_reinit<S: Modelled>() {
    let model = Model::<S>::new();
    model.get();
    model.put();
    model.kill();
    model.must_be_released();
    let lookup = model.spawn(|model| model.try_get(true));
    model.reinit();
    let found = lookup.join().unwrap();
    witness("a lookup that finds the new life", found);
    witness("one that finds nothing", !found);
    if found {
        model.put();
    }
    model.end();
}
on_both!(lookup_against_reinit: loom_percpu_ref_5_lookup_meets_reinit,
    loom_percpu_ref_5_lookup_meets_reinit_locked);

/// A thread takes a reference in a new life, and another after that life stopped counting per CPU:
/// it does not meet the count of the previous life.
fn holder_of_a_new_life<S: Modelled>(take: fn(&Model<S>)) {
    let model = Model::<S>::new();
    model.kill();
    model.must_be_released();
    let user = model.spawn(move |model| {
        if model.try_get(true) {
            let first = was_per_cpu();
            take(model);
            model.put();
            witness("a holder that meets the stop", first && !was_per_cpu());
        }
    });
    model.reinit();
    model.to_atomic();
    user.join().unwrap();
    model.end();
}
fn holder_takes_another<S: Modelled>() {
    holder_of_a_new_life::<S>(|model| {
        model.get();
        model.put();
    });
}
on_both!(holder_takes_another: loom_percpu_ref_5_new_life_takes_more,
    loom_percpu_ref_5_new_life_takes_more_locked);

/// The same for a thread that queries the count.
fn holder_asks<S: Modelled>() {
    holder_of_a_new_life::<S>(|model| model.must_be_alive());
}
on_both!(holder_asks: loom_percpu_ref_5_new_life_is_not_old,
    loom_percpu_ref_5_new_life_is_not_old_locked);

/// Finds a get that is not ordered after the opening.
///
/// The mistake: nothing orders the count after the opening that the gate showed.
#[test]
#[should_panic(expected = "met the count of the life before")]
fn loom_percpu_ref_5_finds_an_unordered_get() {
    explore(|| {
        holder_of_a_new_life::<Sequences>(|model| {
            let took = model.switch.get_one_unordered();
            assert!(took, "met the count of the life before");
            assert_eq!(model.switch.put_one(), Put::Held);
        });
    });
}

/// One thread takes a reference of a new life and hands it to another. For locked rows only: the
/// machine orders a sequence's plain load here, which loom does not know.
fn handed_over(mistake: Mistake) {
    explore(move || {
        let model = Model::over(Locked::with(mistake));
        model.kill();
        model.must_be_released();
        let handed = Arc::new(AtomicBool::new(false));
        let takes = model.spawn({
            let handed = Arc::clone(&handed);
            move |model| {
                let took = model.try_get(true);
                // Release: pairs with the Acquire below.
                handed.store(took, Ordering::Release);
                took
            }
        });
        let gets = model.spawn(move |model| {
            // Acquire: pairs with the Release above.
            let handed = handed.load(Ordering::Acquire);
            witness("a reference that is handed over", handed);
            if handed {
                // Without the fence: loom pairs it with reads by other threads as well.
                let took = model.switch.get_one_unordered();
                assert!(took, "met the count of the life before");
                witness("one that is counted after the stop", !was_per_cpu());
                assert_eq!(model.switch.put_one(), Put::Held);
            }
        });
        model.reinit();
        model.to_atomic();
        let took = takes.join().unwrap();
        gets.join().unwrap();
        if took {
            model.put();
        }
        model.end();
    });
}

/// A reference that is handed over belongs to the new life, with locked adds.
#[test]
fn loom_percpu_ref_5_handed_over_is_new_locked() {
    handed_over(Mistake::Nothing);
}

/// Finds an add that is not ordered after the start of the life.
#[test]
#[should_panic(expected = "met the count of the life before")]
fn loom_percpu_ref_5_finds_an_unordered_add() {
    handed_over(Mistake::AddWithoutAcquire);
}

/// Writes made before any put are visible to the thread that releases; `Model::act` checks it.
fn writes_before_puts<S: Modelled>() {
    let model = Model::<S>::new();
    model.get();
    let user = model.spawn(|model| model.write_and_put(0));
    model.get();
    let begun = model.begin_kill();
    model.write_and_put(1);
    model.finish(begun);
    witness_either_last(&model);
    user.join().unwrap();
    model.must_be_released();
}
on_both!(writes_before_puts: loom_percpu_ref_6_release_sees_writes,
    loom_percpu_ref_6_release_sees_writes_locked);

/// A fork leaves a killer behind after closing: two threads help, and one puts.
fn helpers_of_a_vanished_killer<S: Modelled>() {
    let model = Model::<S>::new();
    model.get();
    let (after, _vanished) = model.begin_kill();
    model.act(after);
    let (begun, done) = (Note::default(), Note::default());
    let helper = model.spawn({
        let (begun, done) = (begun.clone(), done.clone());
        move |model| {
            begun.take();
            model.act(model.switch.help());
            done.take();
        }
    });
    let user = model.spawn(|model| model.put());
    model.act(model.switch.help());
    witness("two that help at once", begun.is_taken() && !done.is_taken());
    witness_either_last(&model);
    helper.join().unwrap();
    user.join().unwrap();
    model.must_be_released();
}
on_both!(helpers_of_a_vanished_killer: loom_percpu_ref_a_lost_killer_helped,
    loom_percpu_ref_a_lost_killer_helped_locked);

/// Users, a change of mode, and a kill that is undone: a mix that no model above has.
fn changes_of_mode_against_resurrect<S: Modelled>() {
    let model = Model::<S>::new();
    let user = model.spawn(|model| {
        if model.try_get(false) {
            let first = was_per_cpu();
            model.write_and_put(0);
            witness("a user that meets a stop", first && !was_per_cpu());
            witness("a user that meets an opening", !first && was_per_cpu());
        }
    });
    let other = model.spawn(|model| {
        model.to_atomic();
        model.to_percpu();
    });
    // Held across the kill, so that the user may still try.
    model.get();
    model.kill();
    if model.resurrect() {
        model.kill();
    }
    user.join().unwrap();
    other.join().unwrap();
    model.put();
    model.must_be_released();
}
#[test]
fn loom_percpu_ref_5_modes_meet_resurrect() {
    bounded(changes_of_mode_against_resurrect::<Sequences>);
}
#[test]
fn loom_percpu_ref_5_modes_meet_resurrect_locked() {
    bounded(changes_of_mode_against_resurrect::<Locked>);
}
