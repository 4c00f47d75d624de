//! One of MirrorMaker's internal topics on one cluster: made when it is missing, written to, read whole.
//!
//! They have one partition, are compacted, and are made with no other setting
//! (`MirrorUtils.createSinglePartitionCompactedTopic`). A cluster that does not let us make topics may have the topic
//! already; the first write tells.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::client::{Cluster, Error, ErrorCode, IsolationLevel, NewTopic, Topics};
use crate::mirror::ReplicationFactor;
use crate::mirror::state::for_each_committed;
use crate::mirror::topics::apply::warn_lowered;
use crate::mirror::topics::configs::replication_factor;
use crate::record::{self, BatchBuilder, BatchOptions, Codec, RecordData};

/// A batch is closed when it holds this much, well below every broker's `message.max.bytes`.
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// What a topic may hold when it is read.
const TOPIC_BYTES_MAX: usize = 512 * 1024 * 1024;
/// TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED: the topic may be there all the same.
const NOT_AUTHORIZED: [ErrorCode; 2] = [ErrorCode(29), ErrorCode(31)];

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The cluster did not take them.
    #[error("{}", .0.chain())]
    Client(Error),
    /// They cannot be made.
    #[error(transparent)]
    Record(#[from] record::Error),
}

/// A topic.
#[derive(Clone, Debug)]
pub struct InternalTopic {
    cluster: Cluster,
    name: Arc<str>,
    factor: ReplicationFactor,
    /// The key that names the factor, for a warning.
    factor_key: &'static str,
    is_made: bool,
}

impl InternalTopic {
    /// A topic of `cluster`, made with this replication factor when it is missing.
    pub fn new(
        cluster: Cluster,
        name: impl Into<Arc<str>>,
        factor: ReplicationFactor,
        factor_key: &'static str,
    ) -> InternalTopic {
        InternalTopic { cluster, name: name.into(), factor, factor_key, is_made: false }
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Makes it unless it is there.
    ///
    /// # Errors
    /// What the cluster refuses with, or that it does not answer.
    pub async fn make(&mut self) -> Result<(), Error> {
        if self.is_made {
            return Ok(());
        }
        let view = self.cluster.refresh(Topics::Named(vec![self.name.clone()])).await?;
        if view.topic(&self.name).is_none_or(|topic| topic.partitions.is_empty()) {
            warn_lowered(self.factor_key, self.factor, view.brokers.len());
            let topic = NewTopic {
                name: self.name.clone(),
                partitions: 1,
                replication_factor: replication_factor(self.factor, view.brokers.len()),
                configs: [("cleanup.policy".to_owned(), "compact".to_owned())].into(),
            };
            for (_, created) in self.cluster.create_topics(&[topic]).await? {
                match created {
                    Err(error) if error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS) => {}
                    Err(error) if error.code().is_some_and(|code| NOT_AUTHORIZED.contains(&code)) => {
                        // Somebody else may make it, and may have done so by now.
                        let view = self.cluster.refresh(Topics::Named(vec![self.name.clone()])).await?;
                        view.topic(&self.name).ok_or(error)?;
                    }
                    Err(error) => return Err(error),
                    Ok(_) => {}
                }
            }
            self.cluster.wait_for_leaders(&BTreeMap::from([(self.name.clone(), 1)])).await?;
        }
        self.is_made = true;
        Ok(())
    }

    /// Appends records in this order; returns when all are acknowledged. What was acknowledged before an error is written
    /// again by the next attempt, which says the same.
    ///
    /// # Errors
    /// When the topic cannot be made or a batch is not taken within `default.api.timeout.ms`.
    pub async fn append(&mut self, records: Vec<(Bytes, Bytes)>) -> Result<(), WriteError> {
        self.make().await.map_err(WriteError::Client)?;
        let now_ms = self.cluster.seam().now_ms();
        for batch in batches(records, now_ms)? {
            self.cluster.produce(&self.name, 0, batch).await.map_err(WriteError::Client)?;
        }
        Ok(())
    }

    /// Every record with a key and a value, in order; none when there is no such topic.
    ///
    /// # Errors
    /// When it cannot be read whole.
    pub async fn read(&self) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let committed = IsolationLevel::ReadCommitted;
        let logs = match self.cluster.read_to_end(&self.name, committed, TOPIC_BYTES_MAX).await {
            Ok(logs) => logs,
            Err(Error::Unknown { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut records = Vec::new();
        if let Some(log) = logs.get(&0) {
            for_each_committed(&log.batches, |_, key, value| {
                if let Some(value) = value {
                    records.push((key, Bytes::copy_from_slice(value)));
                }
            });
        }
        Ok(records)
    }
}

fn batches(records: Vec<(Bytes, Bytes)>, now_ms: i64) -> Result<Vec<Bytes>, record::Error> {
    let (mut closed, mut open) = (Vec::new(), BatchBuilder::new(BatchOptions::new(Codec::None)));
    for (key, value) in records {
        let record =
            RecordData { timestamp: now_ms, key: Some(key), value: Some(value), headers: Vec::new() };
        open.push(&record)?;
        if open.uncompressed_bytes() >= BATCH_BYTES_MAX {
            let full = std::mem::replace(&mut open, BatchBuilder::new(BatchOptions::new(Codec::None)));
            closed.push(full.build()?);
        }
    }
    if open.record_count() > 0 {
        closed.push(open.build()?);
    }
    Ok(closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::OpenBatch;

    #[test]
    fn records_keep_their_order_over_batches() {
        let record = |n: u32| (Bytes::from(n.to_be_bytes().to_vec()), Bytes::from(vec![7; 1_000]));
        let made = batches((0..1_000).map(record).collect(), 5).unwrap();
        assert!(made.len() > 2 && made.iter().all(|batch| batch.len() < BATCH_BYTES_MAX + 2_000));
        let mut keys = Vec::new();
        for batch in &made {
            for record in OpenBatch::open(batch, 1 << 20).unwrap().records() {
                keys.push(u32::from_be_bytes(record.unwrap().key.unwrap().try_into().unwrap()));
            }
        }
        assert_eq!(keys, (0..1_000).collect::<Vec<_>>());
        assert!(batches(Vec::new(), 5).unwrap().is_empty());
    }
}
