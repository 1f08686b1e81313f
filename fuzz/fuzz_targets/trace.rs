//! Fuzz target: a trace, any bytes. The contract is in `tests/src/parsers.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hpcrun_tests::parsers::trace(data));
