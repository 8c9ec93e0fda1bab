//! The guarantees of the kernel's rcuref, by the numbers of its statements, and then the pointers.

mod naive;
mod pointers;
mod zones;
