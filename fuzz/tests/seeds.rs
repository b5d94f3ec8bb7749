//! The seeds through the functions that the fuzzer calls, with each byte changed in turn where they are
//! short.

use std::path::Path;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 14] = [
    ("json", sealog_fuzz::json),
    ("event", sealog_fuzz::event),
    ("query", sealog_fuzz::query),
    ("time", sealog_fuzz::time),
    ("frame", sealog_fuzz::frame),
    ("input", sealog_fuzz::input),
    ("adapters", sealog_fuzz::adapters),
    ("otlp", sealog_fuzz::otlp),
    ("trust_note", sealog_fuzz::trust::note),
    ("trust_policy", sealog_fuzz::trust::policy),
    ("trust_proof", sealog_fuzz::trust::proof),
    ("trust_consistency", sealog_fuzz::trust::consistency),
    ("trust_tile", sealog_fuzz::trust::tile),
    ("trust_entry", sealog_fuzz::trust::entry),
];
/// Longer seeds are changed in this many places only.
const PLACES_MAX: usize = 200;

#[test]
fn no_seed_and_none_with_a_byte_changed_breaks_a_rule() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
        let mut seeds = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let mut seed = std::fs::read(entry.unwrap().path()).unwrap();
            target(&seed);
            let step = seed.len().div_ceil(PLACES_MAX).max(1);
            for at in (0..seed.len()).step_by(step) {
                for change in [0x01, 0x20, 0x80, 0xff] {
                    seed[at] ^= change;
                    target(&seed);
                    seed[at] ^= change;
                }
                target(&seed[..at]);
            }
            seeds += 1;
        }
        assert!(seeds >= 5, "{name} has {seeds} seeds");
    }
}
