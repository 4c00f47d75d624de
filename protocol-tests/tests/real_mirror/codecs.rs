//! Every codec × {plain, idempotent, transactional} × {Java, librdkafka}: records equal, batches verbatim.

use crate::{TIMEOUT, pair};
use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{Client, Codec, Isolation, ProducerKind, Step, StoredBatch, committed_batches};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::Pair;
use protocol_tests::records::TestRecord;
use std::sync::OnceLock;

const ROUNDS: usize = 5;
const ABORTED_ROUND: usize = 2;

/// One topic per client and kind of producer; partition = codec.
fn topics(pair: &Pair) -> Result<Vec<(String, &'static Client, ProducerKind)>> {
    let mut topics = Vec::new();
    for client in [Some(&pair.real.java), pair.real.librdkafka()?].into_iter().flatten() {
        for (name, kind) in [
            ("plain", ProducerKind::Plain),
            ("idempotent", ProducerKind::Idempotent),
            ("transactional", ProducerKind::Transactional(String::new())),
        ] {
            topics.push((format!("codecs.{:?}.{name}", client.kind()), client, kind));
        }
    }
    Ok(topics)
}

/// Writes the topics once for all tests of this file.
fn written(pair: &Pair) -> Result<Vec<String>> {
    static WRITTEN: OnceLock<std::result::Result<Vec<String>, String>> = OnceLock::new();
    let topics = WRITTEN.get_or_init(|| write_all(pair).map_err(|error| error.to_string()));
    topics.clone().map_err(protocol_tests::HarnessError::Difference)
}

fn write_all(pair: &Pair) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for (topic, client, kind) in topics(pair)? {
        pair.source().create_topic(&topic, 5, &[])?;
        for codec in Codec::ALL {
            let kind = match kind {
                ProducerKind::Transactional(_) => {
                    ProducerKind::Transactional(format!("{topic}-{}", codec.name()))
                }
                ref other => other.clone(),
            };
            let producer = client.producer(
                &pair.a.bootstrap(),
                &kind,
                codec,
                &[("linger.ms", "30"), ("batch.size", "9000")],
            )?;
            producer.run(&steps(&topic, &kind, codec))?;
        }
        names.push(topic);
    }
    Ok(names)
}

/// Rounds of large batches and of single records; one round is aborted when there are transactions.
fn steps(topic: &str, kind: &ProducerKind, codec: Codec) -> Vec<Step> {
    let transactional = matches!(kind, ProducerKind::Transactional(_));
    let send =
        |record: TestRecord| Step::Send(topic.to_owned(), record.to_partition(i32::from(codec.bits())));
    let mut steps = Vec::new();
    for round in 0..ROUNDS {
        if transactional {
            steps.push(Step::Begin);
        }
        steps.extend(many_kinds(round).into_iter().map(send));
        steps.push(Step::Flush);
        for single in 0..4 {
            steps.push(send(TestRecord::new("single", format!("round {round} single {single}"))));
            steps.push(Step::Flush);
        }
        match transactional {
            true if round == ABORTED_ROUND => steps.push(Step::Abort),
            true => steps.push(Step::Commit),
            false => {}
        }
    }
    steps
}

fn many_kinds(round: usize) -> Vec<TestRecord> {
    let base = 1_700_000_000_000 + round as i64;
    let mut records = vec![
        TestRecord::new("key", "value")
            .at(base)
            .header("h", Some(b"1"))
            .header("h", None)
            .header("h", Some(b"")),
        TestRecord { value: Some(b"null key".to_vec()), ..TestRecord::default() }.at(base + 5),
        TestRecord::tombstone("null value").at(base - 5),
        TestRecord::default().at(base),
        TestRecord::new("", "").at(base).header("", Some(&[0xff, 0xfe, 0])),
        TestRecord::new("schl\u{fc}ssel", "\u{65e5}\u{672c}")
            .at(0)
            .header("\u{43a}\u{43b}", Some("\u{44e}".as_bytes())),
        TestRecord::new([0u8, 1, 0xff], [0x80u8; 300]).at(base),
    ];
    // Enough for more than one batch, compressible and not.
    for i in 0..40u32 {
        let noise: Vec<u8> = (0..400u32).map(|j| (i * 7919 + j * j * 31) as u8).collect();
        records.push(
            TestRecord::new(format!("k{i}"), if i % 2 == 0 { vec![b'x'; 400] } else { noise }).at(base),
        );
    }
    records
}

fn mirror(pair: &Pair, alias: &str, batching: &str) -> Result<(FlowFile, Vec<String>)> {
    let topics = written(pair)?;
    let flow = pair
        .flow(alias)
        .topics("codecs[.].*")
        .set_for_source("consumer.isolation.level", "read_committed")
        .set("kmirror.batching", batching);
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    Ok((flow, topics))
}

fn assert_records_equal(pair: &Pair, flow: &FlowFile, topics: &[String]) -> Result<()> {
    for topic in topics {
        let committed = if topic.ends_with("transactional") { ROUNDS - 1 } else { ROUNDS };
        let wanted = Codec::ALL.len() * committed * (many_kinds(0).len() + 4);
        assert_eq!(pair.compare(flow, topic, Isolation::ReadCommitted)?, wanted, "{topic}");
        if let Some(librdkafka) = pair.real.librdkafka()? {
            assert_eq!(
                pair.compare_by(librdkafka, flow, topic, Isolation::ReadCommitted)?,
                wanted,
                "{topic}"
            );
        }
    }
    Ok(())
}

fn stored(pair: &Pair, flow: &FlowFile, topic: &str, partition: i32) -> Result<[Vec<StoredBatch>; 2]> {
    let source = committed_batches(&pair.a.stored_batches(1, topic, partition)?);
    Ok([source, pair.b.stored_batches(1, &flow.remote(topic), partition)?])
}

#[test]
fn verbatim_batches_are_those_of_the_source_but_for_the_fields_we_own() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (flow, topics) = mirror(pair, "Verbatim", "verbatim")?;
    assert_records_equal(pair, &flow, &topics)?;
    for topic in &topics {
        for codec in Codec::ALL {
            let [source, target] = stored(pair, &flow, topic, i32::from(codec.bits()))?;
            assert_eq!(source.len(), target.len(), "{topic} {codec:?}");
            assert!(source.iter().any(|batch| batch.codec() == codec.bits()), "{topic} {codec:?}");
            for (left, right) in source.iter().zip(&target) {
                assert!(left.kept_bytes() == right.kept_bytes(), "{topic}: {left:?} became {right:?}");
                assert_eq!(right.attributes(), left.attributes() & 0x07, "{topic}: {right:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn adaptive_batches_are_verbatim_where_they_were_not_merged() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let (flow, topics) = mirror(pair, "Adaptive", "adaptive")?;
    assert_records_equal(pair, &flow, &topics)?;
    let mut same = 0;
    for topic in &topics {
        for codec in Codec::ALL {
            let [source, target] = stored(pair, &flow, topic, i32::from(codec.bits()))?;
            let source_places = places(&source);
            for (place, batch) in places(&target).into_iter().zip(&target) {
                if let Some(index) = source_places.iter().position(|other| *other == place) {
                    assert!(source[index].kept_bytes() == batch.kept_bytes(), "{topic}: {batch:?}");
                    same += 1;
                }
            }
        }
    }
    assert!(same > 0, "nothing was forwarded as it was");
    Ok(())
}

/// Number of the first record and count of each batch.
fn places(batches: &[StoredBatch]) -> Vec<(i32, i32)> {
    batches
        .iter()
        .scan(0, |next, batch| {
            let first = *next;
            *next += batch.record_count();
            Some((first, batch.record_count()))
        })
        .collect()
}
