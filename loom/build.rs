//! Sets `cfg(loom)` for this package alone.

fn main() {
    println!("cargo::rustc-cfg=loom");
}
