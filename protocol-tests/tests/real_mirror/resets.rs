//! Topics that are deleted and created anew while the flow runs, on either side.

use crate::{TIMEOUT, pair};
use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::Isolation;
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::Pair;
use protocol_tests::records::TestRecord;
use protocol_tests::wait::{Look, wait_for};
use serde_json::Value;

fn produce(pair: &Pair, topic: &str, values: &[&str]) -> Result<()> {
    let records: Vec<TestRecord> = values.iter().map(|value| TestRecord::new("k", *value)).collect();
    pair.java().produce(&pair.a.bootstrap(), topic, &records).map(drop)
}

fn values(pair: &Pair, topic: &str) -> Result<Vec<String>> {
    let records = pair.java().read(&pair.b.bootstrap(), topic, Isolation::ReadUncommitted)?;
    Ok(records.iter().map(|record| record.value_text()).collect())
}

fn wait_values(pair: &Pair, mirror: &mut Kmirror, topic: &str, wanted: &[&str]) -> Result<()> {
    wait_for(&format!("{wanted:?} in {topic}"), TIMEOUT, || {
        mirror.expect_running()?;
        let seen = values(pair, topic)?;
        Ok(if seen == wanted {
            Look::Done(())
        } else {
            Look::Pending(format!("{seen:?} {}", mirror.output()))
        })
    })
}

/// Waits until the state of the only partition of a topic, or the flow's events, are as wanted.
fn wait_status<T>(mirror: &mut Kmirror, what: &str, pick: impl Fn(&Value) -> Option<T>) -> Result<T> {
    wait_for(what, TIMEOUT, || {
        mirror.expect_running()?;
        let status = mirror.status()?;
        Ok(match pick(&status["flows"][0]) {
            Some(found) => Look::Done(found),
            None => Look::Pending(status.to_string()),
        })
    })
}

fn gap_of(flow: &Value, topic: &str) -> Option<(i64, i64, String)> {
    let events = flow["events"].as_array()?;
    let gap = events.iter().find(|event| event["topic"] == topic && event["kind"] == "gap")?;
    Some((gap["from"].as_i64()?, gap["to"].as_i64()?, gap["reason"].as_str()?.to_owned()))
}

fn mirrored(pair: &Pair, flow: &FlowFile, topic: &str) -> Result<Kmirror> {
    pair.source().create_topic(topic, 1, &[])?;
    produce(pair, topic, &["1", "2", "3"])?;
    let mut mirror = Kmirror::start_with_admin(&["run"], flow.text())?;
    wait_values(pair, &mut mirror, &flow.remote(topic), &["1", "2", "3"])?;
    Ok(mirror)
}

/// Case 18.
#[test]
fn a_source_topic_that_is_created_anew_stops_or_is_appended() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let topic = "anew";
    let flow = pair.flow("Anew").topics(topic);
    let mut mirror = mirrored(pair, &flow, topic)?;
    pair.source().delete_topic(topic)?;
    pair.source().create_topic(topic, 1, &[])?;
    produce(pair, topic, &["new 1", "new 2"])?;
    let message = wait_status(&mut mirror, "the partition to stop", |flow| {
        let stopped = &flow["topics"][topic]["partitions"]["0"]["stopped"];
        let message = stopped["message"].as_str()?;
        (stopped["reason"] == "source_reset").then(|| message.to_owned())
    })?;
    assert!(message.contains("created anew at the source") && message.contains("append"), "{message}");
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    assert_eq!(values(pair, &flow.remote(topic))?, ["1", "2", "3"], "nothing of the new log");
    // A person decides.
    let append = flow.clone().set("kmirror.on.source.reset", "append");
    let mut mirror = Kmirror::start_with_admin(&["run"], append.text())?;
    wait_values(pair, &mut mirror, &flow.remote(topic), &["1", "2", "3", "new 1", "new 2"])?;
    let (from, to, reason) = wait_status(&mut mirror, "the gap", |flow| gap_of(flow, topic))?;
    assert_eq!((from, to), (3, 0), "{reason}");
    assert!(reason.contains("created anew at the source"), "{reason}");
    // Once more, this time while `append` runs.
    pair.source().delete_topic(topic)?;
    pair.source().create_topic(topic, 1, &[])?;
    produce(pair, topic, &["newer"])?;
    wait_values(pair, &mut mirror, &flow.remote(topic), &["1", "2", "3", "new 1", "new 2", "newer"])?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    Ok(())
}

#[test]
fn a_target_topic_that_is_created_anew_goes_on_at_the_position() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let topic = "anew-there";
    let flow = pair.flow("AnewThere").topics(topic);
    let mut mirror = mirrored(pair, &flow, topic)?;
    pair.target().delete_topic(&flow.remote(topic))?;
    pair.target().create_topic(&flow.remote(topic), 1, &[])?;
    produce(pair, topic, &["4", "5"])?;
    wait_values(pair, &mut mirror, &flow.remote(topic), &["4", "5"])?;
    let (from, to, reason) = wait_status(&mut mirror, "the gap", |flow| gap_of(flow, topic))?;
    assert_eq!((from, to), (0, 3), "{reason}");
    assert!(reason.contains("created anew on the target"), "{reason}");
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    // And the next process knows of it still, and of where the new log stands.
    produce(pair, topic, &["6"])?;
    let mut mirror = Kmirror::start_with_admin(&["run"], flow.text())?;
    wait_values(pair, &mut mirror, &flow.remote(topic), &["4", "5", "6"])?;
    assert_eq!(wait_status(&mut mirror, "the gap", |flow| gap_of(flow, topic))?.1, 3);
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    Ok(())
}
