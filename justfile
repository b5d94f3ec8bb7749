# `just ci` is what CI runs; `just` alone lists what there is.
set shell := ["bash", "-euo", "pipefail", "-c"]

_default:
    @just --list

# Everything CI checks: about 15 minutes on two idle cores (CONTRIBUTING.md has the budget).
ci: fmt lint test _clients

# What takes longer or needs root: faults under a real file system, whether deliberate bugs are caught, the tests five times on a busy machine, the fuzzers.
nightly: size torture-quick mutants flaky sdk-ledgers sdk-costs fuzz equivocation

# 200 schedules of snapshots, crashes, restores and second servers, on each store: no two signed checkpoints may contradict each other. Each prints its seed.
equivocation ROUNDS="200":
    SEALOG_ROUNDS={{ROUNDS}} cargo test --locked -p sealog-tlog --test suite equivocation -- --nocapture

# The table of SECURITY.md anew: every attack on both stores, every detector.
matrix:
    SEALOG_BLESS=1 cargo test --locked -p sealog --test suite matrix -- --nocapture

# The tests five times beside two busy loops. A test that fails here has a defect, or has found one; it is never run again until it passes.
flaky *ARGS:
    scripts/rust-tests --repeat 5 --busy 2 {{ARGS}}

# The program that the README builds is no larger than ADR 33 allows.
size:
    cargo build --locked --profile quick -p sealog
    bytes=$(stat -c %s "${CARGO_TARGET_DIR:-target}/quick/sealog"); echo "$bytes bytes, 36000000 allowed"; [ "$bytes" -le 36000000 ]

# Builds a release twice, in different directories, and compares the bytes; takes a quarter of an hour. The version is that of Cargo.toml.
release-twice *ARGS:
    scripts/release "$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)" --twice {{ARGS}}

# Formatting.
fmt:
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check

# Compiler and clippy warnings are errors.
lint:
    cargo clippy --locked --workspace --all-targets -- -D warnings
    cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/fuzz" --all-targets -- -D warnings

# Known vulnerabilities in dependencies, and what else `cargo deny` knows. Needs a network and `cargo install cargo-deny`.
advisories:
    cargo deny check

# All Rust tests, the specification once more on PostgreSQL, and the seeds of the fuzzer. Licences, sources and unused dependencies are among them (tidy/policy.rs).
test *ARGS:
    scripts/rust-tests {{ARGS}}
    cargo test --locked --manifest-path fuzz/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/fuzz"

# The rules of every store and of several nodes on a Citus cluster that runs. DIR has `nodes`, a line `NAME PORT` for each with the coordinator first, `bin`, the directory of its programs, and their data under their names. Then a worker is killed and shards move, so nobody else uses the cluster; last a server is copied from it, and the coordinator is killed.
citus DIR:
    SEALOG_TEST_CITUS="$(realpath {{DIR}})" cargo test --locked -p sealog-store --test suite -- --ignored on_citus
    SEALOG_TEST_CITUS="$(realpath {{DIR}})" cargo test --locked -p sealog-store --test suite -- --ignored of_citus --test-threads=1 --nocapture
    SEALOG_TEST_CITUS="$(realpath {{DIR}})" cargo test --locked -p sealog --test suite -- --ignored on_citus --test-threads=1 --nocapture
    SEALOG_TEST_STORE=citus SEALOG_TEST_CITUS="$(realpath {{DIR}})" cargo test --locked -p sealog-server --test spec -- s4_ idempotency s8_limits --test-threads=4
    SEALOG_TEST_STORE=citus SEALOG_TEST_CITUS="$(realpath {{DIR}})" cargo test --locked -p sealog-dashboard --test dashboard -- tail exports figures search views --test-threads=4

# What runs the built program from outside, two at a time: each waits a good part of its time.
_clients: _sealog
    scripts/beside "just tools sdk" "just fuzz-quick browser"

# The verifiers in other languages, and the vectors through each, torchwood's in Go among them; the examples of the formats; whether the fuzzer sees what is wrong.
tools:
    python3 -m unittest discover -s tools -p 'test_*.py'
    node --test tools/sealog_verify.test.mjs tools/sealog_trust.test.mjs

# The client libraries against the scripted server and a real one: behaviour suite, types, packages in empty projects, examples of their pages.
sdk: _sealog
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" sdk/python/check
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" sdk/typescript/check
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" sdk/go/check
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" sdk/rust/check

# Each library with its spool, its application killed thirty times and the server twenty: nothing lost, nothing twice, in order.
sdk-ledgers: _sealog
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" python3 sdk/python/tests/ledger.py
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" node sdk/typescript/test/ledger.mjs 30 20
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" sdk/go/check ledger
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" sdk/rust/check ledger

# What `enqueue` costs: at most 3 times the serialisation of the event in the same process, 10 times with a spool. In Go and Rust also at least half of the rate of batches on one connection.
sdk-costs: _sealog
    python3 sdk/python/bench.py --check
    cd sdk/typescript && { [ -d node_modules ] || npm ci --silent --no-audit --no-fund; } && node build.mjs && node --expose-gc bench.mjs
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" sdk/go/check costs
    SEALOG_BIN="${CARGO_TARGET_DIR:-$PWD/target}/debug/sealog" sdk/rust/check costs

# As `cargo test` builds it (an example brings in the features that tests have), so that nothing is built twice.
_sealog:
    cargo build --locked --workspace --bin sealog --example hammer

# The dashboard in a browser: journeys, with and without JavaScript; every page for barriers, paper, policy and size. The time-out is for a run that hangs.
browser *ARGS: _sealog
    scripts/browser-setup
    cd tests/browser && timeout 1800 node --test --test-concurrency=2 {{ARGS}}

# About a thousand generated requests and as many malformed ones, the same each time, to a real server; and whether /openapi.json is OpenAPI 3.1.
fuzz-quick:
    scripts/fuzz requests --at-least 0 --examples 5 --seed 1
    scripts/fuzz malformed --count 1500 --seed 1

# The same, 20,000 and 10,000 of them; then every target of fuzz/ for FUZZ_SECONDS (60).
fuzz:
    scripts/fuzz requests --at-least 20000
    scripts/fuzz malformed --count 10000
    scripts/fuzz targets

# The store beside the bare machine: about six minutes. The quick one says that it works, not how fast it is.
bench-store *ARGS:
    cargo run --release --locked -p sealog-bench -- store {{ARGS}}

bench-store-quick:
    cargo run --release --locked -p sealog-bench -- store --quick

# Where the reports and plots of the recipes below go.
bench_out := "bench/data/reports"

_bench-build:
    cargo build --release --locked -p sealog -p sealog-bench
    mkdir -p {{bench_out}}

# A look at everything in less than two minutes: says that it works, not how fast it is.
bench-quick: _bench-build
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" http --quick --seconds 0.5 --workload bench/workloads/quick.toml --plots {{bench_out}} --json {{bench_out}}/quick.json | tee {{bench_out}}/quick.md
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" store --quick
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" growth --quick

# The target rows beside a bare server, PostgreSQL and quipu-server, then the store: less than 20 minutes on an idle machine. Installs what it compares with.
bench *ARGS: _bench-build
    scripts/bench-setup
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" http --workload bench/workloads/targets.toml --quipu bench/data/tools/bin/quipu-server --plots {{bench_out}} --json {{bench_out}}/service.json {{ARGS}} | tee {{bench_out}}/service.md
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" store --json {{bench_out}}/store.json {{ARGS}} | tee {{bench_out}}/store.md

# A store that grows to 20 million events, and one with 10,000 chains: less than ten minutes, 20 GB of disk under bench/data, removed at the end.
bench-growth *ARGS: _bench-build
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" growth --plots {{bench_out}} --json {{bench_out}}/growth.json {{ARGS}} | tee {{bench_out}}/growth.md

# Every page of the dashboard over 1 and 20 million events, and what people who look at them cost ingest: about ten minutes, 20 GB of disk under bench/data.
bench-pages *ARGS: _bench-build
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" pages --json {{bench_out}}/pages.json {{ARGS}} | tee {{bench_out}}/pages.md

# `sealog log` from standard input and `sealog follow` into a file (`--database`: a copy of a database), beside the rate at which the service takes batches; `follow` and `replicate` beside ingest at half of it: about three minutes.
bench-cli *ARGS: _bench-build
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" cli --json {{bench_out}}/cli.json {{ARGS}} | tee {{bench_out}}/cli.md

# What backups beside full ingest cost it, how fast they are made and verified, and how long a server is away that is restored from one: about four minutes, 25 GB of disk under bench/data.
bench-backup *ARGS: _bench-build
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" backup --json {{bench_out}}/backup.json {{ARGS}} | tee {{bench_out}}/backup.md

# What the signed log costs ingest, disk, memory and a start, and a proof beside a point read of 20 million events: about 20 minutes, 20 GB of disk under bench/data.
bench-trust *ARGS: _bench-build
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" trust --json {{bench_out}}/trust.json {{ARGS}} | tee {{bench_out}}/trust.md

# Sealog on PostgreSQL beside what PostgreSQL does by itself, and four servers beside one: less than three minutes. Installs PostgreSQL. With `--cluster URL` the servers are on the Citus cluster whose coordinator and empty database that is.
bench-postgres *ARGS: _bench-build
    scripts/bench-setup
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" http --workload bench/workloads/postgres.toml --json {{bench_out}}/postgres.json {{ARGS}} | tee {{bench_out}}/postgres.md

# This build beside another one of the server, in one run: what a change costs. About three minutes.
bench-compare OTHER *ARGS: _bench-build
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" http --workload bench/workloads/compare.toml --compare {{OTHER}} --json {{bench_out}}/compare.json {{ARGS}} | tee {{bench_out}}/compare.md

# Singles over TLS beside the same program without it, in one run: about three minutes.
bench-tls *ARGS: _bench-build
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" http --workload bench/workloads/tls.toml --json {{bench_out}}/tls.json {{ARGS}} | tee {{bench_out}}/tls.md

# All of it: targets, store, growth, and the whole matrix of requests, connections, chains and idempotency keys.
bench-full: bench bench-growth
    "${CARGO_TARGET_DIR:-target}/release/sealog-bench" http --workload bench/workloads/matrix.toml --json {{bench_out}}/matrix.json | tee {{bench_out}}/matrix.md

# Whether the store's own tests notice the deliberate bugs.
mutants:
    cargo test --locked -p sealog-store --test suite mutants_are_caught -- --ignored --nocapture

# Power cuts, lost device caches, failing system calls, a disk that refuses, and whether each mutant is caught: some minutes. Needs root; says what it skips.
torture-quick:
    scripts/torture quick

# All experiments, each for as long as it needs to mean something: hours on two cores, or a part of it (`just torture --scale 0.2`).
torture *ARGS:
    scripts/torture long {{ARGS}}
