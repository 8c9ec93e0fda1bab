//! How often a program gets a report of failures.

use std::sync::mpsc;
use std::time::Duration;

use submeter::Count;
use submeter_otlp::Temporality;

use super::receiver::{Receiver, Reply, status};
use super::{to, tree};

#[test]
fn one_failure_is_told_once_and_so_is_its_end() {
    let mut key = None;
    let tree = tree(|schema| key = Some(schema.counter::<Count>("n", "")));
    let n = key.expect("declared");
    let receiver = Receiver::start(|at| match at {
        0..3 => status("503 Busy"),
        3..5 => status("400 No"),
        _ => Reply::Accept,
    });
    let (send, told) = mpsc::channel();
    let exporter = to(&receiver, &tree)
        .temporality(Temporality::Delta)
        .interval(Duration::from_millis(5))
        .report(move |error| drop(send.send(error.map(ToString::to_string))))
        .start()
        .expect("valid");
    tree.root().add(n, 1);
    let mut texts = Vec::new();
    for _ in 0..3 {
        texts.push(told.recv_timeout(Duration::from_secs(60)).expect("told"));
    }
    let [Some(busy), Some(refused), None] = &texts[..] else { panic!("{texts:?}") };
    assert!(busy.contains("503") && refused.contains("400"), "{texts:?}");
    tree.root().add(n, 1);
    exporter.shutdown().expect("accepted");
    assert!(told.try_recv().is_err(), "nothing new has happened");
}
