//! One batch dealt out over the partitions of a target by the keys of its records.
//!
//! It is opened once, whatever its codec and however many partitions there are. What each partition gets is not compressed:
//! it may be joined with what comes after it before it is, and only then is it known what it takes.

use bytes::Bytes;

use super::legacy::with_records;
use super::partition::KeyPartitioner;
use super::records::OpenBatch;
use super::rewrite::{SourceRecord, pack, records_of};
use super::walker::Magic;
use super::{Codec, Error, Piece};

/// How a batch is dealt out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DealSettings {
    /// Where records go.
    pub partitioner: KeyPartitioner,
    /// The partitions that get something, in their order.
    pub shares: Vec<Share>,
    /// Codec of what they are to get; `None` keeps the source's.
    pub target_codec: Option<Codec>,
    /// Most bytes of the records when decompressed.
    pub decompressed_bytes_max: usize,
}

/// One of the partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Which.
    pub partition: i32,
    /// It has the records below this upstream offset.
    pub start_offset: i64,
    /// Largest batch in bytes, header included, that it takes.
    pub batch_bytes_max: usize,
}

/// What a batch became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dealt {
    /// The codec that its records are to have on the target.
    pub codec: Codec,
    /// For each share, in their order; none of them is compressed.
    pub shares: Vec<Vec<Piece>>,
}

/// Deals out one whole batch, or one entry of magic 0 or 1.
pub fn deal(batch: &Bytes, magic: Magic, settings: &DealSettings) -> Result<Dealt, Error> {
    match magic {
        Magic::V2 => {
            let batch = OpenBatch::open(batch, settings.decompressed_bytes_max)?;
            deal_records(&records_of(&batch)?, batch.header.attributes.codec()?, settings)
        }
        Magic::V0 | Magic::V1 => with_records(batch, settings.decompressed_bytes_max, |records, codec| {
            deal_records(&records, codec, settings)
        }),
    }
}

fn deal_records(records: &[SourceRecord<'_>], codec: Codec, settings: &DealSettings) -> Result<Dealt, Error> {
    let codec = settings.target_codec.unwrap_or(codec);
    let mut taken: Vec<Vec<SourceRecord<'_>>> = vec![Vec::new(); settings.shares.len()];
    for record in records {
        let partition = settings.partitioner.partition_of(record.body)?;
        let place = settings.shares.binary_search_by_key(&partition, |share| share.partition).ok();
        if let Some(place) = place.filter(|&at| settings.shares[at].start_offset <= record.upstream_offset) {
            taken[place].push(*record);
        }
    }
    let shares = settings.shares.iter().zip(taken).map(|(share, records)| {
        // What is compressed later may be larger before.
        let bytes_max = if codec == Codec::None { share.batch_bytes_max } else { i32::MAX as usize };
        pack(&records, Codec::None, bytes_max)
    });
    Ok(Dealt { codec, shares: shares.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{any_records, open, records_of as data_of};
    use super::super::{BatchBuilder, BatchOptions, RecordData, partition_for_key};
    use super::*;

    const KEYLESS: i32 = 2;

    fn source(codec: Codec, records: &[RecordData]) -> Bytes {
        let mut builder = BatchBuilder::new(BatchOptions { base_offset: 40, ..BatchOptions::new(codec) });
        records.iter().for_each(|record| builder.push(record).unwrap());
        builder.build().unwrap()
    }

    fn settings(partitions: i32, start_offset: impl Fn(i32) -> i64) -> DealSettings {
        let share =
            |partition| Share { partition, start_offset: start_offset(partition), batch_bytes_max: 1 << 20 };
        DealSettings {
            partitioner: KeyPartitioner { partitions, keyless: KEYLESS },
            shares: (0..partitions).map(share).collect(),
            target_codec: None,
            decompressed_bytes_max: 1 << 20,
        }
    }

    fn wanted(record: &RecordData, partitions: i32) -> i32 {
        record.key.as_ref().map_or(KEYLESS, |key| partition_for_key(key, partitions))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn each_record_goes_to_one_partition_in_order(
            records in any_records(30),
            partitions in 3_i32..7,
            start in 0_i64..70,
            codec in 0_i16..5,
        ) {
            let codec = Codec::from_bits(codec).unwrap();
            // The last partition has some of it already.
            let settings = settings(partitions, |partition| if partition == partitions - 1 { start } else { 0 });
            let dealt = deal(&source(codec, &records), Magic::V2, &settings).unwrap();
            prop_assert_eq!((dealt.codec, dealt.shares.len()), (codec, partitions as usize));
            for (share, pieces) in settings.shares.iter().zip(&dealt.shares) {
                let mut expected = (40_i64..).zip(&records).filter(|(offset, record)| {
                    wanted(record, partitions) == share.partition && *offset >= share.start_offset
                });
                for piece in pieces {
                    let Piece::Batch(batch) = piece else { panic!("{piece:?}") };
                    let opened = open(&batch.batch);
                    prop_assert_eq!(opened.header.attributes.codec(), Ok(Codec::None));
                    let offsets = batch.segments.iter().flat_map(|run| {
                        run.upstream_offset..run.upstream_offset + i64::from(run.record_count)
                    });
                    for (offset, record) in offsets.zip(data_of(&opened)) {
                        prop_assert_eq!(expected.next(), Some((offset, &record)));
                    }
                }
                prop_assert_eq!(expected.next(), None);
            }
        }
    }

    #[test]
    fn a_limit_holds_before_compression_only_where_there_is_none() {
        let record =
            RecordData { key: Some("k".into()), value: Some(vec![7; 5_000].into()), ..RecordData::default() };
        for (codec, is_whole) in [(Codec::None, false), (Codec::Lz4, true)] {
            let mut settings = settings(3, |_| 0);
            settings.shares.iter_mut().for_each(|share| share.batch_bytes_max = 1_000);
            let dealt = deal(&source(codec, std::slice::from_ref(&record)), Magic::V2, &settings).unwrap();
            let pieces: Vec<Piece> = dealt.shares.into_iter().flatten().collect();
            let [piece] = &pieces[..] else { panic!("{pieces:?}") };
            assert_eq!(matches!(piece, Piece::Batch(_)), is_whole, "{codec:?}");
        }
    }
}
