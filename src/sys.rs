//! What has to be asked of the operating system by unsafe means.
#![allow(unsafe_code, reason = "memory maps: see the SAFETY comment of each block")]

use std::fs::File;
use std::io;

/// Maps a whole file for reading.
///
/// The map shows the file as it is, not as it was: a program that changes the file while it is read
/// changes what is read, and one that shortens it ends this process with `SIGBUS`. Inputs are files
/// that nobody writes to any more; that is said in the help.
pub(crate) fn map_file(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY:
    // - The map is read-only and private to this process, so Rust code never writes through it.
    // - All that is read from it is validated as untrusted bytes after it was read (the decoders
    //   check offsets and UTF-8), so other content leads to an error.
    // - A file shortened by another process while mapped cannot be ruled out from here; it is the
    //   documented condition above, and the effect is a signal, not a wrong result.
    unsafe { memmap2::Mmap::map(file) }
}
