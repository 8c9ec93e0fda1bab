//! The memory of a group, measured by the growth of a fresh process: in a used one, memory that
//! another tree freed would be reused and look like no growth.

use std::cell::RefCell;
use std::io;
use std::process::Command;
use std::rc::Rc;

use super::crowd;
use super::{VARIANT, params};
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
                None => in_a_process(size),
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

/// Measures in a separate process.
fn in_a_process(size: usize) -> Result<[f64; 2], String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program).args(["--weigh", &size.to_string()]).output();
    let output = output.map_err(|error| error.to_string())?;
    parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{}: {}", output.status, said.lines().next().unwrap_or("no answer"))
    })
}

fn parse(text: &str) -> Option<[f64; 2]> {
    let mut numbers = text.split_whitespace().map(str::parse);
    let both = [numbers.next()?.ok()?, numbers.next()?.ok()?];
    numbers.next().is_none().then_some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_takes_memory_and_more_once_it_is_used() {
        // Other tests allocate and free memory in this process at the same time, but not during
        // every one of these attempts.
        let mut tried = Vec::new();
        let plausible = (0..20).any(|_| {
            let text = measure_memory(2_000).expect("a tree of 2,000 groups");
            let [idle, updated] = parse(&text).expect("two numbers");
            tried.push(text);
            idle > 50.0 && updated > idle && updated < 20_000.0
        });
        assert!(plausible, "{tried:?}");
    }

    #[test]
    fn a_process_reports_two_numbers_or_none() {
        assert_eq!(parse("1.5 2\n"), Some([1.5, 2.0]));
        for text in ["", "1", "1 x", "1 2 3", "running 0 tests\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
