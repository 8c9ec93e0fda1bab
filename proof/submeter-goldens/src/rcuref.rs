//! Gets and puts of `rcuref`.

use submeter_percpu::rcuref::{Guard, RcuArc, RcuRef};

/// `RcuRef::get`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_rcuref_get(count: &RcuRef) -> bool {
    count.get()
}

/// `RcuRef::get_ordered`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_rcuref_get_ordered(count: &RcuRef) -> bool {
    count.get_ordered()
}

/// `RcuRef::put`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_rcuref_put(count: &RcuRef, guard: &Guard) -> bool {
    count.put(guard)
}

/// A clone of an `RcuArc`.
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_rcuarc_clone(arc: &RcuArc<u64>) -> RcuArc<u64> {
    arc.clone()
}

/// `RcuArc::release`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_rcuarc_release(arc: RcuArc<u64>, guard: &Guard) {
    RcuArc::release(arc, guard);
}

/// The drop of an `RcuArc`.
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_rcuarc_drop(arc: RcuArc<u64>) {
    drop(arc);
}
