//! `in-world NAME COMMAND…`: runs a command in a world that has less than this machine, such as
//! `no_perf_events`. Cargo runs test programs through it if CARGO_TARGET_…_RUNNER names it.

#![forbid(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use submeter_program::World;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let name = args.next().unwrap_or_default();
    let (Some(world), Some(program)) = (name.to_str().and_then(World::named), args.next()) else {
        let names: Vec<&str> = World::ALL.iter().map(|world| world.name).collect();
        eprintln!(
            "in-world: no world {name:?}, or no command: in-world NAME COMMAND…, with one of {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    let mut command = world.command(Path::new(&program));
    let error = match world.enter() {
        Ok(()) => command.args(args).exec().to_string(),
        Err(error) => error,
    };
    eprintln!("in-world: {}: {}: {error}", world.name, Path::new(&program).display());
    ExitCode::from(2)
}
