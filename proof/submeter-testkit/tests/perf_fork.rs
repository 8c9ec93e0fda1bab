//! In a forked child a PMU counts the child's thread, starting from the parent's counts.
#![cfg(not(miri))]
#![expect(unsafe_code, reason = "forks")]

use submeter::perf::parse;
use submeter_events::{Handle, KernelPmu, Pmu};

fn read(pmu: &mut KernelPmu, handles: &[Handle], moment: &mut u64) -> Vec<u64> {
    *moment += 1;
    pmu.begin(*moment);
    handles.iter().map(|&handle| pmu.read(handle).unwrap_or(u64::MAX)).collect()
}

/// Causes page faults by touching new small pages.
fn fault(pages: usize) {
    // SAFETY: a new mapping, used within its bounds and unmapped once.
    unsafe {
        let len = pages * 4096;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let base = libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        libc::madvise(base, len, libc::MADV_NOHUGEPAGE);
        for page in 0..pages {
            base.cast::<u8>().add(page * 4096).write_volatile(1);
        }
        libc::munmap(base, len);
    }
}

#[test]
fn a_forked_child_counts_itself_and_goes_on() {
    const PAGES: usize = 3_000;
    let mut pmu = KernelPmu::new();
    let groups = parse("page-faults:u,minor-faults:u,context-switches").expect("valid");
    let events = groups.iter().flat_map(|group| group.events());
    let handles: Result<Vec<_>, _> = events.map(|event| pmu.prepare(event)).collect();
    let handles = match handles {
        Ok(handles) => handles,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    assert!(pmu.place(&handles));
    let mut moment = 0;
    fault(PAGES);
    let before = read(&mut pmu, &handles, &mut moment);
    // SAFETY: the child reads counters, sleeps and ends, without the parent's exit handlers. It
    // takes no lock that another thread may hold: this is the only test of its program.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let first = read(&mut pmu, &handles, &mut moment);
        fault(PAGES);
        std::thread::sleep(std::time::Duration::from_millis(2));
        let then = read(&mut pmu, &handles, &mut moment);
        let goes_on = first.iter().zip(&before).all(|(first, before)| first >= before);
        let pages = PAGES as u64;
        let counts = then[0] - first[0] >= pages && then[1] - first[1] >= pages;
        let switches = then[2] > first[2];
        drop(pmu);
        let code = i32::from(!goes_on) | i32::from(!counts) << 1 | i32::from(!switches) << 2;
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    // SAFETY: `status` is live; `child` is ours to wait for.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child died: {status:#x}");
    let code = libc::WEXITSTATUS(status);
    assert_eq!(code, 0, "bits: counts fall, no faults of its own, no switches");
    // The parent does not count what the child did.
    let after = read(&mut pmu, &handles, &mut moment);
    assert!(after[0] - before[0] < PAGES as u64 && after[0] >= before[0], "{before:?} {after:?}");
    fault(PAGES);
    let more = read(&mut pmu, &handles, &mut moment);
    assert!(more[0] - after[0] >= PAGES as u64, "{after:?} {more:?}");
}
