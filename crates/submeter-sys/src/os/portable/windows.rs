//! The services of Windows.

pub(crate) use super::{heap as memory, no_fork as fork};

pub(crate) mod clock {
    //! The times that the scheduler records at each tick.

    use std::mem::MaybeUninit;

    use windows_sys::Win32::Foundation::{FILETIME, HANDLE};
    use windows_sys::Win32::System::Threading::{
        GetCurrentProcess, GetCurrentThread, GetProcessTimes, GetThreadTimes,
    };

    /// The clock in use.
    pub(crate) const NAME: &str = "GetThreadTimes";

    pub(crate) fn thread_cpu_ns() -> u64 {
        // SAFETY: 1. The call takes nothing and returns a handle that always names this thread.
        let here = unsafe { GetCurrentThread() };
        // SAFETY: 1. The function writes to four live times: `cpu_ns` passes those.
        cpu_ns(|created, ended, kernel, user| unsafe {
            GetThreadTimes(here, created, ended, kernel, user)
        })
    }

    pub(crate) fn process_cpu_ns() -> u64 {
        // SAFETY: 1. The call takes nothing and returns a handle that always names this process.
        let here: HANDLE = unsafe { GetCurrentProcess() };
        // SAFETY: 1. The function writes to four live times: `cpu_ns` passes those.
        cpu_ns(|created, ended, kernel, user| unsafe {
            GetProcessTimes(here, created, ended, kernel, user)
        })
    }

    type Time = *mut FILETIME;

    /// Returns the sum of kernel and user time that `ask` fills in, 0 if it fails.
    fn cpu_ns(ask: impl Fn(Time, Time, Time, Time) -> i32) -> u64 {
        let mut times = [MaybeUninit::<FILETIME>::zeroed(); 4];
        let [created, ended, kernel, user] = times.each_mut().map(MaybeUninit::as_mut_ptr);
        ask(created, ended, kernel, user);
        let ns = |time: MaybeUninit<FILETIME>| {
            // SAFETY: 1. The value is initialised: zeroes are valid for two numbers.
            let time = unsafe { time.assume_init() };
            // In units of 100 ns.
            (u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime)) * 100
        };
        ns(times[2]) + ns(times[3])
    }
}
