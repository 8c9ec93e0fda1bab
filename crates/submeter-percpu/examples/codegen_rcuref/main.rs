//! Gives the hot paths of `rcuref` a place in an object file, for `tests/codegen_rcuref.rs`.

use std::hint::black_box;

use submeter_percpu::rcuref::{RcuArc, RcuRef, pin};

#[expect(unsafe_code, reason = "a name that is not mangled is an unsafe attribute")]
mod raw;

fn main() {
    let (count, guard, arc) = (RcuRef::new(), pin(), RcuArc::new(1));
    black_box(raw::submeter_codegen_rcuref_get(black_box(&count)));
    black_box(raw::submeter_codegen_rcuref_get_ordered(black_box(&count)));
    black_box(raw::submeter_codegen_rcuref_put(black_box(&count), &guard));
    let clone = raw::submeter_codegen_rcuarc_clone(black_box(&arc));
    raw::submeter_codegen_rcuarc_release(black_box(clone), &guard);
}
