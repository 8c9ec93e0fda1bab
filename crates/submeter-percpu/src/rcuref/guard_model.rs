//! The grace period for checkers: deferred functions run when the last guard goes.
//!
//! crossbeam-epoch keeps its state in thread-locals, which the threads of a model share, and in
//! atomics that no model sees. This implementation is coarser, never frees earlier, and lives in
//! the model.
//!
//! Miri uses it too, so that it can check this crate by its strict rules (provenance, Stacked
//! Borrows, leaks), which crossbeam-epoch's tagged pointers, intrusive list and global garbage
//! cannot meet; `--cfg submeter_real_epoch` makes Miri run the real one.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem;

#[cfg(loom)]
use loom::{lazy_static, sync::Mutex};
#[cfg(not(loom))]
use std::sync::Mutex;

type Deferred = Box<dyn FnOnce() + Send>;

struct Epoch {
    guards: usize,
    deferred: Vec<Deferred>,
}

impl Epoch {
    const START: Epoch = Epoch { guards: 0, deferred: Vec::new() };
}

#[cfg(loom)]
lazy_static! {
    static ref EPOCH: Mutex<Epoch> = Mutex::new(Epoch::START);
}
#[cfg(not(loom))]
static EPOCH: Mutex<Epoch> = Mutex::new(Epoch::START);

pub(super) struct Guard {
    /// Functions that this guard deferred; they join the rest when the guard is dropped.
    deferred: RefCell<Vec<Deferred>>,
    stays_on_its_thread: PhantomData<*const ()>,
}

pub(super) fn pin() -> Guard {
    EPOCH.lock().expect("a model panicked").guards += 1;
    Guard { deferred: RefCell::default(), stays_on_its_thread: PhantomData }
}

impl Guard {
    /// A guard that delays nothing. It must not be dropped.
    #[cfg(not(loom))]
    pub(super) const UNCOUNTED: Guard =
        Guard { deferred: RefCell::new(Vec::new()), stays_on_its_thread: PhantomData };

    pub(super) fn defer(&self, f: impl FnOnce() + Send + 'static) {
        self.deferred.borrow_mut().push(Box::new(f));
    }

    pub(super) fn flush(&self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        let due = {
            let mut epoch = EPOCH.lock().expect("a model panicked");
            epoch.guards -= 1;
            epoch.deferred.append(self.deferred.get_mut());
            if epoch.guards == 0 { mem::take(&mut epoch.deferred) } else { Vec::new() }
        };
        // After the lock is released: these functions may pin again.
        for f in due {
            f();
        }
    }
}
