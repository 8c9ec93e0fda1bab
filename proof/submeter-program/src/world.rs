//! The worlds in which a process with submeter may find itself, as far as one machine can make
//! them. Each is a row of data, which the bench measures and in which `in-world` runs any command.

use std::process::Command;

/// What a process finds: which sequences it may run, and whether perf events tell it that a thread
/// was switched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// Its name on command lines and in records.
    pub name: &'static str,
    /// Environment variables of its processes; some must be set from their start.
    pub variables: &'static [(&'static str, &'static str)],
    /// Whether the system call `perf_event_open` is refused, as by the default filters of container
    /// runtimes, and where `kernel.perf_event_paranoid` is above 2.
    pub refuses_perf_events: bool,
    /// The libc that the program must be built for, as the end of a target's name; `None` for that
    /// of the calling program.
    pub libc: Option<&'static str>,
    /// The backend in this world, as `Backend::id` names it.
    pub backend: &'static str,
    /// Whether sequences are waited for by visits to each CPU.
    pub by_visits: bool,
}

const NO_LIBC_RSEQ: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
const NO_SEQUENCES: (&str, &str) = ("SUBMETER_RSEQ", "off");
/// The probe takes the same path as on a kernel that may lose a restart.
const VISITS: (&str, &str) = ("SUBMETER_RSEQ", "visits");

impl World {
    /// Nothing is changed: on a machine where nothing is missing, this is everything that submeter
    /// can use.
    pub const BEST: World = World {
        name: "best",
        variables: &[],
        refuses_perf_events: false,
        libc: None,
        backend: "libc_rseq",
        by_visits: false,
    };

    /// All worlds, the best first.
    pub const ALL: [World; 8] = [
        World::BEST,
        // Most containers.
        World { name: "no_perf_events", refuses_perf_events: true, ..World::BEST },
        // Most kernels before 6.18.
        World { name: "may_lose_restarts", variables: &[VISITS], by_visits: true, ..World::BEST },
        World {
            name: "both",
            variables: &[VISITS],
            refuses_perf_events: true,
            by_visits: true,
            ..World::BEST
        },
        // As where the self-test fails, or a CPU cannot be visited.
        World {
            name: "locked_by_cpu",
            variables: &[NO_SEQUENCES],
            backend: "locked_by_cpu",
            ..World::BEST
        },
        // As on other systems and instruction sets, and in sandboxes without rseq: no thread is
        // registered.
        World {
            name: "no_rseq",
            variables: &[NO_SEQUENCES, NO_LIBC_RSEQ],
            refuses_perf_events: true,
            backend: "locked_by_thread",
            ..World::BEST
        },
        // As before glibc 2.35.
        World {
            name: "own_registration",
            variables: &[NO_LIBC_RSEQ],
            backend: "own_rseq",
            ..World::BEST
        },
        World { name: "musl", libc: Some("musl"), backend: "own_rseq", ..World::BEST },
    ];

    /// Finds the world of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static World> {
        World::ALL.iter().find(|world| world.name == name)
    }

    /// Returns a command in the environment of this world. The process that it starts must
    /// [`enter`] the world.
    ///
    /// [`enter`]: World::enter
    #[must_use]
    pub fn command(&self, program: &std::path::Path) -> Command {
        let mut command = Command::new(program);
        command.env_remove("SUBMETER_CLOCK").envs(self.variables.iter().copied());
        command
    }

    /// Takes from the calling thread, and from everything that it starts, what this world refuses.
    /// To be called before there are other threads, and before anything in submeter is called.
    ///
    /// # Errors
    /// When no filter can be installed, or the program is built for another libc; the error says
    /// why.
    pub fn enter(&self) -> Result<(), String> {
        if let Some(libc) = self.libc.filter(|_| !cfg!(target_env = "musl")) {
            return Err(format!("this program is not built for {libc}"));
        }
        if self.refuses_perf_events { filter::refuse_perf_events() } else { Ok(()) }
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod filter {
    use seccompiler::{BpfProgram, Error, SeccompAction, SeccompFilter, apply_filter};

    /// `perf_event_open` (asm/unistd.h).
    const PERF_EVENT_OPEN: i64 = if cfg!(target_arch = "x86_64") { 298 } else { 241 };
    const EPERM: u32 = 1;

    pub(super) fn refuse_perf_events() -> Result<(), String> {
        let arch = std::env::consts::ARCH.try_into().map_err(|error| format!("{error}"))?;
        let refused = [(PERF_EVENT_OPEN, Vec::new())].into();
        let install = || -> Result<(), Error> {
            let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(EPERM));
            let filter = SeccompFilter::new(refused, others, these, arch)?;
            apply_filter(&BpfProgram::try_from(filter)?)
        };
        install().map_err(|error| format!("no system call filters here: {error}"))
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod filter {
    pub(super) fn refuse_perf_events() -> Result<(), String> {
        Err("no system call filters here: Linux on x86-64 and aarch64 has them".to_owned())
    }
}
