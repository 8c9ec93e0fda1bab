//! What the kernel's rcuref promises, by the numbers of its statements, and then the pointers.

mod naive;
mod pointers;
mod zones;
