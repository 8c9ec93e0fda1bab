//! See `submeter_fuzz::path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| submeter_fuzz::path(bytes));
