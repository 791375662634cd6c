//! The seeds of the fuzz targets, replayed on stable.

#[path = "../fuzz/bodies.rs"]
mod bodies;
mod lattice;
mod oracle;

use std::fs;
use std::path::Path;

/// Runs `body` on every seed of `target`.
fn replay(target: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds = 0;
    for seed in fs::read_dir(&folder).expect("the target has seeds") {
        let path = seed.expect("a folder that can be read").path();
        // Shown with the failure, if there is one.
        println!("{}", path.display());
        body(&fs::read(path).expect("a seed"));
        seeds += 1;
    }
    assert!(seeds > 0, "no seeds in {}", folder.display());
}

#[test]
fn engine() {
    replay("engine", bodies::engine);
}

#[test]
fn window() {
    replay("window", bodies::window);
}

#[test]
fn text() {
    replay("text", bodies::text);
}

#[test]
fn csv() {
    replay("csv", bodies::csv);
}
