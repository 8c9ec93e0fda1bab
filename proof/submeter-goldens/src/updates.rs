//! The operations of a request on groups, counters and reference counts, as a caller in another
//! crate sees them.

use submeter::counter::PercpuCounter;
use submeter::refs::{PercpuArc, PercpuRef};
use submeter::{Bytes, Count, Counter, Gauge, Group};
use submeter_percpu::Block;

/// `Group::add`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_group_add(group: &Group, counter: Counter<Count>, n: u64) {
    group.add(counter, n);
}

/// `Group::adjust`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_group_adjust(group: &Group, gauge: Gauge<Bytes>, delta: i64) {
    group.adjust(gauge, delta);
}

/// `PercpuCounter::add`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_counter_add(counter: &PercpuCounter, n: i64) {
    counter.add(n);
}

/// `Block::add_dirty_otherwise`: what `Group::add` calls where there are no sequences.
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_locked_add(block: &Block, word: usize, n: i64) {
    block.add_dirty_otherwise(word, n, 511, |_| ());
}

/// `PercpuRef::get` and `PercpuRef::put`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_ref_pair(count: &PercpuRef) {
    count.get();
    count.put();
}

/// `PercpuRef::get`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_ref_get(count: &PercpuRef) {
    count.get();
}

/// `PercpuRef::tryget_live`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_ref_tryget_live(count: &PercpuRef) -> bool {
    count.tryget_live()
}

/// `PercpuRef::put`
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_ref_put(count: &PercpuRef) {
    count.put();
}

/// A clone of a `PercpuArc`.
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_arc_clone(arc: &PercpuArc<u64>) -> PercpuArc<u64> {
    arc.clone()
}

/// The drop of a `PercpuArc`.
// SAFETY: 1. No other symbol has this name: only this package begins one so.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn submeter_codegen_update_arc_drop(arc: PercpuArc<u64>) {
    drop(arc);
}
