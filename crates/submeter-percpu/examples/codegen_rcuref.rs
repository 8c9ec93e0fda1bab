//! Gives the hot paths of `rcuref` a place in an object file, for `tests/codegen_rcuref.rs`.
#![expect(unsafe_code, reason = "names that the assembly shows as they are")]

use std::hint::black_box;

use submeter_percpu::rcuref::{Guard, RcuArc, RcuRef, pin};

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn submeter_codegen_rcuref_get(count: &RcuRef) -> bool {
    count.get()
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn submeter_codegen_rcuref_get_ordered(count: &RcuRef) -> bool {
    count.get_ordered()
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn submeter_codegen_rcuref_put(count: &RcuRef, guard: &Guard) -> bool {
    count.put(guard)
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn submeter_codegen_rcuarc_clone(arc: &RcuArc<u64>) -> RcuArc<u64> {
    arc.clone()
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn submeter_codegen_rcuarc_release(arc: RcuArc<u64>, guard: &Guard) {
    RcuArc::release(arc, guard);
}

fn main() {
    let (count, guard, arc) = (RcuRef::new(), pin(), RcuArc::new(1));
    black_box(submeter_codegen_rcuref_get(black_box(&count)));
    black_box(submeter_codegen_rcuref_get_ordered(black_box(&count)));
    black_box(submeter_codegen_rcuref_put(black_box(&count), &guard));
    let clone = submeter_codegen_rcuarc_clone(black_box(&arc));
    submeter_codegen_rcuarc_release(black_box(clone), &guard);
}
