//! `kmirror run` between a real broker of an older release and one of the current release, in both directions.

use protocol_tests::Result;
use protocol_tests::compare::{Side, compare_topics};
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{ClusterSpec, Codec, Isolation, Kafka, KafkaVersion, ProducerKind, Step};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::records::TestRecord;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// 3.9 as A, 4.3 as B.
fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("old").version(KafkaVersion::V3_9_1), ClusterSpec::new("new"))
}

fn check(pair: &Pair, alias: &str, source: &Kafka, target: &Kafka) -> Result<()> {
    let (from, to) = (source.bootstrap(), target.bootstrap());
    let topic = format!("to-{}", target.name());
    pair.java().admin(&from).create_topic(&topic, 5, &[])?;
    for codec in Codec::ALL {
        let kind = ProducerKind::Transactional(format!("{topic}-{}", codec.name()));
        let producer = pair.java().producer(&from, &kind, codec, &[("linger.ms", "20")])?;
        let partition = i32::from(codec.bits());
        let send = |text: String| {
            let record = TestRecord::new("k", text).to_partition(partition).header("h", None);
            Step::Send(topic.clone(), record)
        };
        for (round, end) in [Step::Commit, Step::Abort, Step::Commit].into_iter().enumerate() {
            let mut steps = vec![Step::Begin];
            steps.extend((0..40).map(|i| send(format!("round {round} record {i}"))));
            steps.extend([Step::Flush, end]);
            producer.run(&steps)?;
        }
    }
    let flow = FlowFile::new(alias, &from, &to)
        .set("kmirror.admin.listen", "none")
        .set_for_source("consumer.isolation.level", "read_committed")
        .topics(&topic);
    Kmirror::run_until_caught_up(flow.text(), TIMEOUT)?;
    let remote = flow.remote(&topic);
    let (left, right) = (Side { bootstrap: &from, topic: &topic }, Side { bootstrap: &to, topic: &remote });
    assert_eq!(compare_topics(pair.java(), left, right, Isolation::ReadCommitted)?, 5 * 80);
    Ok(())
}

#[test]
fn from_an_older_broker_to_a_current_one() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    check(pair, "Old", &pair.a, &pair.b)
}

#[test]
fn from_a_current_broker_to_an_older_one() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    check(pair, "New", &pair.b, &pair.a)
}
