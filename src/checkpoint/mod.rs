//! Checkpoints: what is written of a run's state, so that another run can go on from it.
//!
//! A *checkpoint directory* belongs to one run at a time. It holds:
//!
//! ```text
//! lock                        held, by the operating system, by the process that uses the directory
//! checkpoint-000000000012/    a checkpoint; the larger its number the newer
//!     manifest.json           what it is of, and which files belong to it; its last line is the sum of the rest
//!     shard-0.arrow           state of the first shard: an Arrow IPC file
//!     shard-1.arrow
//! .checkpoint-000000000013/   one being written, or left over from a crash
//! ```
//!
//! **Layout of state** (format version 1). Each record batch of a shard's file is one *section*: the pane of one
//! [span of windows](Section). A row is a key: `key_group` (u16, by which the batch is sorted), the key columns
//! as `key:NAME` in the types of the job's output, the words of its aggregates as `word:N` (u64), and what an
//! aggregate keeps beside its words, a set or a sketch, as `beside:N` (binary). Which words belong to which
//! aggregate follows from the job. Any tool that reads Arrow can look inside.
//!
//! **Atomic.** Files are written under a hidden name and flushed to the disk, the manifest last; then the folder is
//! renamed and the directory flushed. So what has the right name is complete, whenever the process or the machine
//! stopped. Older ones are removed only afterwards.
//!
//! **Trusted only when proven.** Every file has its length and CRC-32 in the manifest, and the manifest has its own.
//! Whatever does not agree is an error that names the file.
//!
//! **Any parallelism.** A shard that restores maps all files and takes the rows of its own key groups, a slice of each
//! section, whoever wrote them.
//!
//! No threads here, and nothing of the engine: [`crate::runtime`] takes and restores checkpoints.

mod manifest;
pub(crate) mod mapped;
mod state_file;
mod directory;

pub(crate) use directory::OpenCheckpoint;
pub use directory::{Checkpoint, CheckpointDir};
pub use manifest::{
    FORMAT, HotKeyState, InputState, JobState, Manifest, OutputState, RowTotals, Section,
    SectionKind, StateFile, TimeState,
};
pub(crate) use state_file::{SectionImage, SectionRows};

#[cfg(test)]
mod tests;
