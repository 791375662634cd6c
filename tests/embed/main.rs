//! The engine inside of a program: rows one at a time, results, keyed processes, and what fails.

mod appender;
mod failure;
mod process;
mod rescale;
mod results;
mod memory;
