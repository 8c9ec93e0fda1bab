//! The two candidates, each as its own documentation has it used.

use std::sync::LazyLock;

use crate::Payload;

pub(crate) trait Candidate: Sync {
    const NAME: &'static str;
    fn enter(&self, inside: impl FnOnce());
    fn retire(&self, boxed: Box<Payload>);
}

pub(crate) struct Crossbeam;

impl Candidate for Crossbeam {
    const NAME: &'static str = "crossbeam-epoch";

    fn enter(&self, inside: impl FnOnce()) {
        let guard = crossbeam_epoch::pin();
        inside();
        drop(guard);
    }

    fn retire(&self, boxed: Box<Payload>) {
        let guard = crossbeam_epoch::pin();
        guard.defer(move || drop(boxed));
    }
}

pub(crate) struct Seize;

static COLLECTOR: LazyLock<seize::Collector> = LazyLock::new(seize::Collector::new);

impl Candidate for Seize {
    const NAME: &'static str = "seize";

    fn enter(&self, inside: impl FnOnce()) {
        let guard = COLLECTOR.enter();
        inside();
        drop(guard);
    }

    fn retire(&self, boxed: Box<Payload>) {
        use seize::Guard as _;
        let guard = COLLECTOR.enter();
        // SAFETY: the pointer comes from a box, is retired once, and was never shared.
        unsafe { guard.defer_retire(Box::into_raw(boxed), seize::reclaim::boxed) };
    }
}
