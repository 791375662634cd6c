//! A checkpoint that a run goes on from.

use std::ops::RangeInclusive;

use arrow::record_batch::RecordBatch;

use crate::checkpoint::{Checkpoint, HotKeyState, JobState, Manifest, OpenCheckpoint, Section};
use crate::config::Job;
use crate::error::{CheckpointError, RunError};
use crate::skew::estimate::Estimate;
use crate::state::pane::image::rows_of_groups;

/// The state of a checkpoint, mapped, checked, and of this job.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) manifest: Manifest,
    state: OpenCheckpoint,
}

impl Restored {
    /// Opens a checkpoint for a job.
    ///
    /// # Errors
    /// If a file is damaged, or the state is of another job.
    pub(crate) fn open(checkpoint: Checkpoint, job: &Job) -> Result<Self, CheckpointError> {
        checkpoint.manifest.job.check(&job_state(job))?;
        let state = checkpoint.open_state()?;
        let layout = job.image_layout();
        if let Some(schema) = state.schema()
            && schema.fields() != layout.schema().fields()
        {
            return Err(state.damaged(0, "its columns are not those of the job's state"));
        }
        let manifest = checkpoint.manifest;
        Ok(Self { manifest, state })
    }

    /// All sections, of each the rows of these key groups.
    pub(crate) fn images(
        &self,
        groups: &RangeInclusive<u16>,
    ) -> impl Iterator<Item = (&Section, Result<RecordBatch, CheckpointError>)> {
        self.state.sections().map(|(section, place)| {
            let image = self.state.image(place).map(|image| {
                let rows = rows_of_groups(&image, groups);
                image.slice(rows.start, rows.len())
            });
            (section, image)
        })
    }

    /// The error that a section is not what it should be.
    pub(crate) fn damaged(&self, section: &Section, why: &str) -> RunError {
        let place = self.state.sections().find(|(one, _)| std::ptr::eq(*one, section));
        let (_, (file, _)) = place.expect("one of the sections");
        self.state.damaged(file, why).into()
    }

    /// Keys that were hot.
    pub(crate) fn hot_keys(&self) -> Vec<Estimate> {
        let estimate = |key: &HotKeyState| Estimate {
            hash: key.hash,
            example: key.example,
            share: key.share,
            share_low: key.share_low,
            share_high: key.share_high,
        };
        self.manifest.hot_keys.iter().map(estimate).collect()
    }
}

/// What must be the same in a job that goes on from a checkpoint of this one.
pub(crate) fn job_state(job: &Job) -> JobState {
    let schema = &job.schema;
    let aggregates = job.plan.outputs.iter().map(|output| {
        format!("{} as {}: {}", output.text, output.field.name(), output.field.data_type())
    });
    // Of a process it is known what it is called and gives, not what it does.
    let process = job.process.iter().flat_map(|process| {
        let fields = process.output().into_iter();
        let fields = fields.map(|field| format!("{}: {}", field.name(), field.data_type()));
        std::iter::once(format!("process {}", process.name())).chain(fields)
    });
    let aggregates = aggregates.chain(process);
    JobState {
        key_groups: JobState::key_group_function(),
        max_parallelism: job.max_parallelism,
        keys: job
            .keys
            .fields()
            .iter()
            .map(|field| (field.name().clone(), field.data_type().to_string()))
            .collect(),
        time: job
            .time
            .as_ref()
            .map(|time| (schema.field(time.column).name().clone(), format!("{:?}", time.unit))),
        windows: job.windows_text.clone(),
        aggregates: aggregates.collect(),
        words: job.plan.words,
    }
}
