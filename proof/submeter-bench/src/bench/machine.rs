//! The machine that figures come from; without it they mean nothing.

use std::time::SystemTime;

use serde::Serialize;
use submeter_sys::{clock, cpu, kernel, probe};

/// The machine, the system and the build. The fields are named as in the JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// The processor's model name.
    pub(crate) cpu_model: Option<String>,
    /// The design of the processor. Several share the model name, and they differ by 2 to 3 times
    /// in the cost of a sequence.
    pub(crate) cpu_design: Option<String>,
    /// The instruction set.
    pub(crate) arch: &'static str,
    /// Number of CPUs that this process may use.
    pub(crate) cpus: usize,
    /// `uname -r`.
    pub(crate) kernel: String,
    /// The backend in use.
    pub(crate) backend: &'static str,
    /// Why this backend is in use.
    pub(crate) backend_reason: &'static str,
    /// The result of the sequences' self-test.
    pub(crate) self_test: String,
    /// The source of a thread's CPU time.
    pub(crate) clock: &'static str,
    /// How measuring threads are pinned.
    pub(crate) pinning: String,
    /// Load averages over 1, 5 and 15 minutes, before anything was measured.
    pub(crate) load_average: Option<[f64; 3]>,
    /// Whether the run kept each CPU busy itself (`--busy`).
    pub(crate) busy: bool,
    /// When the run began, in UTC.
    pub(crate) date: String,
    /// The version of submeter.
    pub(crate) version: &'static str,
    /// The commit that was built, if the build knew it.
    pub(crate) commit: Option<&'static str>,
    /// The compiler.
    pub(crate) rustc: &'static str,
    /// Whether this was a debug build, whose figures are meaningless.
    pub(crate) debug_build: bool,
}

impl Machine {
    /// Collects the facts from the kernel, the probe and the build.
    pub(crate) fn gather() -> Machine {
        let probe = probe();
        let cpus = cpu::affinity().unwrap_or_default();
        let read = |path| std::fs::read_to_string(path).ok();
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        Machine {
            cpu_model: cpu_model(&cpuinfo),
            cpu_design: cpu_design(&cpuinfo),
            arch: std::env::consts::ARCH,
            cpus: cpus.len().max(1),
            kernel: kernel::release(),
            backend: probe.backend.name(),
            backend_reason: &probe.reason,
            self_test: probe.self_test.to_string(),
            clock: clock::choice().source.name(),
            pinning: pinning(&cpus),
            load_average: read("/proc/loadavg").and_then(|text| load_average(&text)),
            busy: false,
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            version: env!("CARGO_PKG_VERSION"),
            commit: submeter_terminal::COMMIT,
            rustc: env!("SUBMETER_RUSTC"),
            debug_build: cfg!(debug_assertions),
        }
    }
}

/// Describes where measuring threads run. Servers and their clients are left to the scheduler, as
/// in production.
fn pinning(cpus: &[usize]) -> String {
    let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    format!("each measuring thread to one of the CPUs {}; servers are not pinned", cpus.join(", "))
}

/// Finds the model name in `/proc/cpuinfo`; ARM kernels give none.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let name = field(cpuinfo, "model name")?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Finds the numbers of the processor's design in `/proc/cpuinfo`: on x86 family, model and
/// stepping, on ARM implementer, part and variant.
fn cpu_design(cpuinfo: &str) -> Option<String> {
    let x86 = [("family", "cpu family"), ("model", "model"), ("stepping", "stepping")];
    let arm =
        [("implementer", "CPU implementer"), ("part", "CPU part"), ("variant", "CPU variant")];
    let numbers = |names: [(&str, &str); 3]| {
        let number = |(name, key)| Some(format!("{name} {}", field(cpuinfo, key)?));
        names.map(number).into_iter().collect::<Option<Vec<_>>>()
    };
    Some(numbers(x86).or_else(|| numbers(arm))?.join(", "))
}

/// Returns the first value of that name.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn load_average(loadavg: &str) -> Option<[f64; 3]> {
    let mut numbers = loadavg.split_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_files_are_read() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Intel(R)  Xeon(R) CPU @ 2.70GHz\n\nprocessor\t: 1\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("Intel(R) Xeon(R) CPU @ 2.70GHz"));
        assert_eq!(cpu_model("processor\t: 0\nBogoMIPS\t: 243.75\n"), None);
        assert_eq!(cpu_design(cpuinfo), None);
        let x86 = "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n";
        assert_eq!(cpu_design(x86).as_deref(), Some("family 25, model 17, stepping 1"));
        let arm = "CPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n";
        let design = "implementer 0x41, part 0xd0c, variant 0x3";
        assert_eq!(cpu_design(arm).as_deref(), Some(design));
        assert_eq!(load_average("12.08 9.30 7.77 12/197 7482\n"), Some([12.08, 9.30, 7.77]));
        assert_eq!(load_average("12.08 x"), None);
    }

    #[test]
    fn a_machine_knows_its_kernel_compiler_and_date() {
        let machine = Machine::gather();
        assert!(machine.cpus > 0 && !machine.kernel.is_empty());
        assert!(machine.rustc.starts_with("rustc 1."), "{}", machine.rustc);
        assert!(machine.date.starts_with("20") && machine.date.ends_with('Z'), "{}", machine.date);
    }
}
