//! How long the stress tests of allocators run.

/// Returns a million, or another number under Miri, unless `SUBMETER_HEAP_OPERATIONS` says how
/// many.
pub(crate) fn operations(miri: usize) -> usize {
    let default = if cfg!(miri) { miri } else { 1_000_000 };
    let set = std::env::var("SUBMETER_HEAP_OPERATIONS").ok();
    set.map_or(default, |text| text.parse().expect("a whole number"))
}
