//! Any bytes as a management datagram.
#![no_main]

#[path = "../../crates/wire/tests/checks/mod.rs"]
#[allow(dead_code, reason = "the other targets' checks")]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::mad(bytes));
