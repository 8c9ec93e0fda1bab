//! How a stream handles answers that cannot be right.

use super::*;

/// A refusal after an abandoned barrier is counted, not compared.
#[test]
fn refusals_without_a_barrier_are_only_counted() {
    let mut stream = Differential::stream(TestSchema::new(), 1, 10);
    let quota = stream.schema.quotas[0];
    stream.set_limit(0, 0, Some(1));
    let refused = stream.tree.root().try_charge(quota, 2).expect_err("two of one");
    // As if the stock that could not be examined would have been enough.
    assert!(stream.is_refused_late(Err(&refused), Ok(()), true, (0, 0, 2)), "it is taken back");
    let expected = stream.oracle.charge(0, 0, 2);
    assert!(!stream.is_refused_late(Err(&refused), expected, true, (0, 0, 77)), "of 77?");
    assert_eq!(stream.tally.late, 2);
    assert!(!stream.is_refused_late(Err(&refused), expected, false, (0, 0, 2)));
    assert_eq!(stream.tally.late, 2, "as it should be");
}

/// Refusing what fits is an error, unless a barrier was abandoned.
#[test]
#[should_panic = "not Ok"]
fn refusing_what_fits_is_an_error() {
    let mut stream = Differential::stream(TestSchema::new(), 1, 10);
    let quota = stream.schema.quotas[0];
    stream.set_limit(0, 0, Some(1));
    let refused = stream.tree.root().try_charge(quota, 2).expect_err("two of one");
    stream.is_refused_late(Err(&refused), Ok(()), false, (0, 0, 2));
}
