# `just ci` is what CI runs; `just` alone lists what there is.
set shell := ["bash", "-euo", "pipefail", "-c"]

_default:
    @just --list

# Everything CI checks.
ci: fmt lint policy test tools

# Formatting.
fmt:
    cargo fmt --all --check

# Compiler and clippy warnings are errors.
lint:
    cargo clippy --locked --workspace --all-targets -- -D warnings

# Licences, sources, duplicate bans, unused dependencies. (Advisories need a network: `just advisories`.)
policy:
    cargo deny --log-level error check licenses bans sources
    cargo machete

# Known vulnerabilities in dependencies.
advisories:
    cargo deny check advisories

# All Rust tests, and the specification once more on PostgreSQL.
test:
    cargo test --locked --workspace
    SEALOG_TEST_STORE=postgres cargo test --locked --workspace --test spec

# The verifiers in other languages, and the vectors through each.
tools:
    python3 -m unittest discover -s tools -p 'test_*.py'
    node --test tools/sealog_verify.test.mjs

# The store beside the bare machine: about six minutes. The quick one says that it works, not how fast it is.
bench-store *ARGS:
    cargo run --release --locked -p sealog-bench -- store {{ARGS}}

bench-store-quick:
    cargo run --release --locked -p sealog-bench -- store --quick

# Power cuts on a real file system and faults in system calls; needs root.
torture:
    scripts/torture power-cut --cuts 50
    scripts/torture power-cut --mutant --cuts 10
    scripts/torture faults --keep-going
