//! What `/status` and `/readyz` say, and who is waited for before the first write.

use crate::{TIMEOUT, pair};
use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::Isolation;
use protocol_tests::mirror::Kmirror;
use protocol_tests::records::TestRecord;
use protocol_tests::wait::{Look, wait_for};
use serde_json::{Value, json};

const SECRET: &str = "correct horse battery staple";

/// Waits until a part of the first flow's state is as wanted.
fn wait_status(mirror: &mut Kmirror, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
    wait_for(what, TIMEOUT, || {
        mirror.expect_running()?;
        let status = mirror.status()?;
        Ok(if is(&status["flows"][0]) { Look::Done(status) } else { Look::Pending(status.to_string()) })
    })
}

#[test]
fn the_state_shows_flows_topics_partitions_offsets_and_lag_but_no_secret() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("shown.topic", 2, &[])?;
    let records: Vec<TestRecord> =
        (0..7).map(|n| TestRecord::new("k", n.to_string()).to_partition(1)).collect();
    pair.java().produce(&pair.a.bootstrap(), "shown.topic", &records)?;
    pair.source().create_topic("shown.refused", 1, &[])?;
    pair.target().create_topic("Shown.shown.refused", 1, &[("max.message.bytes", "500")])?;
    pair.java().produce(&pair.a.bootstrap(), "shown.refused", &[TestRecord::new("k", "x".repeat(2_000))])?;
    let flow = pair
        .flow("Shown")
        .topics("shown[.].*")
        .set("sync.topic.configs.enabled", "false")
        .set_for_source("ssl.truststore.password", SECRET);
    let mut mirror = Kmirror::start_with_admin(&["run"], flow.text())?;
    let status = wait_status(&mut mirror, "everything to be said", |flow| {
        let partition = |topic: &str, partition: &str| flow["topics"][topic]["partitions"][partition].clone();
        partition("shown.topic", "1")["position"] == 7
            && partition("shown.topic", "0")["high_watermark"] == 0
            && !partition("shown.refused", "0")["stopped"].is_null()
    })?;
    let flow = &status["flows"][0];
    assert_eq!(
        (&flow["source"], &flow["target"], &flow["state"], &flow["discovered"], &flow["last_error"]),
        (&json!("Shown"), &json!("B"), &json!("running"), &json!(true), &Value::Null),
        "{status}"
    );
    assert_eq!(flow["lag_offsets"], 1, "the refused record: {status}");
    let topic = &flow["topics"]["shown.topic"];
    assert_eq!(topic["remote_topic"], "Shown.shown.topic");
    let wanted = [
        ("position", json!(7)),
        ("downstream", json!(7)),
        ("lag_offsets", json!(0)),
        ("end_at_start", json!(7)),
        ("high_watermark", json!(7)),
        ("log_start_offset", json!(0)),
        ("records", json!(7)),
        ("stopped", Value::Null),
    ];
    for (name, value) in wanted {
        assert_eq!(topic["partitions"]["1"][name], value, "{name}: {status}");
    }
    assert_eq!(topic["partitions"]["0"]["position"], 0, "{status}");
    let refused = &flow["topics"]["shown.refused"]["partitions"]["0"];
    assert_eq!((&refused["stopped"]["reason"], &refused["position"]), (&json!("oversize"), &json!(0)));
    let message = refused["stopped"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("max.message.bytes") && message.contains("offset 0"), "{message}");
    let connected = |cluster: &str| {
        let brokers = flow["brokers"].as_array().map(Vec::as_slice).unwrap_or_default();
        brokers.iter().any(|broker| broker["cluster"] == cluster && broker["connected"] == true)
    };
    assert!(connected("Shown") && connected("B"), "{status}");
    assert_eq!(mirror.get("/readyz")?, (200, "ready\n".to_owned()));
    for text in [status.to_string(), mirror.get("/metrics")?.1, mirror.output()] {
        assert!(!text.contains(SECRET), "{text}");
    }
    assert_eq!(mirror.stop(TIMEOUT)?, 0);
    Ok(())
}

/// Nothing answers at the bootstrap servers: the flow says so, and starts when something does.
#[test]
fn dead_bootstrap_servers_are_named() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let dead = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let dead = dead.expect("a free port").to_string();
    for (a, b) in [(&dead, &pair.b.bootstrap()), (&pair.a.bootstrap(), &dead)] {
        let flow = FlowFile::new("Dead", a, b).topics("dead");
        let mut mirror = Kmirror::start_with_admin(&["run"], flow.text())?;
        let status = wait_status(&mut mirror, "the dead servers to be named", |flow| {
            flow["last_error"].as_str().is_some_and(|error| error.contains(&dead))
        })?;
        assert_eq!(status["flows"][0]["topics"], json!({}), "{status}");
        assert_ne!(status["flows"][0]["discovered"], true, "{status}");
        if *b == dead {
            let (code, text) = mirror.get("/readyz")?;
            assert!(code == 503 && text.contains("Dead->B is starting") && text.contains(&dead), "{text}");
        }
        mirror.stop(TIMEOUT)?;
    }
    Ok(())
}

/// A member of MirrorMaker's group, as a plain client of the classic protocol; `real_control` has MirrorMaker itself.
#[test]
fn members_of_mirror_makers_group_are_waited_for_refused_and_stop_a_running_flow() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("member", 1, &[])?;
    pair.target().create_topic("member.other", 1, &[])?;
    let produce = |value: &str| {
        pair.java().produce(&pair.a.bootstrap(), "member", &[TestRecord::new("k", value)]).map(drop)
    };
    produce("first")?;
    let flow = pair.flow("Member").topics("member");
    let target = pair.target();
    let member = target.join_group("Member-mm2", "member.other")?;
    let mut refused = Kmirror::start_with_admin(&["run", "--takeover-timeout", "3s"], flow.text())?;
    wait_status(&mut refused, "the wait to be said", |flow| {
        let detail = flow["detail"].as_str().unwrap_or_default();
        flow["state"] == "waiting_for_mirrormaker" && detail.contains("Member-mm2 has 1 members")
    })?;
    assert_eq!(refused.get("/readyz")?.0, 503);
    assert_eq!(refused.wait(TIMEOUT)?, 3, "{}", refused.output());
    let output = refused.output();
    assert!(output.contains("Member-mm2") && output.contains("--takeover-timeout"), "{output}");
    assert_eq!(target.describe_topic("Member.member")?, None, "nothing was written");
    // One that leaves is waited for, and one that comes later ends the flow.
    let mut mirror = Kmirror::start_with_admin(&["run"], flow.text())?;
    wait_status(&mut mirror, "the wait", |flow| flow["state"] == "waiting_for_mirrormaker")?;
    drop(member);
    assert_eq!(pair.wait_mirrored(&mut mirror, &flow, "member", Isolation::ReadUncommitted, TIMEOUT)?, 1);
    let member = target.join_group("Member-mm2", "member.other")?;
    assert_eq!(mirror.wait(TIMEOUT)?, 3, "{}", mirror.output());
    let output = mirror.output();
    assert!(output.contains("MirrorMaker has started on this flow: group Member-mm2"), "{output}");
    produce("second")?;
    assert_eq!(pair.target_end("Member.member", 0)?, 1, "nothing after it");
    drop(member);
    Ok(())
}
