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

# Exhaustive interleavings of the ring.
loom:
    RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test --release --lib --no-default-features ring::loom

# The examples of skew, off against on.
examples:
    cargo run --release --example quickstart
    cargo run --release --example hot_keys
    cargo run --release --example extreme_key
    cargo run --release --example ride_sharing

# Documentation, without warnings.
doc:
    RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --no-deps

# Everything CI runs.
ci:
    .ci/run
