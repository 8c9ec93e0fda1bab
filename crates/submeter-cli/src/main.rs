//! The `submeter` command.

#![forbid(unsafe_code)]

fn main() {}
