//! The `saltmill` program; see the library's `cli` module.

use std::process::ExitCode;

/// Allocates faster than the system's allocator when threads free each other's memory. Here and not in
/// the library, whose users choose their own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    saltmill::cli::main()
}
