//! Commands, exit codes, progress, wording for people.

pub mod demo;
