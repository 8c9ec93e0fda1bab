//! The system call, and what it returns.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::perf_event::{Config, Counts};

mod group;
mod page;
mod pmc;

pub use group::Together;
pub use page::{FastRead, Switches};
pub(crate) use page::{Page, load};

/// A counter on the thread that opened it, wherever that thread runs. Costs a file descriptor, and
/// some hundred nanoseconds of the kernel at each context switch of the thread.
#[derive(Debug)]
pub struct Event {
    file: File,
}

impl Event {
    /// Opens an event for the calling thread, which counts at once, or with its leader.
    ///
    /// # Errors
    /// The kernel's error: `EACCES` or `EPERM` without the privilege, `ENOENT` or `EOPNOTSUPP` for
    /// events that the hardware does not count, `ENOSYS` if there is no such call, `EMFILE` without
    /// descriptors.
    pub fn open(config: &Config, leader: Option<&Event>) -> io::Result<Event> {
        Event::open_with(&Attributes::new(config, WITH_TIMES), leader)
    }

    /// Opens an event for the tasks of a control group while they run on one CPU, which counts at
    /// once. Meant for comparisons with the kernel's own accounting by group.
    ///
    /// # Errors
    /// The same as [`Event::open`]; it needs `CAP_PERFMON`, or `kernel.perf_event_paranoid` of 0 or
    /// less, and a kernel with `CONFIG_CGROUP_PERF`.
    pub fn open_for_cgroup(config: &Config, directory: &File, cpu: usize) -> io::Result<Event> {
        let attributes = Attributes::new(config, WITH_TIMES);
        let cpu = i32::try_from(cpu).map_err(io::Error::other)?;
        let flags = FLAG_CLOSE_ON_EXEC | FLAG_PID_CGROUP;
        Event::open_on(&attributes, (directory.as_raw_fd(), cpu), -1, flags)
    }

    fn open_with(attributes: &Attributes, leader: Option<&Event>) -> io::Result<Event> {
        let group = leader.map_or(-1, |leader| leader.file.as_raw_fd());
        // The calling thread (0), on any CPU (-1).
        Event::open_on(attributes, (0, -1), group, FLAG_CLOSE_ON_EXEC)
    }

    fn open_on(
        attributes: &Attributes,
        (task, cpu): (RawFd, i32),
        group: RawFd,
        flags: libc::c_ulong,
    ) -> io::Result<Event> {
        let attributes = std::ptr::from_ref(attributes);
        // SAFETY: 1. `attributes` is live for the size that it states, which is its type's. 2. The
        // call only reads it: perf_event_open(2) says so.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, attributes, task, cpu, group, flags)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: 1. The descriptor is open, and has no other owner: it was just made.
        Ok(Event { file: unsafe { File::from_raw_fd(fd as RawFd) } })
    }

    /// Reads the counts: a system call.
    ///
    /// # Errors
    /// The kernel's error, and [`io::ErrorKind::UnexpectedEof`] for a pinned event that lost its
    /// counter: it is in error permanently, and its values are meaningless.
    pub fn read(&self) -> io::Result<Counts> {
        let mut bytes = [0; 24];
        (&self.file).read_exact(&mut bytes)?;
        let word = |i: usize| {
            let bytes = bytes.as_chunks::<8>().0;
            u64::from_ne_bytes(bytes[i])
        };
        Ok(Counts { value: word(0), enabled_ns: word(1), running_ns: word(2) })
    }

    /// Returns the number by which the kernel identifies it.
    fn id(&self) -> io::Result<u64> {
        let mut id = 0u64;
        // SAFETY: 1. The request writes 64 bits to the address that it is given: its number says
        // so.
        // 2. They are live and writable: `id`.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), IOC_ID as _, &raw mut id) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
    }

    /// Stops counting, with all events that it leads.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn disable(&self) -> io::Result<()> {
        self.control(IOC_DISABLE, IOC_GROUP)
    }

    /// Counts again, with all events that it leads.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn enable(&self) -> io::Result<()> {
        self.control(IOC_ENABLE, IOC_GROUP)
    }

    fn control(&self, request: libc::c_ulong, whom: libc::c_ulong) -> io::Result<()> {
        // The cast is for C libraries whose `ioctl` takes a signed request. SAFETY: 1. The request
        // takes an integer and touches no memory of ours: callers pass only `IOC_ENABLE` and
        // `IOC_DISABLE`.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), request as _, whom) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

const FLAG_CLOSE_ON_EXEC: libc::c_ulong = 8;
/// The task is a directory of the cgroup file system.
const FLAG_PID_CGROUP: libc::c_ulong = 4;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
/// Reads 64 bits; its number contains the size of a pointer.
const IOC_ID: libc::c_ulong = 0x8000_2407 | (size_of::<usize>() as libc::c_ulong) << 16;
/// Includes the group that the event leads.
const IOC_GROUP: libc::c_ulong = 1;

/// The parts of a read besides the value:
/// `PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING`.
const WITH_TIMES: u64 = 3;

/// `struct perf_event_attr`, as first published (64 bytes): every kernel takes it.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

impl Attributes {
    fn new(config: &Config, read_format: u64) -> Attributes {
        let flag = |bit: u32, set: bool| u64::from(set) << bit;
        Attributes {
            kind: config.kind,
            size: size_of::<Attributes>() as u32,
            config: config.event,
            sample_period: 0,
            sample_type: 0,
            read_format,
            // Bits of the flags: pinned, exclude_user, exclude_kernel, exclude_hv.
            flags: flag(2, config.pinned)
                | flag(4, !config.user)
                | flag(5, !config.kernel)
                | flag(6, !config.kernel),
            wakeup_events: 0,
            breakpoint_type: 0,
            config1: 0,
        }
    }
}

const _: () = assert!(size_of::<Attributes>() == 64);
