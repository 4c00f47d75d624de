//! What only a real MirrorMaker can leave behind: the transactions of its exactly-once tasks, and a paused connector.

use protocol_tests::Result;
use protocol_tests::compare::compare_records;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{ClusterSpec, Codec, ConnectWorker, Isolation, MirrorMaker, ProducerKind, Step};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::tail;
use protocol_tests::records::TestRecord;
use protocol_tests::traffic::Traffic;
use protocol_tests::wait::{Look, wait_for};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(120);
const JVM: [&str; 3] = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    Pair::get(&PAIR, ClusterSpec::new("a"), ClusterSpec::new("b"))
}

fn run(flow: &FlowFile) -> Result<Kmirror> {
    Kmirror::start_with_admin(&["run", "--takeover-timeout", "120s"], flow.text())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Waits until what was committed is the same on both sides; gives the number of records.
fn wait_committed(pair: &Pair, mirror: &mut Kmirror, flow: &FlowFile, topic: &str) -> Result<usize> {
    let read = |bootstrap: String, topic: &str| pair.java().read(&bootstrap, topic, Isolation::ReadCommitted);
    wait_for(&format!("{topic} to be mirrored"), TIMEOUT, || {
        mirror.expect_running()?;
        let (wanted, found) =
            (read(pair.a.bootstrap(), topic)?, read(pair.b.bootstrap(), &flow.remote(topic))?);
        Ok(match compare_records(&wanted, &found) {
            Ok(count) => Look::Done(count),
            Err(difference) => Look::Pending(format!("{difference}\n{}", tail(&mirror.output(), 40))),
        })
    })
}

/// Killed in the middle of its work, with traffic flowing: its last transaction is open, and its task may be a zombie. What
/// kmirror finds is what was committed, so every record is there once.
#[test]
fn exactly_once_tasks_that_were_killed_are_fenced_and_nothing_is_missing_or_there_twice() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("exact", 2, &[])?;
    let flow = pair
        .flow("Eos")
        .topics("exact")
        .single_replicas()
        .set_for_source("consumer.isolation.level", "read_committed")
        .set_for_target("exactly.once.source.support", "enabled")
        .set("dedicated.mode.enable.internal.rest", "true")
        .set("listeners", &format!("http://127.0.0.1:{}", free_port()));
    let traffic = Traffic::start(pair.java(), &pair.a.bootstrap(), "exact", 2, 20, Duration::from_millis(20));
    let mirror = MirrorMaker::start(flow.text(), &JVM)?;
    wait_for("MirrorMaker to commit what it copies", TIMEOUT, || {
        let there = pair.target().describe_topic("Eos.exact")?.is_some();
        let offsets = if there {
            pair.target().offsets("Eos.exact", Isolation::ReadCommitted)?
        } else {
            Default::default()
        };
        let seen = || Look::Pending(tail(&mirror.output(), 30));
        Ok(if offsets.len() == 2 && offsets.values().all(|one| one.latest > 400) {
            Look::Done(())
        } else {
            seen()
        })
    })?;
    mirror.kill()?;
    let mut kmirror = run(&flow)?;
    wait_for("kmirror to run", TIMEOUT, || {
        kmirror.expect_running()?;
        let state = kmirror.status()?["flows"][0]["state"].to_string();
        Ok(if state == "\"running\"" { Look::Done(()) } else { Look::Pending(state) })
    })?;
    // The transactional id is kmirror's to use up: a task that came back under it could append nothing.
    let fenced = "fenced a transactional id of MirrorMaker";
    assert!(kmirror.output().contains(fenced), "{}", kmirror.output());
    assert!(kmirror.output().contains("Eos-mm2-MirrorSourceConnector-0"), "{}", kmirror.output());
    let sent = traffic.stop()?;
    assert!(kmirror.output().contains("positions read flow=Eos->B partitions=2"), "{}", kmirror.output());
    let count = wait_committed(pair, &mut kmirror, &flow, "exact")?;
    assert_eq!(count as i64, 2 * sent);
    assert_eq!(kmirror.stop(TIMEOUT)?, 0, "{}", kmirror.output());

    // And back: the same MirrorMaker goes on exactly where kmirror stood, under the ids that were fenced.
    let more: Vec<TestRecord> = (0..50).map(|number| TestRecord::new("back", number.to_string())).collect();
    pair.java().produce(&pair.a.bootstrap(), "exact", &more)?;
    let mirror = MirrorMaker::start(flow.text(), &JVM)?;
    let read = |bootstrap: String, topic: &str| pair.java().read(&bootstrap, topic, Isolation::ReadCommitted);
    let count = wait_for("MirrorMaker to go on", TIMEOUT, || {
        let (wanted, found) = (read(pair.a.bootstrap(), "exact")?, read(pair.b.bootstrap(), "Eos.exact")?);
        Ok(match compare_records(&wanted, &found) {
            Ok(count) => Look::Done(count),
            Err(difference) => Look::Pending(format!("{difference}\n{}", tail(&mirror.output(), 30))),
        })
    })?;
    assert_eq!(count as i64, 2 * sent + 50);
    mirror.stop()
}

/// A source connector inside a real Connect cluster: kmirror goes on from the cluster's own offsets topic, and the worker from
/// what kmirror has left there.
#[test]
fn a_connector_of_a_connect_cluster_is_taken_over_and_given_back() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("connected", 2, &[])?;
    let produce = |numbers: std::ops::Range<i32>| {
        let records: Vec<TestRecord> =
            numbers.map(|number| TestRecord::new(number.to_string(), number.to_string())).collect();
        pair.java().produce(&pair.a.bootstrap(), "connected", &records).map(drop)
    };
    let bytes = "org.apache.kafka.connect.converters.ByteArrayConverter";
    let worker = format!(
        "bootstrap.servers = {}\ngroup.id = the-cluster\nkey.converter = {bytes}\nvalue.converter = {bytes}\n\
         offset.storage.topic = the-offsets\noffset.storage.partitions = 3\nconfig.storage.topic = the-configs\n\
         status.storage.topic = the-status\noffset.storage.replication.factor = 1\nconfig.storage.replication.factor = 1\n\
         status.storage.replication.factor = 1\noffset.flush.interval.ms = 1000\n",
        pair.b.bootstrap()
    );
    let config = serde_json::json!({
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "Con",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": pair.a.bootstrap(),
        "target.cluster.bootstrap.servers": pair.b.bootstrap(),
        "topics": "connected",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "sync.topic.acls.enabled": "false",
    });
    let flow = pair
        .flow("Con")
        .topics("connected")
        .single_replicas()
        .set("kmirror.connect.offsets.topic", "the-offsets")
        .set("kmirror.connect.source.connector", "my-mirror")
        .set("kmirror.connect.config.topic", "the-configs")
        .set("kmirror.connect.group.id", "the-cluster");
    produce(0..50)?;
    let connect = ConnectWorker::start(&worker, &JVM)?;
    connect.put_config("my-mirror", &config.to_string())?;
    assert_eq!(pair.wait_equal(&flow, "connected", Isolation::ReadUncommitted, TIMEOUT)?, 50);
    connect.stop()?;
    produce(50..100)?;
    let mut kmirror = run(&flow)?;
    assert_eq!(
        pair.wait_mirrored(&mut kmirror, &flow, "connected", Isolation::ReadUncommitted, TIMEOUT)?,
        100
    );
    assert!(kmirror.output().contains("positions read flow=Con->B partitions=2"), "{}", kmirror.output());
    assert_eq!(kmirror.stop(TIMEOUT)?, 0, "{}", kmirror.output());
    produce(100..150)?;
    let connect = ConnectWorker::start(&worker, &JVM)?;
    assert_eq!(pair.wait_equal(&flow, "connected", Isolation::ReadUncommitted, TIMEOUT)?, 150);
    connect.stop()
}

/// A task's producer that is alive and in the middle of a transaction, while its worker's group has no members.
#[test]
fn a_producer_of_a_task_that_lives_on_can_commit_nothing_more() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("zombie", 1, &[])?;
    pair.target().create_topic("Zed.zombie", 1, &[])?;
    let records: Vec<TestRecord> = (0..10).map(|number| TestRecord::new("k", number.to_string())).collect();
    pair.java().produce(&pair.a.bootstrap(), "zombie", &records)?;
    let flow = pair.flow("Zed").topics("zombie");
    let kind = ProducerKind::Transactional("Zed-mm2-MirrorSourceConnector-0".to_owned());
    let task = pair.java().producer(&pair.b.bootstrap(), &kind, Codec::None, &[])?;
    let send = |value: &str| Step::Send("Zed.zombie".to_owned(), TestRecord::new("k", value));
    task.run(&[Step::Begin, send("open"), Step::Flush])?;
    let mut kmirror = run(&flow)?;
    assert_eq!(wait_committed(pair, &mut kmirror, &flow, "zombie")?, 10);
    assert!(task.run(&[send("late"), Step::Commit]).is_err(), "{}", kmirror.output());
    assert_eq!(wait_committed(pair, &mut kmirror, &flow, "zombie")?, 10);
    assert_eq!(kmirror.stop(TIMEOUT)?, 0, "{}", kmirror.output());
    Ok(())
}

/// The record that Connect writes when somebody pauses a connector stops the real one, and so it stops us.
#[test]
fn a_connector_that_was_paused_stays_paused() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    pair.source().create_topic("quiet", 1, &[])?;
    let produce = |numbers: std::ops::Range<i32>| {
        let records: Vec<TestRecord> =
            numbers.map(|number| TestRecord::new("k", number.to_string())).collect();
        pair.java().produce(&pair.a.bootstrap(), "quiet", &records).map(drop)
    };
    let wanted = |state: &str| {
        let value = format!("{{\"state\":\"{state}\",\"state.v2\":\"{state}\"}}");
        let record = TestRecord::new("target-state-MirrorSourceConnector", value);
        pair.java().produce(&pair.b.bootstrap(), "mm2-configs.Shh.internal", &[record]).map(drop)
    };
    produce(0..10)?;
    let flow = pair.flow("Shh").topics("quiet").single_replicas();
    let mirror = MirrorMaker::start(flow.text(), &JVM)?;
    assert_eq!(pair.wait_equal(&flow, "quiet", Isolation::ReadUncommitted, TIMEOUT)?, 10);
    wanted("PAUSED")?;
    wait_for("MirrorMaker to pause", TIMEOUT, || {
        let statuses =
            pair.java().read(&pair.b.bootstrap(), "mm2-status.Shh.internal", Isolation::ReadCommitted)?;
        let of_task = |record: &&protocol_tests::records::ReadRecord| {
            record.key.as_deref() == Some(b"status-task-MirrorSourceConnector-0")
        };
        let last = statuses.iter().rfind(of_task).map(|record| record.value_text());
        let paused = last.as_ref().is_some_and(|status| status.contains("\"PAUSED\""));
        Ok(if paused { Look::Done(()) } else { Look::Pending(format!("{last:?}")) })
    })?;
    mirror.stop()?;
    produce(10..20)?;

    let mut kmirror = run(&flow)?;
    let state = |kmirror: &mut Kmirror, wanted: &str| {
        wait_for(wanted, TIMEOUT, || {
            kmirror.expect_running()?;
            let flow = kmirror.status()?["flows"][0].clone();
            let is = flow["state"] == wanted;
            Ok(if is { Look::Done(flow["detail"].to_string()) } else { Look::Pending(flow.to_string()) })
        })
    };
    let detail = state(&mut kmirror, "paused")?;
    assert!(detail.contains("PAUSED") && detail.contains("kmirror.on.paused = ignore"), "{detail}");
    assert!(kmirror.output().contains("kmirror.on.paused = ignore"), "{}", kmirror.output());
    assert_eq!(pair.target_end("Shh.quiet", 0)?, 10);
    wanted("STARTED")?;
    assert_eq!(pair.wait_mirrored(&mut kmirror, &flow, "quiet", Isolation::ReadUncommitted, TIMEOUT)?, 20);
    assert_eq!(kmirror.stop(TIMEOUT)?, 0, "{}", kmirror.output());
    Ok(())
}
