//! Gives the hot paths of `percpu_ref` a place in an object file, for `tests/codegen_percpu_ref.rs`.

use std::hint::black_box;

use submeter_percpu::{PercpuArc, PercpuRef};

#[expect(unsafe_code, reason = "a name that is not mangled is an unsafe attribute")]
mod raw;

fn main() -> std::io::Result<()> {
    let count = PercpuRef::new(|| ())?;
    let (_owner, arc) = PercpuArc::new(1)?;
    raw::submeter_codegen_percpu_ref_get(black_box(&count));
    assert!(raw::submeter_codegen_percpu_ref_tryget_live(black_box(&count)));
    raw::submeter_codegen_percpu_ref_put(black_box(&count));
    raw::submeter_codegen_percpu_ref_put(black_box(&count));
    let clone = raw::submeter_codegen_percpu_arc_clone(black_box(&arc));
    raw::submeter_codegen_percpu_arc_drop(clone);
    Ok(())
}
