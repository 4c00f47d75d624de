//! What a target refuses: it stops alone, with its reason, and everything else goes on.

use crate::{TIMEOUT, pair};
use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{Codec, Isolation, ProducerKind};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::Pair;
use protocol_tests::records::TestRecord;
use std::io::{Seek, SeekFrom, Write};

/// Runs to the end with one topic that cannot be copied and a healthy one; gives the output.
fn run_with_refused(pair: &Pair, flow: &FlowFile, refused: &str, healthy: &str) -> Result<String> {
    pair.source().create_topic(healthy, 1, &[])?;
    pair.java().produce(&pair.a.bootstrap(), healthy, &[TestRecord::new("k", "healthy")])?;
    let mut run = Kmirror::start(&["run", "--until-caught-up"], flow.text())?;
    let code = run.wait(TIMEOUT)?;
    assert_eq!(code, 1, "{}", run.output());
    assert!(run.output().contains(refused), "{}", run.output());
    assert_eq!(pair.compare(flow, healthy, Isolation::ReadUncommitted)?, 1);
    Ok(run.output())
}

fn batch_of(pair: &Pair, topic: &str, codec: Codec, records: &[TestRecord]) -> Result<()> {
    let settings = [("linger.ms", "100"), ("batch.size", "200000")];
    let producer = pair.java().producer(&pair.a.bootstrap(), &ProducerKind::Idempotent, codec, &settings)?;
    producer.send(topic, records).map(drop)
}

/// Case 12.
#[test]
fn a_batch_over_the_targets_limit_is_split() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair.flow("Large").topics("large[.].*").set("sync.topic.configs.enabled", "false");
    let records: Vec<TestRecord> = (0..40u32)
        .map(|i| {
            TestRecord::new(
                i.to_string(),
                (0..300u32).map(|j| (i * j * j + 17 * j) as u8).collect::<Vec<u8>>(),
            )
        })
        .collect();
    for codec in [Codec::None, Codec::Gzip] {
        let topic = format!("large.{}", codec.name());
        pair.source().create_topic(&topic, 1, &[])?;
        pair.target().create_topic(&flow.remote(&topic), 1, &[("max.message.bytes", "3000")])?;
        batch_of(pair, &topic, codec, &records)?;
        assert!(pair.a.stored_batches(1, &topic, 0)?.iter().any(|batch| batch.bytes.len() > 3000));
    }
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    for codec in [Codec::None, Codec::Gzip] {
        let topic = format!("large.{}", codec.name());
        assert_eq!(pair.compare(&flow, &topic, Isolation::ReadUncommitted)?, 40);
        let target = pair.b.stored_batches(1, &flow.remote(&topic), 0)?;
        assert!(
            target.iter().all(|batch| batch.bytes.len() <= 3000 && batch.codec() == codec.bits()),
            "{target:?}"
        );
    }
    Ok(())
}

#[test]
fn a_single_record_over_the_limit_stops_its_partition_only() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair.flow("Huge").topics("huge[.].*").set("sync.topic.configs.enabled", "false");
    pair.source().create_topic("huge.refused", 2, &[])?;
    pair.target().create_topic("Huge.huge.refused", 2, &[("max.message.bytes", "2000")])?;
    let record = |partition, value: &str| TestRecord::new("k", value).to_partition(partition);
    let records =
        [record(0, "before"), record(0, &"x".repeat(5000)), record(0, "after"), record(1, "beside")];
    for record in records {
        pair.java().produce(&pair.a.bootstrap(), "huge.refused", &[record])?;
    }
    run_with_refused(pair, &flow, "huge.refused", "huge.healthy")?;
    let found = pair.java().read(&pair.b.bootstrap(), "Huge.huge.refused", Isolation::ReadUncommitted)?;
    let values: Vec<String> = found.iter().map(|record| record.value_text()).collect();
    assert_eq!(values, ["before", "beside"], "nothing after the refused record, everything beside it");
    let skipping = flow.clone().set("kmirror.on.oversize", "skip");
    Kmirror::run_until_caught_up(skipping.text(), TIMEOUT)?;
    let found = pair.java().read(&pair.b.bootstrap(), "Huge.huge.refused", Isolation::ReadUncommitted)?;
    let values: Vec<String> = found.iter().map(|record| record.value_text()).collect();
    assert_eq!(values, ["before", "after", "beside"]);
    Ok(())
}

/// Case 13.
#[test]
fn a_refused_timestamp_stops_its_partition_only() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair.flow("Future").topics("future[.].*").set("sync.topic.configs.enabled", "false");
    pair.source().create_topic("future.refused", 1, &[])?;
    let before = ("message.timestamp.before.max.ms", "3600000");
    pair.target().create_topic("Future.future.refused", 1, &[before])?;
    let old = 1_500_000_000_000;
    pair.java().produce(&pair.a.bootstrap(), "future.refused", &[TestRecord::new("k", "new")])?;
    pair.java().produce(&pair.a.bootstrap(), "future.refused", &[TestRecord::new("k", "old").at(old)])?;
    let output = run_with_refused(pair, &flow, "future.refused", "future.healthy")?;
    assert!(output.contains("message.timestamp"), "the setting is named: {output}");
    assert_eq!(pair.target_end("Future.future.refused", 0)?, 1);
    pair.target().alter_topic_configs("Future.future.refused", &[(before.0, None)])?;
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    assert_eq!(pair.compare(&flow, "future.refused", Isolation::ReadUncommitted)?, 2);
    Ok(())
}

/// A broker sends its file as it is, so damage on the source's disk reaches us; it must not be stored as good.
#[test]
fn a_damaged_batch_is_not_copied() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair.flow("Damaged").topics("damaged[.].*");
    pair.source().create_topic("damaged.refused", 1, &[])?;
    for round in 0..3 {
        let records: Vec<TestRecord> = (0..5).map(|i| TestRecord::new("k", format!("{round} {i}"))).collect();
        batch_of(pair, "damaged.refused", Codec::None, &records)?;
    }
    let batches = pair.a.stored_batches(1, "damaged.refused", 0)?;
    assert_eq!(batches.len(), 3);
    let file = pair.a.partition_folder(1, "damaged.refused", 0)?.join("00000000000000000000.log");
    let at = batches[0].bytes.len() + batches[1].bytes.len() - 3;
    let mut log = std::fs::File::options().write(true).open(&file).expect("the segment");
    log.seek(SeekFrom::Start(at as u64)).and_then(|_| log.write_all(&[0xaa])).expect("the damage is written");
    run_with_refused(pair, &flow, "damaged.refused", "damaged.healthy")?;
    let found =
        pair.java().read(&pair.b.bootstrap(), "Damaged.damaged.refused", Isolation::ReadUncommitted)?;
    let values: Vec<String> = found.iter().map(|record| record.value_text()).collect();
    assert_eq!(values, ["0 0", "0 1", "0 2", "0 3", "0 4"]);
    Ok(())
}
