//! Compares a topic with its mirror, record by record, as read_committed readers see both: key, value, headers in order,
//! timestamp, partition and order.
//!
//! For the demo, and for tests: the two sides may be clusters on the wire or the logs of embedded ones. Memory is bounded by
//! one read of each side; a compacting source costs the keys that wait for their newer record besides.

mod committed;
mod pairing;
mod reader;

use std::sync::Arc;

pub use committed::{Aborted, Committed, SeenRecord, committed};
pub use pairing::{Difference, Pairing, Rule, Step, What};
pub use reader::{PartitionReader, Reader};

use super::Error;

/// A topic on one side.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// Where.
    pub reader: Reader<'a>,
    /// Its name there.
    pub topic: Arc<str>,
}

/// How a topic and its mirror compare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Records that both sides have.
    pub records: u64,
    /// Records that the source has compacted away since they were copied.
    pub superseded: u64,
    /// What is not equal, at most one difference for each partition.
    pub differences: Vec<String>,
}

impl Comparison {
    /// Whether both sides are equal.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Compares a topic with its mirror.
///
/// # Errors
/// When one of the sides cannot be read. A difference is not an error.
pub async fn compare_topic(source: &Side<'_>, target: &Side<'_>, rule: Rule) -> Result<Comparison, Error> {
    let mut comparison = Comparison::default();
    let partitions = source.reader.partitions(&source.topic).await?;
    let mirrored = target.reader.partitions(&target.topic).await?;
    if partitions != mirrored {
        comparison
            .differences
            .push(format!("{} has {partitions} partitions, {} has {mirrored}", source.topic, target.topic));
    }
    for partition in 0..partitions.min(mirrored) {
        let (pairing, difference) = compare_partition(source, target, partition, rule).await?;
        comparison.records += pairing.pairs();
        comparison.superseded += pairing.superseded();
        let named = |difference| format!("{}-{partition}: {difference}", source.topic);
        comparison.differences.extend(difference.map(named));
    }
    Ok(comparison)
}

async fn compare_partition(
    source: &Side<'_>,
    target: &Side<'_>,
    partition: i32,
    rule: Rule,
) -> Result<(Pairing, Option<Difference>), Error> {
    let mut left = PartitionReader::open(&source.reader, &source.topic, partition).await?;
    let mut right = PartitionReader::open(&target.reader, &target.topic, partition).await?;
    let mut pairing = Pairing::new(rule);
    loop {
        match pairing.step(left.front().await?, right.front().await?) {
            Step::Both => {
                left.advance();
                right.advance();
            }
            Step::Target => right.advance(),
            Step::End => return Ok((pairing, None)),
            Step::Differs(difference) => return Ok((pairing, Some(difference))),
        }
    }
}
