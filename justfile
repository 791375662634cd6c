# List the recipes.
default:
    @just --list

# Type-check everything.
check:
    cargo check --all-targets

# Format.
fmt:
    cargo fmt

# Lint as CI does.
lint:
    cargo fmt --check
    cargo clippy --lib --bins --examples -- -D warnings
    cargo clippy --lib --no-default-features -- -D warnings

# All tests.
test:
    cargo test

# The house rules.
tidy:
    cargo test --test tidy

# The engine against the oracle, with as many seeds as asked for.
differential SEEDS="200":
    SALTMILL_SEEDS={{SEEDS}} cargo test --test differential

# Exhaustive interleavings of the ring, and of readers with what frees memory.
loom:
    cargo test --manifest-path loom/Cargo.toml

# The stress test of readers under AddressSanitizer; needs nightly.
asan:
    RUSTFLAGS=-Zsanitizer=address cargo +nightly test --no-default-features --target x86_64-unknown-linux-gnu \
        --target-dir target/asan --test readers

# Fuzz a target (csv, engine, table, text, window) for so many seconds; needs nightly.
fuzz TARGET SECONDS="60":
    @cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
    mkdir -p fuzz/corpus/{{TARGET}}
    cargo +nightly fuzz run {{TARGET}} fuzz/corpus/{{TARGET}} fuzz/seeds/{{TARGET}} -- -max_total_time={{SECONDS}} -max_len=4096

# Criterion benches of stages and whole engines, a hand-written loop, an idle engine: perf-reports/DATE-bench.
bench *OPTIONS: release
    python3 perf-reports/scripts/criterion.py {{OPTIONS}}

# Instructions of each stage under callgrind, against benches/counts-baseline.csv (--bless writes it).
bench-counts *OPTIONS:
    python3 perf-reports/scripts/counts.py --report {{OPTIONS}}

# Skewed streams: adaptive against off and against uniform, in turn; balance of 8 shards: perf-reports/DATE-skew.
bench-skew *OPTIONS: release
    python3 perf-reports/scripts/skew.py {{OPTIONS}}

# 1, 2, 4 and 8 workers in turn, and the model for 8 to 64 cores: perf-reports/DATE-scale.
bench-scale *OPTIONS: release
    python3 perf-reports/scripts/scale.py {{OPTIONS}}

# Checkpoints: of a million keys, throughput beside them, alignment beside a hot key with skew handling off and on.
bench-checkpoints:
    cargo bench --manifest-path benches/Cargo.toml --bench checkpoints

# DuckDB, Polars, DataFusion, ClickHouse and timely beside Saltmill: perf-reports/DATE-peers (--rows 50M, --quick).
bench-peers *OPTIONS: release
    cargo build --quiet --release --manifest-path benches/peers/timely/Cargo.toml
    python3 benches/peers/run.py {{OPTIONS}}

# Open-loop latency, cold keys beside a hot one, one row through an appender: perf-reports/DATE-latency.
bench-latency *OPTIONS:
    python3 perf-reports/scripts/latency.py {{OPTIONS}}

# Reads beside a writer at full speed: their latency, and what they cost the writer (-- --seconds 2 --rounds 5).
bench-readers *OPTIONS:
    cargo bench --manifest-path benches/Cargo.toml --bench readers {{OPTIONS}}

# The HTTP service under mixed load, with restarts: rows conserved, memory flat.
soak SECONDS="600":
    cargo build --quiet --release --target-dir target --manifest-path examples/http_service/Cargo.toml
    python3 examples/http_service/soak.py --seconds {{SECONDS}}

# Whole processes from file to file, every format: perf-reports/DATE-e2e.
bench-e2e *OPTIONS: release
    python3 perf-reports/scripts/e2e.py {{OPTIONS}}

# Profile one stream (u1k u1m u10m z11 z15 z20 h80 h99 drift), with a flame graph: perf-reports/DATE-profile-NAME.
profile NAME *OPTIONS: release
    python3 perf-reports/scripts/profile.py {{NAME}} {{OPTIONS}}

# Counters of the processor per row: perf-reports/DATE-perf-stat.
perf-stat *OPTIONS: release
    python3 perf-reports/scripts/perf_stat.py {{OPTIONS}}

[private]
release:
    cargo build --quiet --release

# All examples but the HTTP service.
examples:
    .ci/examples --release

# Documentation, without warnings.
doc:
    RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --no-deps

# Everything CI runs.
ci:
    .ci/run
