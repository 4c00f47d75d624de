//! `kmirror demo`.

pub mod compare;
mod content;
mod error;
mod plan;
mod producer;
mod traffic;

pub use error::Error;

#[cfg(test)]
mod tests;
