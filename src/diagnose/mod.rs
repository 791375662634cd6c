//! Diagnosis of skew: what a stream's keys do to the subtasks of a job, and what each cure would do about
//! it. Pure logic over counts: no files, no threads, no clock.

pub mod placement;
