//! See `submeter_fuzz::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| submeter_fuzz::record(bytes));
