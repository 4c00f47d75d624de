//! Harness of the tests that need a whole cluster: real Apache Kafka brokers, stock clients and MirrorMaker 2 as
//! child processes, the embedded broker behind the same face, and the `kmirror` binary itself.
//!
//! It stands apart from kmirror so that what judges a mirror shares no code with what makes it: records are written
//! and read back by the Java client or by librdkafka, and stored batches are read from the brokers' own files.
//! Nothing here is a dependency of kmirror. Every child dies with the test process, however that ends.

pub mod batch;
pub mod compare;
pub mod embedded;
mod error;
pub mod flow;
pub mod inside;
pub mod kafka;
pub mod mirror;
pub mod pair;
pub mod process;
pub mod raw;
pub mod records;
pub mod traffic;
pub mod wait;

pub use error::{HarnessError, Result};

use std::path::{Path, PathBuf};

/// The root of the checkout, which holds the caches and the target folder.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}
