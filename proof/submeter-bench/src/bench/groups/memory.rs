//! The memory of a group, measured by the growth of a fresh process.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use super::crowd;
use super::{VARIANT, params};
use crate::bench::footprint::weigh;
use crate::bench::proc_memory::anonymous_bytes;
use crate::bench::runner::{Cell, Sample};

/// Grows a tree of `size` groups in this process; returns bytes per group, idle and then updated
/// once, as two numbers for the parent process.
///
/// # Errors
/// One line: the tree cannot be created, or the system does not report memory.
pub(crate) fn measure_memory(size: usize) -> Result<String, String> {
    let measured = || -> io::Result<[f64; 2]> {
        let before = anonymous_bytes()?;
        let (tree, counter) = crowd::empty(size, |builder| builder)?;
        crowd::grow(&tree, size, drop)?;
        tree.flush();
        let idle = anonymous_bytes()?;
        for parent in tree.root().children() {
            for leaf in parent.children() {
                leaf.add(counter, 1);
            }
        }
        tree.flush();
        let updated = anonymous_bytes()?;
        Ok([idle, updated].map(|after| after.saturating_sub(before) as f64 / size as f64))
    };
    let [idle, updated] = measured()
        .map_err(|error| format!("cannot measure the memory of {size} groups: {error}"))?;
    Ok(format!("{idle} {updated}\n"))
}

/// Returns the cells of a tree of `size` groups. Each is measured once.
pub(super) fn cells(size: usize) -> Vec<Vec<Cell>> {
    // Both figures come from one process, which the first cell starts.
    let shared: Rc<RefCell<Option<[f64; 2]>>> = Rc::default();
    let cell = |(index, operation): (usize, &'static str)| {
        let shared = Rc::clone(&shared);
        let measure = move || {
            let mut shared = shared.borrow_mut();
            let weighed = match *shared {
                Some(bytes) => Ok(bytes),
                None => weigh(size, &[]),
            };
            Ok(match weighed {
                Ok(bytes) => {
                    *shared = Some(bytes);
                    Sample::of("bytes", bytes[index], false)
                }
                Err(why) => {
                    let notes = vec![format!("memory was not measured: {why}")];
                    Sample { notes, ..Sample::default() }
                }
            })
        };
        vec![Cell::once(params(operation, "groups", size), VARIANT, measure)]
    };
    ["memory_idle", "memory_updated"].into_iter().enumerate().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::bench::footprint::parse;

    /// Runs in a process of its own, as the bench measures it: what other tests have freed would be
    /// reused, and nothing would grow.
    #[test]
    fn a_crowd_takes_memory_and_more_once_it_is_used() {
        const FRESH: &str = "SUBMETER_BENCH_FRESH";
        if std::env::var_os(FRESH).is_none() {
            let this = std::env::current_exe().expect("the test's own program");
            let (_, module) = module_path!().split_once("::").expect("below the crate");
            let name = format!("{module}::a_crowd_takes_memory_and_more_once_it_is_used");
            let child = Command::new(this).args(["--exact", &name]).env(FRESH, "1").output();
            let child = child.expect("it starts");
            let said = String::from_utf8_lossy(&child.stdout);
            assert!(child.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let text = measure_memory(2_000).expect("a tree of 2,000 groups");
        let [idle, updated] = parse(&text).expect("two numbers");
        assert!(idle > 50.0 && updated > idle && updated < 20_000.0, "{text}");
    }
}
