#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| sealog_fuzz::trust::consistency(data));

#[cfg(not(fuzzing))]
fn main() {}
