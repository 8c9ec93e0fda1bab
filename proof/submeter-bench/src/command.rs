//! Runs the command: measures tables, or reports an earlier measurement.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use crate::args::BenchArgs;
use crate::bench::{self, Busy, Inputs, Machine, Mode, TABLES, Table, Trace};
use crate::process;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::reports as report;
use submeter_terminal as show;
use submeter_terminal::{Failure, signals};

/// Runs the command. When interrupted, it reports what it has measured so far.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    if let Some(record) = &args.from {
        return reported(args, record);
    }
    if !args.regress.is_empty() {
        return Ok(ExitCode::from(u8::from(report::regress(&args.regress)?)));
    }
    if let Some(root) = &args.claims {
        report::claims(root)?;
        return Ok(ExitCode::SUCCESS);
    }
    if on_behalf(args)? {
        return Ok(ExitCode::SUCCESS);
    }
    let mode = match args.seconds {
        Some(seconds) => Mode::Each(seconds),
        None if args.quick => Mode::Quick,
        None => Mode::Full,
    };
    let tables = tables(&args.tables);
    if args.alone {
        return measure_one(args, &tables, mode);
    }
    // The runtime's only thread sleeps until a signal arrives or a table's process ends.
    let runtime = runtime()?;
    let stop = listen(&runtime)?;
    let file = args.json.as_deref().filter(|path| *path != Path::new("-"));
    if let Some(path) = file {
        writable(path)?;
    }
    if let Some(path) = &args.html {
        report::writable(path)?;
    }
    // Errors in the input are reported before the long measurement starts.
    trace(args, &tables)?;
    tenants(args, &tables)?;
    let machine = Machine { busy: args.busy, ..Machine::gather() };
    // Here, not in the tables' processes: it must not take part in their barriers and switches.
    let load = args.busy.then(Busy::start).transpose();
    let load =
        load.map_err(|e| Failure::new(format_args!("--busy: cannot keep CPUs busy: {e}")))?;
    let mut parts = Vec::new();
    for table in tables {
        let Some(part) = runtime.block_on(process::measured(table.name, args, stop.clone()))?
        else {
            // The table's process has printed why.
            return Ok(ExitCode::from(2));
        };
        let interrupted = part.interrupted;
        parts.push(part);
        if interrupted {
            break;
        }
    }
    drop(load);
    let json = bench::record(&machine, mode, &parts);
    let json = json.map_err(|e| Failure::new(format_args!("cannot write JSON: {e}")))?;
    let text = report::text(&json)?;
    print(args, &json, &text)?;
    if let Some(path) = &args.html {
        report::write(&json, path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does what the process of a table asks of a process that it starts; returns whether it was asked.
fn on_behalf(args: &BenchArgs) -> Result<bool, Failure> {
    if let Some(world) = &args.world {
        bench::enter(world).map_err(|e| Failure::new(format_args!("--world: {e}")))?;
    }
    if let Some(groups) = args.weigh {
        let bytes = match args.quotas {
            None => bench::measure_memory(groups),
            Some(quotas) => bench::measure_quota_memory(groups, quotas > 0),
        };
        let bytes = bytes.map_err(Failure::new)?;
        show::print(&bytes).map_err(Failure::new)?;
    } else if args.charged {
        show::print(&bench::charged().map_err(Failure::new)?).map_err(Failure::new)?;
    } else if let Some(threads) = args.serve {
        let served = bench::serve(threads, !args.plain, &args.limited);
        served.map_err(|e| Failure::new(format_args!("cannot serve: {e}")))?;
    } else if args.world.is_some() {
        bench::measure_in_world().map_err(|e| Failure::new(format_args!("--world: {e}")))?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Makes the reports of a record that an earlier run wrote.
fn reported(args: &BenchArgs, record: &Path) -> Result<ExitCode, Failure> {
    if args.gaps {
        return Ok(ExitCode::from(u8::from(report::gaps(record)?)));
    }
    match (&args.beside, &args.brief, &args.markdown) {
        (Some(other), _, Some(markdown)) => report::beside(record, other, markdown)?,
        (None, Some(table), Some(markdown)) => report::brief(record, table, markdown)?,
        _ => {
            let (html, markdown) = (args.html.as_deref(), args.markdown.as_deref());
            report::again(record, html, markdown, args.picture.as_deref())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the tables, and writes the record where requested.
fn print(args: &BenchArgs, json: &str, text: &str) -> Result<(), Failure> {
    match args.json.as_deref() {
        Some(path) if path == Path::new("-") => {
            // Standard output carries the JSON, so the tables go to standard error.
            anstream::eprint!("{text}");
            show::print(json).map_err(Failure::new)
        }
        file => {
            show::print(text).map_err(Failure::new)?;
            file.map_or(Ok(()), |path| show::write_file(path, json).map_err(|e| refused(path, &e)))
        }
    }
}

/// Measures one table, and prints its part of the record for the parent process.
fn measure_one(
    args: &BenchArgs,
    tables: &[&'static Table],
    mode: Mode,
) -> Result<ExitCode, Failure> {
    let [table] = tables else {
        return Err(Failure::new("--alone measures exactly one table: name it"));
    };
    let runtime = runtime()?;
    let signal = listen(&runtime)?;
    let ended = process::input_ended();
    let (trace, tenants) = (trace(args, tables)?, tenants(args, tables)?);
    let inputs = Inputs { trace, tenants, quick: args.quick, rounds: args.rounds };
    let stopped = || *signal.borrow() || ended.is_finished();
    let part = bench::measure(table, mode, &inputs, &stopped).map_err(Failure::new)?;
    let part = serde_json::to_string(&part);
    let part = part.map_err(|e| Failure::new(format_args!("cannot write JSON: {e}")))?;
    show::print(&part).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|e| Failure::new(format_args!("cannot start threads: {e}")))
}

fn listen(runtime: &Runtime) -> Result<watch::Receiver<bool>, Failure> {
    let listening = runtime.block_on(async { signals::listen() });
    listening.map_err(|e| Failure::new(format_args!("cannot listen for signals: {e}")))
}

/// Returns the named tables, or all, in the order in which they are measured.
fn tables(named: &[String]) -> Vec<&'static Table> {
    let wanted = |table: &&Table| named.is_empty() || named.iter().any(|name| name == table.name);
    TABLES.iter().filter(wanted).collect()
}

/// Returns the file of tenants; the table's plan reads it.
fn tenants(args: &BenchArgs, tables: &[&Table]) -> Result<Option<PathBuf>, Failure> {
    if args.tenants_file.is_some() && !tables.iter().any(|table| table.name == "end_to_end") {
        return Err(Failure::new(
            "--tenants-file applies to the table end_to_end, which is not among the tables: add end_to_end, or leave it out",
        ));
    }
    Ok(args.tenants_file.clone())
}

/// Reads the trace, and replays it once for its totals, before the long measurement starts.
fn trace(args: &BenchArgs, tables: &[&Table]) -> Result<Option<Rc<Trace>>, Failure> {
    let Some(path) = &args.trace else { return Ok(None) };
    if !tables.iter().any(|table| table.name == "rstat") {
        return Err(Failure::new(
            "--trace applies to the table rstat, which is not among the tables: add rstat, or leave it out",
        ));
    }
    let trace = Trace::open(path).map_err(Failure::new)?;
    if let Some(out) = &args.totals {
        bench::write_totals(&trace, out).map_err(Failure::new)?;
    }
    Ok(Some(Rc::new(trace)))
}

/// Makes sure, before the long measurement starts, that its result can be written. An existing file
/// keeps its content until there is a new one.
fn writable(path: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map(drop).map_err(|e| refused(path, &e))
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::new(format_args!("cannot write {path}: {error}; name another file with --json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_come_once_and_in_their_order() {
        let names = |named: &[&str]| -> Vec<&str> {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            tables(&named).iter().map(|table| table.name).collect()
        };
        assert_eq!(names(&[]), TABLES.map(|table| table.name));
        assert_eq!(names(&["kill", "rcuref", "kill"]), ["rcuref", "kill"]);
    }
}
