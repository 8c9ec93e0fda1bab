//! See `submeter_fuzz::protocol`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| submeter_fuzz::protocol(bytes));
