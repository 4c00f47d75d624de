//! Settings of topics that follow their source, what `plan` says of them, and what files ask of the producer.

use super::{TIMEOUT, pair};
use protocol_tests::Result;
use protocol_tests::kafka::{Codec, Isolation, ProducerKind};
use protocol_tests::mirror::Kmirror;
use protocol_tests::records::TestRecord;
use protocol_tests::wait::wait_until_equal;
use std::collections::BTreeMap;

/// `plan` names what a run does, changes nothing, and has nothing to say afterwards; later changes follow.
#[test]
fn topics_follow_their_source_and_a_plan_says_so_beforehand() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair
        .flow("Followed")
        .topics("followed[.].*")
        .set("sync.topic.acls.enabled", "true")
        .set("sync.topic.configs.interval.seconds", "1");
    let (source, target) = ("followed.t", "Followed.followed.t");
    pair.source().create_topic(
        source,
        3,
        &[("delete.retention.ms", "3600000"), ("cleanup.policy", "compact")],
    )?;
    pair.target().create_topic(target, 1, &[("segment.ms", "600000")])?;
    let plan = |expected: i32| -> Result<String> {
        let mut plan = Kmirror::start(&["plan"], flow.text())?;
        let code = plan.wait(TIMEOUT)?;
        assert_eq!(code, expected, "{}", plan.output());
        Ok(plan.output())
    };
    let said = plan(2)?;
    for line in [
        "~ topic followed.t as Followed.followed.t: 1 to 3 partitions",
        "cleanup.policy=compact",
        "delete.retention.ms=3600000",
        "-segment.ms",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let set = |wanted: &[(&str, &str)]| -> Result<()> {
        let wanted: BTreeMap<String, String> =
            wanted.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        wait_until_equal("the settings of the remote topic", TIMEOUT, &wanted, || {
            pair.target().topic_configs(target)
        })
    };
    set(&[("segment.ms", "600000")])?;
    let mut run = Kmirror::start(&["run"], flow.text())?;
    set(&[("cleanup.policy", "compact"), ("delete.retention.ms", "3600000")])
        .inspect_err(|_| eprintln!("{}", run.output()))?;
    pair.source().alter_topic_configs(
        source,
        &[("delete.retention.ms", None), ("max.message.bytes", Some("2000000"))],
    )?;
    set(&[("cleanup.policy", "compact"), ("max.message.bytes", "2000000")])?;
    run.expect_running()?;
    assert_eq!(run.stop(TIMEOUT)?, 0, "{}", run.output());
    plan(0).map(drop)
}

/// `compression.type` of the target's producer recompresses what comes with another codec, and nothing else.
#[test]
fn a_codec_that_is_named_is_used() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair.flow("Packed").topics("packed[.].*").set_for_target("producer.compression.type", "zstd");
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let topic = format!("packed.{}", codec.name());
        pair.source().create_topic(&topic, 1, &[])?;
        let records: Vec<TestRecord> =
            (0..50u32).map(|i| TestRecord::new(i.to_string(), format!("value {i} ").repeat(20))).collect();
        let producer = pair.java().producer(
            &pair.a.bootstrap(),
            &ProducerKind::Idempotent,
            codec,
            &[("linger.ms", "50")],
        )?;
        producer.send(&topic, &records)?;
    }
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        let topic = format!("packed.{}", codec.name());
        assert_eq!(pair.compare(&flow, &topic, Isolation::ReadUncommitted)?, 50);
        let stored = pair.b.stored_batches(1, &flow.remote(&topic), 0)?;
        assert!(stored.iter().all(|batch| batch.codec() == Codec::Zstd.bits()), "{stored:?}");
    }
    Ok(())
}

/// `errors.tolerance=all` leaves out a record whose timestamp the target refuses, and goes on behind it.
#[test]
fn a_tolerated_refusal_leaves_out_one_record() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let flow = pair
        .flow("Tolerant")
        .topics("tolerant[.].*")
        .set("sync.topic.configs.enabled", "false")
        .set("errors.tolerance", "all");
    pair.source().create_topic("tolerant.t", 1, &[])?;
    let before = ("message.timestamp.before.max.ms", "3600000");
    pair.target().create_topic("Tolerant.tolerant.t", 1, &[before])?;
    for record in [
        TestRecord::new("k", "first"),
        TestRecord::new("k", "old").at(1_500_000_000_000),
        TestRecord::new("k", "last"),
    ] {
        pair.java().produce(&pair.a.bootstrap(), "tolerant.t", &[record])?;
    }
    let output = Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    let found = pair.java().read(&pair.b.bootstrap(), "Tolerant.tolerant.t", Isolation::ReadUncommitted)?;
    let values: Vec<String> = found.iter().map(|record| record.value_text()).collect();
    assert_eq!(values, ["first", "last"], "{output}");
    assert!(output.contains("refuses the record at source offset 1"), "{output}");
    Ok(())
}
