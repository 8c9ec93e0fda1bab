//! The `alloc` table: what blocks and switches cost with each allocator that knows tenants, around
//! each underlying allocator.
//!
//! A program has one global allocator, so each is a program beside this one. It stays up and is
//! asked for samples in turn. Each first confirms that it has the allocator of its name.

mod programs;

use std::cell::RefCell;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use submeter_heaps::{Inner, Operation, SIZES};

use super::asked::Asked;
use super::runner::{Absent, Cell, Plan, Sample};
use crate::row::{Param, Params};
use programs::{Program, absent, programs};

const TABLE: &str = "alloc";

/// A running program.
struct Up {
    program: &'static Program,
    asked: Rc<RefCell<Asked>>,
}

/// Returns the table's plan, with a process for each allocator.
///
/// # Errors
/// When an allocator is not the one of its name: the row would show another one.
pub(crate) fn plan() -> io::Result<Plan> {
    let folder = env::current_exe()?;
    let folder = folder.parent().ok_or(io::ErrorKind::NotFound)?;
    let (mut up, mut absent) = (Vec::new(), absent());
    for program in programs() {
        if folder.join(program.file).is_file() {
            let asked = start(folder, program)?;
            up.push(Up { program, asked: Rc::new(RefCell::new(asked)) });
        } else {
            let reason = "its program is not beside this one: build submeter-bench again";
            absent.push(Absent { variant: program.variant, reason: reason.to_owned() });
        }
    }
    let mut groups = Vec::new();
    for inner in Inner::ALL {
        let here: Vec<&Up> = up.iter().filter(|up| up.program.inner == inner).collect();
        if here.is_empty() {
            continue;
        }
        let timed = Operation::ALL.map(|o| here.iter().map(|up| timed(up, o)).collect());
        let weighed = SIZES.map(|size| {
            here.iter().map(|up| weighed(folder.to_owned(), up.program, size)).collect()
        });
        groups.extend(timed.into_iter().chain(weighed));
    }
    Ok(Plan { mixed: true, absent, ..Plan::new(TABLE, groups) })
}

fn start(folder: &Path, program: &Program) -> io::Result<Asked> {
    let mut command = Command::new(folder.join(program.file));
    command.envs(program.variables.iter().copied());
    let started = Asked::start(command, |line| (line == "ready").then_some(()));
    let name = |error| io::Error::other(format!("{}: {error}", program.file));
    started.map(|(asked, ())| asked).map_err(name)
}

fn params(program: &Program, operation: &'static str) -> Params {
    let allocator = Param::word(program.inner.name());
    [("operation", Param::word(operation)), ("allocator", allocator)].into()
}

fn timed(up: &Up, operation: Operation) -> Cell {
    let asked = Rc::clone(&up.asked);
    Cell::new(params(up.program, operation.name()), up.program.variant, move || {
        let (ns, disturbed) = asked.borrow_mut().ask(&operation.name())?;
        Ok(Sample::of("ns", ns, disturbed))
    })
}

/// Makes a cell with a process of its own: memory that others freed would be reused.
fn weighed(folder: PathBuf, program: &'static Program, size: usize) -> Cell {
    let mut params = params(program, "memory");
    params.set("size", Param::number(size as u64));
    Cell::once(params, program.variant, move || {
        let (bytes, _) = start(&folder, program)?.ask(&size)?;
        Ok(Sample::of("bytes", bytes, false))
    })
}
