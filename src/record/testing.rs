//! Random records and short ways to read batches, for this room's tests.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{
    Attributes, BatchHeader, Codec, HEADER_BYTES, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, OpenBatch,
    RecordData, RewriteSettings,
};

/// Everything is kept, and fits.
pub(super) const KEEP: RewriteSettings = RewriteSettings {
    start_offset: 0,
    end_offset: i64::MAX,
    target_codec: None,
    batch_bytes_max: 1 << 20,
    decompressed_bytes_max: 1 << 20,
};

/// Up to `count_max` records, at least one: nulls, empties, odd bytes, repeated headers, timestamps of all kinds.
pub(super) fn any_records(count_max: usize) -> impl Strategy<Value = Vec<RecordData>> {
    vec(any_record(), 1..=count_max)
}

fn any_record() -> impl Strategy<Value = RecordData> {
    let timestamp = prop_oneof![Just(-1), 0_i64..3, 1_700_000_000_000_i64..1_700_000_100_000, any::<i64>()];
    let header_key = prop_oneof![Just(Bytes::from_static(b"k")), any_bytes(6)];
    let headers = vec((header_key, option::of(any_bytes(20))), 0..4);
    (timestamp, option::of(any_bytes(12)), option::of(any_bytes(200)), headers)
        .prop_map(|(timestamp, key, value, headers)| RecordData { timestamp, key, value, headers })
}

fn any_bytes(bytes_max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=bytes_max).prop_map(Bytes::from)
}

pub(super) fn header_of(codec: Codec) -> BatchHeader {
    BatchHeader {
        base_offset: 0,
        size_bytes: HEADER_BYTES,
        partition_leader_epoch: -1,
        crc: 0,
        attributes: Attributes(codec.bits()),
        last_offset_delta: 0,
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        base_sequence: NO_SEQUENCE,
        record_count: 1,
    }
}

pub(super) fn open(batch: &Bytes) -> OpenBatch {
    OpenBatch::open(batch, 64 << 20).unwrap()
}

pub(super) fn records_of(batch: &OpenBatch) -> Vec<RecordData> {
    batch
        .records()
        .map(|record| record.unwrap())
        .map(|r| RecordData::copied(batch.timestamp(&r), &r))
        .collect()
}
