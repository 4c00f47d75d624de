//! `kmirror run` between two real clusters of one node each: every kind of content arrives unchanged, and what cannot
//! arrive stops alone, with its reason. Records are written and read back by stock clients, batches are compared as
//! the brokers stored them.

mod codecs;
mod content;
mod followed;
mod life;
mod refusals;
mod resets;
mod status;

use protocol_tests::Result;
use protocol_tests::kafka::ClusterSpec;
use protocol_tests::pair::{Pair, PairCell};
use std::time::Duration;

/// Far above what a run of these sizes takes; a busy machine must not fail a test.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The clusters of this binary.
fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("a"), ClusterSpec::new("b"))
}
