//! A listener that does what the kernel does for a profiler: it sets a breakpoint at a probe, and
//! when a thread stops there, it reads the registers that the note names.

use std::fs;
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::reader::Probe;

/// What a listener heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A block, its size, and the bytes that it stands for.
    Alloc(usize, usize, usize),
    Free(usize),
}

const ROOM: usize = 1 << 16;

/// The addresses of the two probes in this process.
static PLACES: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static HEARD: [[AtomicUsize; 4]; ROOM] = [const { [const { AtomicUsize::new(0) }; 4] }; ROOM];

const BREAKPOINT: u8 = 0xcc;

/// Listens to these two probes from now on.
pub(crate) fn listen(alloc: &Probe, free: &Probe) {
    // SAFETY: 1. The action is initialised, and its handler is of the kind that its flags say.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = stopped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()), 0);
    }
    let base = base();
    for (place, probe) in PLACES.iter().zip([alloc, free]) {
        let address = base + probe.address as usize;
        // Relaxed, here and below: one thread.
        place.store(address, Ordering::Relaxed);
        // SAFETY: 1. The instruction there does nothing, is one byte long and of this program. 2.
        // The page stays executable while it is written, and no thread is there.
        unsafe {
            let size = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let page = ptr::with_exposed_provenance_mut(address / size * size);
            let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            assert_eq!(libc::mprotect(page, size, all), 0);
            ptr::with_exposed_provenance_mut::<u8>(address).write_volatile(BREAKPOINT);
            assert_eq!(libc::mprotect(page, size, libc::PROT_READ | libc::PROT_EXEC), 0);
        }
    }
}

/// Returns what was heard since the last call.
pub(crate) fn heard() -> Vec<Heard> {
    // Relaxed: as above.
    let count = COUNT.swap(0, Ordering::Relaxed);
    assert!(count < ROOM, "{count}");
    let words = |at: usize| HEARD[at].each_ref().map(|word| word.load(Ordering::Relaxed));
    let one = |at| match words(at) {
        [0, block, size, weight] => Heard::Alloc(block, size, weight),
        [_, block, ..] => Heard::Free(block),
    };
    (0..count).map(one).collect()
}

/// The handler that the kernel calls where the thread stops. The arguments are in the registers
/// that the notes name: those of the first three arguments of a call.
extern "C" fn stopped(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: 1. The kernel passes a valid context to a handler of this kind.
    let registers = unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let register = |number: libc::c_int| registers[number as usize] as usize;
    // Continues after the breakpoint, as it would after the original instruction.
    let place = register(libc::REG_RIP) - 1;
    // Relaxed: as above.
    let Some(kind) = PLACES.iter().position(|known| known.load(Ordering::Relaxed) == place) else {
        // SAFETY: 1. It ends the process, as the signal would have.
        unsafe { libc::abort() }
    };
    let at = COUNT.fetch_add(1, Ordering::Relaxed) % ROOM;
    let arguments = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].map(register);
    for (word, value) in HEARD[at].iter().zip([kind].into_iter().chain(arguments)) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Returns the difference between this program's addresses and those it was linked for.
fn base() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("readable");
    let exe = fs::read_link("/proc/self/exe").expect("a link");
    let line = maps.lines().find(|line| line.ends_with(exe.to_str().expect("UTF-8")));
    let (start, _) = line.and_then(|line| line.split_once('-')).expect("it is mapped");
    usize::from_str_radix(start, 16).expect("an address")
}
