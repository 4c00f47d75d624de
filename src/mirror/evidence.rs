//! Whether batches of unknown outcome are in the target's log: what to read there, and what it tells.
//!
//! A broker knows a batch again by its producer's sequences, but only as long as it keeps them. It drops a producer whose
//! last batch has a timestamp older than `producer.id.expiration.ms`, a day by default, and looks for such every ten
//! minutes (`ProducerStateManager.isProducerExpired`). Those are timestamps of records: of a producer that copies old
//! records, a broker knows nothing again within minutes. So what may have been forgotten is not sent again before the log
//! was read: a stored batch names its producer, epoch and sequence for good.
//!
//! Reading tells only if all of the log is seen, from the last batch that is known to be in it on. Readers see up to the
//! high watermark, and the leader may have more; an epoch's end (KIP-320) is the log's end while the epoch lasts.

use bytes::Bytes;

use super::append::Inquiry;
use crate::client::{Cluster, EpochEnd, Error, IsolationLevel, TopicPartition};
use crate::record::BatchHeader;

/// What may have to be read: five batches of ours, unless others write to the topic, too.
const TAIL_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// These batches of the producer are in the log, by base sequence with their base offsets; no others are.
    Read(Vec<(i32, i64)>),
    /// The log does not tell, with the reason.
    Silent(String),
    /// Nothing could be read yet.
    NotNow(String),
}

/// Reads the target's log.
pub(super) async fn gather(target: &Cluster, inquiry: &Inquiry) -> Evidence {
    let at: TopicPartition = (inquiry.topic.clone(), inquiry.partition);
    match read(target, &at, inquiry.from_offset).await {
        Ok(Some(tail)) => judge(inquiry, &tail),
        Ok(None) => Evidence::NotNow("its leader has more than its followers".to_owned()),
        Err(Error::TooMuch { .. }) => Evidence::Silent(format!(
            "more than {TAIL_BYTES_MAX} bytes were written since to {}-{}",
            inquiry.topic, inquiry.partition
        )),
        Err(error) => Evidence::NotNow(error.chain()),
    }
}

/// A log from an offset on.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    pub(super) from_offset: i64,
    pub(super) end_offset: i64,
    pub(super) batches: Vec<Bytes>,
}

/// `None` when not all of the log can be seen.
async fn read(target: &Cluster, at: &TopicPartition, from_offset: i64) -> Result<Option<Tail>, Error> {
    let (_, epoch) = target.leader(&at.0, at.1).await?;
    let mut ends = target.offset_for_leader_epoch([(at.clone(), epoch)]).await;
    let end = ends.remove(at).transpose()?.unwrap_or(EpochEnd { leader_epoch: -1, end_offset: -1 });
    let tail = target.read_tail(at, from_offset, IsolationLevel::ReadUncommitted, TAIL_BYTES_MAX).await?;
    let is_whole = end.leader_epoch == epoch && end.end_offset <= tail.end_offset;
    let from_offset = from_offset.max(tail.start_offset);
    Ok(is_whole.then_some(Tail { from_offset, end_offset: tail.end_offset, batches: tail.batches }))
}

/// What a tail tells. What was deleted from the front of it is not in the log.
pub(super) fn judge(inquiry: &Inquiry, tail: &Tail) -> Evidence {
    let mut found = Vec::new();
    let mut next_offset = tail.from_offset;
    for batch in &tail.batches {
        let header = match BatchHeader::parse(batch) {
            Ok(header) => header,
            Err(error) => return Evidence::Silent(format!("its log cannot be read: {error}")),
        };
        if header.next_offset() <= next_offset {
            continue;
        }
        if header.base_offset > next_offset {
            break;
        }
        next_offset = header.next_offset();
        let producer = (header.producer_id, header.producer_epoch);
        if producer == inquiry.producer && !header.attributes.is_control() {
            found.push((header.base_sequence, header.base_offset));
        }
    }
    if next_offset < tail.end_offset {
        return Evidence::Silent(format!("its log has a hole at offset {next_offset}, left by compaction"));
    }
    Evidence::Read(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::TargetKey;
    use crate::record::{BatchBuilder, BatchOptions, Codec, ProducerIdentity, RecordData};

    fn batch(base_offset: i64, count: i64, producer_id: i64, base_sequence: i32) -> Bytes {
        let identity = ProducerIdentity { producer_id, producer_epoch: 0, base_sequence };
        let options = BatchOptions { base_offset, identity, ..BatchOptions::new(Codec::None) };
        let mut builder = BatchBuilder::new(options);
        (0..count).for_each(|_| builder.push(&RecordData::default()).unwrap());
        builder.build().unwrap()
    }

    #[test]
    fn only_a_log_that_is_seen_whole_tells() {
        let inquiry = Inquiry {
            id: 1,
            key: TargetKey(0),
            topic: Arc::from("A.t"),
            partition: 0,
            from_offset: 10,
            producer: (9, 0),
        };
        let check = |from_offset, end_offset, batches: &[Bytes], expected: Option<&[(i32, i64)]>| {
            let tail = Tail { from_offset, end_offset, batches: batches.to_vec() };
            let found = judge(&inquiry, &tail);
            match expected {
                Some(expected) => assert_eq!(found, Evidence::Read(expected.to_vec())),
                None => assert!(matches!(found, Evidence::Silent(_)), "{found:?}"),
            }
        };
        check(10, 10, &[], Some(&[]));
        check(10, 15, &[batch(10, 5, 9, 40)], Some(&[(40, 10)]));
        // The batch before, an other producer's, an other epoch of the log's end.
        let others = [batch(5, 5, 9, 35), batch(10, 2, 9, 40), batch(12, 3, 8, 0), batch(15, 1, 9, 42)];
        check(10, 16, &others, Some(&[(40, 10), (42, 15)]));
        check(10, 16, &[batch(10, 2, 9, 40), batch(13, 3, 9, 42)], None);
        check(10, 16, &[batch(10, 2, 9, 40)], None);
        check(10, 16, &[Bytes::from_static(&[0; 61])], None);
    }
}
