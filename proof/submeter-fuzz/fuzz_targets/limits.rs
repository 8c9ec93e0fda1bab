//! See `submeter_fuzz::limits`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| submeter_fuzz::limits(bytes));
