#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| continuum_testkit::fuzz::prompt(data));
