//! The functions, under names that the assembly shows as they are.

use submeter_percpu::rcuref::{Guard, RcuArc, RcuRef};

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_rcuref_get(count: &RcuRef) -> bool {
    count.get()
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_rcuref_get_ordered(count: &RcuRef) -> bool {
    count.get_ordered()
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_rcuref_put(count: &RcuRef, guard: &Guard) -> bool {
    count.put(guard)
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_rcuarc_clone(arc: &RcuArc<u64>) -> RcuArc<u64> {
    arc.clone()
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_rcuarc_release(arc: RcuArc<u64>, guard: &Guard) {
    RcuArc::release(arc, guard);
}
