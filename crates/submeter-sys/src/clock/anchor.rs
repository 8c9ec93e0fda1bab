//! Where the running time that a page tells stands on the scale of CPU time.

/// One moment on both scales, a little after the thread came back.
///
/// A page tells how long its event, and thus the thread, had run when the thread last came back.
/// That is no CPU time: the two scales start elsewhere, and the kernel's leaves out what the
/// hypervisor took, and in some kernels interrupts. So it is only used to go on from a moment that
/// is on both, and not for long.
///
/// Rejected: the conversion of the CPU's counter that the page offers beside it. It would tell what
/// the thread ran since it came back as well, but guests whose kernel takes its clock from the
/// hypervisor have none, and there a system call costs most.
#[derive(Debug)]
pub(super) struct Anchor {
    /// CPU time less running time: wraps.
    offset_ns: u64,
    /// The counter at that moment.
    pub(super) ticks: u64,
}

impl Anchor {
    /// Notes that the thread, back after it had run for `running_ns`, has used `cpu_ns` at `ticks`.
    pub(super) fn new(running_ns: u64, cpu_ns: u64, ticks: u64) -> Anchor {
        Anchor { offset_ns: cpu_ns.wrapping_sub(running_ns), ticks }
    }

    /// Returns the CPU time of a thread that came back after it had run for `running_ns`, if that
    /// is not before `last_ns`, which it has used for certain. It would be where the page's time
    /// stands still, and where the thread is further from its return than at the anchor.
    pub(super) fn cpu_ns(&self, running_ns: u64, last_ns: u64) -> Option<u64> {
        let ns = self.offset_ns.wrapping_add(running_ns);
        // A difference, as the sum may have wrapped below 0.
        (ns.wrapping_sub(last_ns) as i64 >= 0).then_some(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_goes_on_from_the_anchor_as_running_time_does() {
        for (running, cpu) in [(1_000, 7_000), (7_000, 1_000)] {
            let anchor = Anchor::new(running, cpu, 0);
            assert_eq!(anchor.cpu_ns(running, cpu), Some(cpu));
            assert_eq!(anchor.cpu_ns(running + 500, cpu + 499), Some(cpu + 500));
        }
    }

    #[test]
    fn a_time_before_the_last_answer_is_none() {
        let anchor = Anchor::new(1_000, 7_000, 0);
        assert_eq!(anchor.cpu_ns(1_500, 7_501), None, "the page stands still, or nearly so");
        assert_eq!(Anchor::new(9_000, 1_000, 0).cpu_ns(100, 0), None, "below 0");
    }
}
