//! What the user wrote, as typed settings: `.properties` text, config providers, MirrorMaker's scoping, and all problems of
//! a file in one report.

mod problem;
pub mod properties;

pub use problem::{Problem, Severity, SourceText, Span};
