//! `submeter load`.

pub(super) mod report;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::LoadArgs;
use submeter_load::drive::{self, Plan};
use submeter_load::hdr;
use submeter_load::profile::Profile;
use submeter_load::tenants_file::{self, VALUE_MAX};
use submeter_terminal as show;
use submeter_terminal::signals;
use submeter_terminal::{Destination, Failure};

/// Default duration of a load.
const SECONDS_DEFAULT: Duration = Duration::from_secs(10);

/// Runs the command. Corrupt values set the exit code to 1.
pub(crate) fn run(args: &LoadArgs) -> Result<ExitCode, Failure> {
    let tenants = tenants(args)?;
    let (warm_up, ramp) = (args.warm_up.unwrap_or_default(), args.ramp.unwrap_or_default());
    let seconds = args.seconds.or(args.requests.is_none().then_some(SECONDS_DEFAULT));
    if seconds.is_some_and(|seconds| ramp >= warm_up + seconds) {
        return Err(Failure::new(
            "--ramp is as long as the run, so not all connections would start: raise --seconds",
        ));
    }
    let results = results(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(format_args!("cannot start threads: {e}")))?;
    runtime.block_on(async {
        let stop = signals::listen()
            .map_err(|e| Failure::new(format_args!("cannot install signal handlers: {e}")))?;
        let plan = Plan {
            server: resolve(&args.connect).await?,
            tenants,
            delimiter: args.delimiter,
            seconds,
            requests: args.requests,
            rate: args.rate,
            connections: usize::from(args.connections),
            pipeline: usize::from(args.pipeline),
            seed: args.seed,
            warm_up,
            ramp,
            burst: None,
        };
        let outcome = drive::drive(&plan, stop).await.map_err(Failure::new)?;
        let total = outcome.tallies.total().map_err(Failure::new)?;
        let text = [
            report::table(&plan, &outcome, &total),
            report::refusals(&total),
            report::verdict(&outcome, &total),
        ]
        .concat();
        // If a result goes to standard output, people read the table on standard error.
        match results.iter().any(|(to, _)| *to == Some(&Destination::Output)) {
            true => show::tell(&text),
            false => show::print(&text).map_err(Failure::new)?,
        }
        for (to, flag) in results {
            let Some(to) = to else { continue };
            let text = match flag {
                "--json" => format!("{:#}\n", report::json(&plan, &outcome, &total)),
                _ => hdr::text(&total.latency_ns),
            };
            to.write(&text, flag).map_err(Failure::new)?;
        }
        Ok(if total.corrupt == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// Returns the tenants and the profile of each, as a file and flags specify.
fn tenants(args: &LoadArgs) -> Result<Vec<(String, Profile)>, Failure> {
    let profiles = match &args.tenants_file {
        Some(file) => tenants_file::read(file),
        None => tenants_file::built_in(),
    };
    let tenants = drive::name_tenants(
        profiles.map_err(Failure::new)?,
        args.tenants.map(usize::from),
        args.tenants_file.as_deref(),
    );
    let mut tenants = tenants.map_err(Failure::new)?;
    for (_, profile) in &mut tenants {
        if let Some((set, get)) = args.ratio {
            profile.set_ratio(set, get);
        }
        if let Some(size) = args.data_size {
            profile.value_bytes =
                u32::try_from(size).ok().filter(|&n| n <= VALUE_MAX).ok_or_else(|| {
                    Failure::new(format_args!(
                        "--data-size is too large: the maximum is {VALUE_MAX} bytes"
                    ))
                })?;
        }
    }
    Ok(tenants)
}

/// Returns where results go, each with its flag, after checking as far as possible that they can be
/// written there.
fn results(args: &LoadArgs) -> Result<[(Option<&Destination>, &'static str); 2], Failure> {
    let results = [(args.json.as_ref(), "--json"), (args.hdr.as_ref(), "--hdr")];
    if let [(Some(json), _), (Some(hdr), _)] = results
        && json == hdr
    {
        let what = if *json == Destination::Output { "standard output" } else { "one file" };
        return Err(Failure::new(format_args!(
            "--json and --hdr both write to {what}: use another file for --hdr"
        )));
    }
    for (to, flag) in results {
        to.map_or(Ok(()), |to| to.check(flag)).map_err(Failure::new)?;
    }
    Ok(results)
}

/// Resolves the address of `HOST:PORT`.
async fn resolve(connect: &str) -> Result<SocketAddr, Failure> {
    let found = tokio::net::lookup_host(connect).await;
    found.ok().and_then(|mut all| all.next()).ok_or_else(|| {
        Failure::new(format_args!(
            "--connect {connect:?} is not an address: use HOST:PORT, such as 127.0.0.1:11211"
        ))
    })
}
