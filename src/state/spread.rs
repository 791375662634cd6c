//! Rows of hot keys that are handed on to the shards that their values belong to.

/// What is handed on while rows of one window and owner are aggregated.
#[derive(Debug)]
pub(crate) struct Spreading {
    /// Their windows, as whoever sets it has them.
    pub(crate) window: [i64; 3],
    /// The shard that owns the rows' keys.
    pub(crate) owner: usize,
    /// By the shard that gets the rows.
    pub(crate) parts: Vec<SpreadPart>,
}

impl Spreading {
    /// Ends the rows of `accumulator`, whichever shards got some.
    pub(crate) fn end_run(&mut self, accumulator: usize) {
        for part in &mut self.parts {
            let end = part.rows.len();
            if part.runs.last().map_or(0, |run| run.end) < end {
                let (window, owner) = (self.window, self.owner);
                part.runs.push(SpreadRun { window, owner, accumulator, end });
            }
        }
    }
}

/// Rows of a batch for one shard.
#[derive(Debug, Default)]
pub(crate) struct SpreadPart {
    pub(crate) rows: Vec<u32>,
    pub(crate) runs: Vec<SpreadRun>,
}

impl SpreadPart {
    /// Forgets the rows and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.runs.clear();
    }
}

/// Rows of one key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpreadRun {
    pub(crate) window: [i64; 3],
    pub(crate) owner: usize,
    /// The accumulator they are for, as an index into the plan's.
    pub(crate) accumulator: usize,
    /// End of the run; it starts where the one before ends.
    pub(crate) end: usize,
}
