//! Gives the hot paths of `rcuref` a place in an object file, for `tests/codegen_rcuref.rs`.

use std::hint::black_box;

use submeter_percpu::rcuref::{Guard, RcuArc, RcuRef, pin};

#[inline(never)]
fn rcuref_get(count: &RcuRef) -> bool {
    count.get()
}

#[inline(never)]
fn rcuref_get_ordered(count: &RcuRef) -> bool {
    count.get_ordered()
}

#[inline(never)]
fn rcuref_put(count: &RcuRef, guard: &Guard) -> bool {
    count.put(guard)
}

#[inline(never)]
fn rcuarc_clone(arc: &RcuArc<u64>) -> RcuArc<u64> {
    arc.clone()
}

#[inline(never)]
fn rcuarc_release(arc: RcuArc<u64>, guard: &Guard) {
    RcuArc::release(arc, guard);
}

fn main() {
    let (count, guard, arc) = (RcuRef::new(), pin(), RcuArc::new(1));
    black_box(rcuref_get(black_box(&count)));
    black_box(rcuref_get_ordered(black_box(&count)));
    black_box(rcuref_put(black_box(&count), &guard));
    let clone = rcuarc_clone(black_box(&arc));
    rcuarc_release(black_box(clone), &guard);
}
