//! What the command line asks of each part of the server.
//!
//! Arguments are split here, once. Each part of the server receives its own part of the plan and
//! nothing else, so that its type states what it depends on.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use submeter_cache::{Address, Config};
use submeter_terminal::Failure;

use super::{checkpoint, demo, fleet, keys, load, otlp, ports, reload};
use crate::cli::{HeapArg, OverRateArg, ServeArgs};

/// One field for each part.
pub(super) struct Plan {
    /// Everything of the cache except its tenants' limits, which may be in a file.
    pub(super) cache: Config,
    pub(super) limits: Arc<reload::Plan>,
    pub(super) checkpoint: Option<checkpoint::Plan>,
    pub(super) keys: keys::Plan,
    pub(super) load: Option<load::Plan>,
    pub(super) ports: ports::Plan,
    pub(super) fleet: fleet::Plan,
    pub(super) otlp: Option<otlp::Plan>,
    pub(super) heap: HeapArg,
    pub(super) page: Page,
    pub(super) end: End,
}

/// The hosts that the page answers to, and what it lets clients do.
pub(super) struct Page {
    pub(super) hosts: Vec<String>,
    pub(super) limits_api: bool,
    pub(super) connections_max: usize,
}

/// What ends the server apart from a signal.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) after: Option<Duration>,
    pub(super) with_stdin: bool,
}

impl Plan {
    /// Splits the arguments. Refuses combinations that are wrong whatever the files contain.
    pub(super) fn of(args: &ServeArgs) -> Result<Plan, Failure> {
        let ports = ports::Plan {
            listen: listen(args),
            http: args.http,
            threads: args.threads.and_then(|threads| NonZero::new(threads.into())),
        };
        ports::check_limits_api(args.limits_api, args.http)?;
        let leased = fleet::Leased::new(&args.member.limit_fleet);
        let stage = args.load.map(|tenants| demo::Stage::new(asked(args, tenants)));
        Ok(Plan {
            cache: config(args, &leased),
            limits: Arc::new(reload::Plan {
                file: args.limits.clone(),
                config: args.file.clone(),
                flags: args.tenant_limit.clone(),
                staged: stage.as_ref().and_then(|stage| stage.limit.clone()),
                leased: leased.clone(),
            }),
            checkpoint: args
                .checkpoint
                .clone()
                .map(|path| checkpoint::Plan { path, every: args.checkpoint_seconds }),
            keys: keys::Plan {
                users: args.auth_file.clone(),
                token: args.token_file.clone(),
                tls: args.tls_cert.clone().zip(args.tls_key.clone()),
            },
            load: args.load.zip(stage).map(|(tenants, stage)| load::Plan {
                listen: args.listen.clone(),
                tenants: tenants.into(),
                file: args.tenants_file.clone(),
                delimiter: args.delimiter,
                seconds: args.seconds,
                seed: args.seed,
                connections_max: args.connections as usize,
                stage,
            }),
            ports,
            fleet: fleet::Plan {
                bank: args.member.bank.clone(),
                service: args.member.service.clone(),
                name: args.member.member.clone(),
                outage: args.member.outage,
                leased,
            },
            otlp: args
                .otlp
                .clone()
                .map(|receiver| otlp::Plan { receiver, protocol: args.otlp_protocol.clone() }),
            heap: args.heap,
            page: Page {
                hosts: args.http_host.clone(),
                limits_api: args.limits_api,
                connections_max: usize::MAX,
            },
            end: End { after: args.seconds, with_stdin: args.end_with_stdin },
        })
    }
}

/// The cache's address, with the permissions of a socket.
fn listen(args: &ServeArgs) -> Address {
    match args.listen.clone() {
        Address::Unix { path, .. } => Address::Unix { path, mode: args.unix_mode },
        address => address,
    }
}

fn asked(args: &ServeArgs, tenants: u16) -> demo::Asked {
    demo::Asked {
        tenants: tenants.into(),
        has_file: args.tenants_file.is_some(),
        refuses: matches!(args.over_rate, OverRateArg::Refuse),
        idle_timeout: args.idle_timeout,
    }
}

fn config(args: &ServeArgs, leased: &fleet::Leased) -> Config {
    let default = Config::default();
    let buffers = default.buffers_max.max(args.value_max.saturating_mul(3));
    Config {
        delimiter: args.delimiter,
        memory_max: args.memory,
        tenants_max: usize::try_from(args.tenants_max).unwrap_or(usize::MAX),
        tenants_kept: leased.tenants(),
        rates: leased.has_rates(),
        over_rate: args.over_rate.into(),
        metering: !args.no_metering,
        value_max: usize::try_from(args.value_max).unwrap_or(usize::MAX),
        evictions: !args.no_evictions,
        flush_all: !args.no_flush_all,
        shutdown: args.enable_shutdown,
        connections_max: usize::try_from(args.connections).unwrap_or(usize::MAX),
        buffers_max: args.buffers.unwrap_or(buffers),
        login_timeout: args.login_timeout,
        request_timeout: args.request_timeout,
        idle_timeout: args.idle_timeout,
        drain: args.drain_seconds,
        ..default
    }
}
