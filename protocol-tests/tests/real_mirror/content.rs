//! Logs that are not plain: compacted, deleted up to the middle of a batch, stamped by the broker, damaged.

use crate::{TIMEOUT, pair};
use protocol_tests::Result;
use protocol_tests::kafka::{Codec, Isolation, ProducerKind, StoredBatch};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::Pair;
use protocol_tests::records::{TestRecord, TimestampType};
use protocol_tests::wait::{Look, wait_for};
use std::time::Duration;

/// What a cleaned log must show before it is mirrored.
#[derive(Debug)]
struct Cleaned {
    holes: usize,
    empty: usize,
    delete_horizons: usize,
}

impl Cleaned {
    fn of(batches: &[StoredBatch]) -> Cleaned {
        let count = |wanted: fn(&StoredBatch) -> bool| batches.iter().filter(|batch| wanted(batch)).count();
        Cleaned {
            holes: count(|batch| batch.record_count() != batch.last_offset_delta() + 1),
            empty: count(|batch| batch.record_count() == 0),
            delete_horizons: count(|batch| batch.attributes() & 0x40 != 0),
        }
    }
}

/// Writes overwritten keys and tombstones with several producers, until the broker's cleaner has made holes, an empty
/// batch (kept for its producer's last sequence) and a delete horizon; then turns the cleaner off.
fn compacted(pair: &Pair, topic: &str, codec: Codec) -> Result<()> {
    let configs = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "150"),
        ("min.cleanable.dirty.ratio", "0.001"),
        ("delete.retention.ms", "86400000"),
    ];
    pair.source().create_topic(topic, 1, &configs)?;
    let send = |records: Vec<TestRecord>| -> Result<()> {
        let linger = [("linger.ms", "30")];
        let producer =
            pair.java().producer(&pair.a.bootstrap(), &ProducerKind::Idempotent, codec, &linger)?;
        producer.send(topic, &records).map(drop)
    };
    send(vec![TestRecord::new("overwritten", "1"), TestRecord::new("overwritten too", "2")])?;
    send((0..30).map(|i| TestRecord::new(format!("k{i}"), "old")).collect())?;
    send(
        (0..30)
            .filter(|i| i % 3 == 0)
            .map(|i| TestRecord::new(format!("k{i}"), format!("new {i}")))
            .collect(),
    )?;
    let tombstones = (0..30).filter(|i| i % 5 == 1).map(|i| TestRecord::tombstone(format!("k{i}")));
    send(tombstones.chain([TestRecord::new("beside tombstones", "x")]).collect())?;
    send(vec![TestRecord::new("overwritten", "3"), TestRecord::new("overwritten too", "4")])?;
    let mut filler = 0u32;
    wait_for("the cleaner", Duration::from_secs(60), || {
        // Only closed segments are cleaned, and only an append closes one.
        filler += 1;
        send(vec![TestRecord::new(format!("filler {}", filler % 2), filler.to_string())])?;
        let cleaned = Cleaned::of(&pair.a.stored_batches(1, topic, 0)?);
        let done = cleaned.holes > 0 && cleaned.empty > 0 && cleaned.delete_horizons > 0;
        Ok(if done { Look::Done(()) } else { Look::Pending(format!("{cleaned:?}")) })
    })?;
    let off = [("min.cleanable.dirty.ratio", Some("1.0")), ("segment.ms", Some("86400000"))];
    pair.source().alter_topic_configs(topic, &off)?;
    wait_for("the end of the cleaning", Duration::from_secs(20), || {
        let log = pair.a.server_log(1)?;
        let count = |words: &str| log.lines().filter(|line| line.contains(words)).count();
        let off = count(&format!("Updating topic {topic} with new configuration")) > 0;
        // One that runs still may end a little later.
        let begun = count(&format!("Beginning cleaning of log {topic}-0"));
        let ended = count(&format!("cleaned log {topic}-0"));
        let seen = format!("turned off: {off}, {begun} begun, {ended} ended");
        Ok(if off && begun == ended { Look::Done(()) } else { Look::Pending(seen) })
    })
}

/// Cases 1, 9 and 11.
#[test]
fn a_compacted_topic_with_holes_empty_batches_and_delete_horizons_arrives() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    for (topic, codec) in [("compacted.none", Codec::None), ("compacted.lz4", Codec::Lz4)] {
        compacted(pair, topic, codec)?;
    }
    let flow = pair.flow("Compacted").topics("compacted[.].*");
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    for topic in ["compacted.none", "compacted.lz4"] {
        assert!(pair.compare(&flow, topic, Isolation::ReadUncommitted)? > 20);
        let target = pair.b.stored_batches(1, &flow.remote(topic), 0)?;
        let cleaned = Cleaned::of(&target);
        assert_eq!((cleaned.holes, cleaned.empty, cleaned.delete_horizons), (0, 0, 0), "{target:?}");
    }
    Ok(())
}

#[test]
fn records_deleted_up_to_the_middle_of_a_batch_are_left_out() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let topics = Codec::ALL.map(|codec| (format!("trimmed.{}", codec.name()), codec));
    for (topic, codec) in &topics {
        pair.source().create_topic(topic, 1, &[])?;
        let linger = [("linger.ms", "100")];
        let producer =
            pair.java().producer(&pair.a.bootstrap(), &ProducerKind::Idempotent, *codec, &linger)?;
        let records: Vec<TestRecord> = (0..10u8)
            .map(|i| TestRecord::new([i], vec![i; 50]).at(1_700_000_000_000 + i64::from(i)))
            .collect();
        producer.send(topic, &records)?;
        assert_eq!(pair.a.stored_batches(1, topic, 0)?.len(), 1, "one batch");
        pair.source().delete_records(topic, 0, 4)?;
    }
    let flow = pair.flow("Trimmed").topics("trimmed[.].*");
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    for (topic, _) in &topics {
        assert_eq!(pair.compare(&flow, topic, Isolation::ReadUncommitted)?, 6, "{topic}");
        assert_eq!(pair.target_end(&flow.remote(topic), 0)?, 6, "{topic}");
    }
    Ok(())
}

/// What clients read of merged frames, whose blocks are those of many producers' frames.
#[test]
fn a_backlog_of_compressed_batches_of_one_record_is_merged_and_reads_the_same() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    const RECORDS: usize = 2_000;
    let topics = [("singles.lz4", Codec::Lz4), ("singles.snappy", Codec::Snappy)];
    let value = |i: usize| match i % 50 {
        // One that its producer cannot compress, a large one, one that repeats the front of its record.
        7 => (0..300).map(|at: usize| (((at * 131 + i) * 2_654_435_761) >> 13) as u8).collect(),
        8 => vec![b'l'; 100_000],
        9 => [0, 0, 0, 1, 0x9c, 3]
            .into_iter()
            .chain((0..200).map(|at| b'a' + (at * at / 7 % 26) as u8))
            .collect(),
        _ => format!("{i} ").repeat(20 + i % 70).into_bytes(),
    };
    for (topic, codec) in topics {
        pair.source().create_topic(topic, 1, &[])?;
        let single = [("batch.size", "0")];
        let producer =
            pair.java().producer(&pair.a.bootstrap(), &ProducerKind::Idempotent, codec, &single)?;
        let records: Vec<TestRecord> = (0..RECORDS)
            .map(|i| TestRecord::new(format!("k{i}"), value(i)).at(1_700_000_000_000 + i as i64))
            .collect();
        producer.send(topic, &records)?;
        // The producer puts two together now and then.
        assert!(pair.a.stored_batches(1, topic, 0)?.len() > RECORDS / 2, "{topic}");
    }
    let flow = pair.flow("Singles").topics("singles[.].*");
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    for (topic, _) in topics {
        for client in [Some(pair.java()), pair.real.librdkafka()?].into_iter().flatten() {
            let isolation = Isolation::ReadUncommitted;
            assert_eq!(pair.compare_by(client, &flow, topic, isolation)?, RECORDS, "{topic}");
        }
        let merged = pair.b.stored_batches(1, &flow.remote(topic), 0)?;
        let most = merged.iter().map(|batch| batch.record_count()).max();
        assert!(merged.len() < RECORDS / 4 && most > Some(10), "{topic}: {} batches, {most:?}", merged.len());
    }
    Ok(())
}

#[test]
fn timestamps_given_by_the_source_broker_survive() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let topics = [("stamped.none", Codec::None), ("stamped.zstd", Codec::Zstd)];
    for (topic, codec) in topics {
        pair.source().create_topic(topic, 1, &[("message.timestamp.type", "LogAppendTime")])?;
        let linger = [("linger.ms", "30")];
        let producer = pair.java().producer(&pair.a.bootstrap(), &ProducerKind::Plain, codec, &linger)?;
        for round in 0..3 {
            let records: Vec<TestRecord> = (0..5)
                .map(|i| TestRecord::new("k", format!("{round} {i}")).at(1_600_000_000_000 + i))
                .collect();
            producer.send(topic, &records)?;
        }
    }
    let flow = pair.flow("Stamped").topics("stamped[.].*");
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    for (topic, _) in topics {
        let source = pair.java().read(&pair.a.bootstrap(), topic, Isolation::ReadUncommitted)?;
        assert!(source.iter().all(|record| record.timestamp_type == TimestampType::LogAppendTime));
        assert_eq!(pair.compare(&flow, topic, Isolation::ReadUncommitted)?, 15, "{topic}");
    }
    Ok(())
}

/// A producer's timestamps may be far apart: deltas of more than 31 bits (case 5).
#[test]
fn timestamps_far_apart_in_one_batch_survive_a_rewrite() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("far-apart", 1, &[])?;
    let linger = [("linger.ms", "100")];
    let producer = pair.java().producer(&pair.a.bootstrap(), &ProducerKind::Plain, Codec::None, &linger)?;
    let times = [5, 0, 1_700_000_000_000, 86_400_000, 1_700_000_000_001];
    let records: Vec<TestRecord> = times.iter().map(|time| TestRecord::new("k", "v").at(*time)).collect();
    producer.send("far-apart", &records)?;
    pair.source().delete_records("far-apart", 0, 1)?;
    let flow = pair.flow("FarApart").topics("far-apart");
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    assert_eq!(pair.compare(&flow, "far-apart", Isolation::ReadUncommitted)?, 4);
    Ok(())
}
