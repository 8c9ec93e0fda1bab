//! The functions, under names that the assembly shows as they are.

use submeter_percpu::{PercpuArc, PercpuRef};

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_percpu_ref_get(count: &PercpuRef) {
    count.get();
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_percpu_ref_tryget_live(count: &PercpuRef) -> bool {
    count.tryget_live()
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_percpu_ref_put(count: &PercpuRef) {
    count.put();
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_percpu_arc_clone(arc: &PercpuArc<u64>) -> PercpuArc<u64> {
    arc.clone()
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) fn submeter_codegen_percpu_arc_drop(arc: PercpuArc<u64>) {
    drop(arc);
}
