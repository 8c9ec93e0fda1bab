//! Sessions that run out of descriptors: what they report, and that they recover.
//!
//! In a program of its own, whose limits it changes.
#![cfg(all(target_os = "linux", not(miri)))]
#![expect(unsafe_code, reason = "sets limits")]

use submeter::perf::{Request, RequestState, Session, parse};
use submeter::{Group, Schema, Tree};

/// Limits the process to `descriptors`; returns the previous limit.
fn limit(descriptors: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads and writes the structure that it is given.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, descriptors);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    before
}

fn requests(group: &Group) -> Vec<Request> {
    let lists = ["page-faults:u", "task-clock"];
    let request = |list| Request::group(group, parse(list).expect("valid").remove(0));
    lists.map(request).into()
}

fn state(session: &Session, of: usize) -> RequestState {
    session.counts()[of].state().clone()
}

#[test]
fn a_lack_of_descriptors_has_a_remedy() {
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let group = tree.create("/a").expect("new");
    let session = Session::open(&tree, requests(&group));
    if let RequestState::NotSupported(why) = state(&session, 0) {
        eprintln!("skipped: {why}");
        return;
    }
    group.run(|| ());
    assert_eq!(
        [0, 1].map(|of| state(&session, of)),
        [RequestState::Counting, RequestState::Counting]
    );

    let before = limit(3);
    // An event that a thread cannot open is reported by name, and the clock works without a
    // descriptor.
    std::thread::scope(|scope| {
        let joined = scope.spawn(|| group.run(|| std::hint::black_box((0..1000).sum::<u64>())));
        joined.join().expect("no panic");
    });
    let poorer = Session::open(&tree, requests(&group));
    group.run(|| ());
    let (failed, refused) = (state(&session, 0), state(&poorer, 0));
    let clocks = [state(&session, 1), state(&poorer, 1)];
    drop(poorer);
    limit(before);

    let RequestState::Error(failed) = failed else { panic!("{failed:?}") };
    let RequestState::NotSupported(refused) = refused else { panic!("{refused:?}") };
    for said in [failed, refused.to_string()] {
        assert!(said.contains("page-faults:u") && said.contains("ulimit -n"), "{said}");
    }
    assert_eq!(clocks, [RequestState::Counting, RequestState::Counting]);

    // None of these errors persists.
    let session = Session::open(&tree, requests(&group));
    std::thread::scope(|scope| scope.spawn(|| group.run(|| ())).join().expect("no panic"));
    assert_eq!(
        [0, 1].map(|of| state(&session, of)),
        [RequestState::Counting, RequestState::Counting]
    );
}
