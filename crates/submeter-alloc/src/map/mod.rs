//! Maps from addresses to what is known of the blocks there, in parts that are created where blocks
//! lie.

mod raw;

pub(crate) use raw::Leaf;

/// Bits of an address that Linux gives a program which does not ask for more.
pub(crate) const ADDRESS_BITS: u32 = match () {
    () if cfg!(miri) || usize::BITS == 32 => 32,
    () if cfg!(target_arch = "aarch64") => 48,
    () => 47,
};
