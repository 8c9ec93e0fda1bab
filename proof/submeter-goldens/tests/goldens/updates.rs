//! The fast paths of the update table, as a caller in another crate sees them: no call, no saved
//! registers, and a limited number of instructions, without link-time optimisation.
//!
//! `sequences` compares the sequences themselves; this module checks the code that leads to them. A
//! hot half that is not inlined shows as a call.

use crate::asm::Isa;
use crate::compile::{Rows, compiled};
use crate::wanted;

/// The functions, the maximum number of instructions up to their return, and the maximum number of
/// saved registers. Values that a loop would keep in registers are loaded here, and counted.
const MOST: [(&str, usize, usize); 10] = [
    // One more than a get: the load of the pointer. A group's handle is such a pointer.
    ("arc_clone", 11, 0),
    ("arc_drop", 10, 0),
    ("counter_add", 19, 0),
    ("group_add", 35, 0),
    ("group_adjust", 35, 0),
    // Two cache lines: the block and the word. The sequences need one address less, and no
    // exchange.
    ("locked_add", 39, 0),
    ("ref_get", 10, 0),
    ("ref_pair", 22, 1),
    ("ref_put", 10, 0),
    // One more than a get: the result.
    ("ref_tryget_live", 11, 0),
];

#[test]
fn updates_are_inline_and_short() {
    if !wanted() {
        return;
    }
    let Some(functions) = compiled(Isa::X86_64, Rows::ByCpu, &["update_"]) else { return };
    let names: Vec<&str> =
        functions.iter().map(|(name, _)| name.trim_start_matches("update_")).collect();
    assert_eq!(names, MOST.map(|(name, ..)| name));
    for ((_, lines), (name, most, saves)) in functions.iter().zip(MOST) {
        let hot: Vec<String> =
            lines.iter().filter(|line| line.hot).map(|line| line.render()).collect();
        let text = hot.join("\n");
        let end = hot.iter().position(|line| line.contains("ret"));
        let end = end.unwrap_or_else(|| panic!("{name} does not return:\n{text}"));
        assert!((8..=most).contains(&end), "{name} takes {end} instructions:\n{text}");
        let with = |what: &str| hot[..end].iter().filter(|line| line.contains(what)).count();
        assert!(with("push") <= saves, "{name} saves more than {saves} registers:\n{text}");
        assert_eq!(with("call"), 0, "{name} has a call on its way:\n{text}");
        let locks = usize::from(name == "locked_add");
        assert_eq!(with("lock"), locks, "{name} has not {locks} locks on its way:\n{text}");
    }
}
