//! Sessions leave nothing behind in the process. A program of its own, because the threads of other
//! tests open descriptors too.
#![cfg(all(target_os = "linux", not(miri)))]

use submeter::perf::{Request, Session, parse};
use submeter::{Schema, Tree, switch};

/// Returns how many descriptors the process has open and how many perf pages it has mapped.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    let pages = maps.lines().filter(|line| line.contains("perf_event")).count();
    (std::fs::read_dir("/proc/self/fd").expect("readable").count(), pages)
}

#[test]
fn sessions_leave_no_descriptor_and_no_page() {
    const SESSIONS: usize = 300;
    const THREADS: usize = 3;
    let mut schema = Schema::builder();
    schema.cpu_time("cpu", "CPU time");
    let tree = Tree::new(schema.build().expect("valid")).expect("address space");
    let group = tree.create("/b").expect("new");
    let lists = ["page-faults:u", "context-switches", "task-clock", "dummy", "cycles:u"];
    let request = |list: &&str| Request::group(&group, parse(list).expect("valid").remove(0));
    let (mut before, mut most) = ((0, 0), 0);
    std::thread::scope(|scope| {
        let (told, tell): (Vec<_>, Vec<_>) = (0..THREADS)
            .map(|_| {
                let (tell, told) = std::sync::mpsc::channel::<std::sync::mpsc::Sender<()>>();
                let group = group.clone();
                let thread = scope.spawn(move || {
                    for done in told {
                        group.run(switch::park);
                        done.send(()).expect("received");
                    }
                });
                (thread, tell)
            })
            .unzip();
        let switch_all = || {
            for thread in &tell {
                let (done, is_done) = std::sync::mpsc::channel();
                thread.send(done).expect("received");
                is_done.recv().expect("sent");
            }
        };
        switch_all();
        before = held();
        for session in 0..SESSIONS {
            let _session = Session::open(&tree, lists.iter().map(request));
            // Idle threads keep the events of the last session that they saw.
            if session % 3 != 0 {
                switch_all();
            }
            most = most.max(held().0);
        }
        switch_all();
        let after = held();
        assert_eq!(after, before, "threads that switched since hold nothing");
        let each = lists.len() + 2;
        assert!(most <= before.0 + (THREADS + 1) * each, "{most} descriptors of {before:?}");
        drop(tell);
        told.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
    assert!(held().0 <= before.0 && held().1 <= before.1, "{:?} of {before:?}", held());
}
