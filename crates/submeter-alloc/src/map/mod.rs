//! Maps from addresses to what is known of the blocks there: parts that are made where one lies.

mod raw;

pub(crate) use raw::Leaf;

/// The bits of an address, of what Linux gives a program that does not ask for more.
pub(crate) const ADDRESS_BITS: u32 = match () {
    () if cfg!(miri) || usize::BITS == 32 => 32,
    () if cfg!(target_arch = "aarch64") => 48,
    () => 47,
};
