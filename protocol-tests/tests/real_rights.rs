//! The rights that `kmirror acls` prints, given by the real `kafka-acls` to a plain user, and enforced by the real
//! StandardAuthorizer: with exactly these everything works, and with one of them missing only what needs it stops.
//!
//! Whoever comes by the plaintext listener may do everything: the test's own clients do. kmirror comes by SASL.

use protocol_tests::Result;
use protocol_tests::kafka::{
    Certificates, ClusterSpec, Isolation, Kafka, KafkaJars, KafkaVersion, Listener, USERS,
};
use protocol_tests::mirror::{Kmirror, kmirror_binary};
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::{Program, ScratchFolder};
use protocol_tests::records::TestRecord;
use protocol_tests::wait::{Look, wait_for};
use std::sync::OnceLock;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(90);

fn pair() -> Result<Option<&'static Pair>> {
    static PAIR: PairCell = PairCell::new();
    static MADE: OnceLock<(Certificates, ScratchFolder)> = OnceLock::new();
    if protocol_tests::kafka::real_kafka()?.is_none() {
        return Ok(None);
    }
    if MADE.get().is_none() {
        let folder = ScratchFolder::new("certificates")?;
        let _ = MADE.set((Certificates::make(folder.path())?, folder));
    }
    let Some((certificates, _)) = MADE.get() else { return Ok(None) };
    let spec = |name| {
        let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        let spec = ClusterSpec::new(name).secured(certificates).set("authorizer.class.name", authorizer);
        spec.set("super.users", "User:ANONYMOUS")
    };
    Pair::get(&PAIR, spec("ra"), spec("rb"))
}

/// The lines of `kmirror acls` for a cluster, each as it was printed.
fn printed(text: &str, alias: &str) -> Result<Vec<String>> {
    let folder = ScratchFolder::new("acls")?;
    let file = folder.path().join("mm2.properties");
    std::fs::write(&file, text).expect("a folder of ours");
    let output = Program::new(kmirror_binary()?).arg("acls").arg(&file).run("kmirror acls")?;
    let of_cluster = output.split("# cluster ").find(|part| part.starts_with(&format!("{alias}\n")));
    let lines = of_cluster.unwrap_or_default().lines().filter(|line| line.starts_with("kafka-acls "));
    Ok(lines.map(str::to_owned).collect())
}

/// Runs lines of `kafka-acls` in a shell, as a user would, but over the listener that may do everything.
fn run_lines(cluster: &Kafka, lines: &[String], change: (&str, &str)) -> Result<()> {
    let jars = KafkaJars::get(KafkaVersion::CURRENT)?;
    let (sasl, open) = (cluster.bootstrap_of(Listener::Sasl), cluster.bootstrap());
    let options = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
    for line in lines {
        let line = line.replace(&sasl, &open).replace(change.0, change.1);
        let arguments = line.strip_prefix("kafka-acls ").unwrap_or(&line);
        // The shell splits and unquotes; the program it calls is the one behind kafka-acls.sh.
        let script = format!("exec \"$@\" {arguments}");
        let java = jars.java(&options, None, "org.apache.kafka.tools.AclCommand").into_command();
        let words = std::iter::once(java.get_program()).chain(java.get_args());
        let program = Program::new("sh").args(["-c", &script, "sh"]).args(words.map(ToOwned::to_owned));
        program.run(&line)?;
    }
    Ok(())
}

fn way(alias: &str, cluster: &Kafka) -> String {
    let (name, password) = USERS[0];
    let bootstrap = cluster.bootstrap_of(Listener::Sasl);
    let module = "org.apache.kafka.common.security.plain.PlainLoginModule";
    format!(
        "{alias}.bootstrap.servers = {bootstrap}\n{alias}.security.protocol = SASL_PLAINTEXT\n{alias}.sasl.mechanism = PLAIN\n\
         {alias}.sasl.jaas.config = {module} required username=\"{name}\" password=\"{password}\";\n"
    )
}

fn file(pair: &Pair) -> String {
    format!(
        "clusters = A, B\n{}{}A->B.enabled = true\nA->B.topics = orders, pay[.].*\nA->B.groups = readers\n\
         B->A.emit.heartbeats.enabled = false\nrefresh.topics.interval.seconds = 1\n\
         emit.checkpoints.interval.seconds = 1\nA->B.sync.group.offsets.enabled = true\nsync.group.offsets.interval.seconds = 1\n\
         sync.topic.acls.interval.seconds = 2\nB.offset.storage.partitions = 2\nB.offset.flush.interval.ms = 1000\n",
        way("A", &pair.a),
        way("B", &pair.b)
    )
}

fn produce(pair: &Pair, topic: &str, value: &str) -> Result<()> {
    pair.java().produce(&pair.a.bootstrap(), topic, &[TestRecord::new("k", value)]).map(drop)
}

fn count(pair: &Pair, topic: &str) -> Result<usize> {
    if pair.target().describe_topic(topic)?.is_none() {
        return Ok(0);
    }
    Ok(pair.java().read(&pair.b.bootstrap(), topic, Isolation::ReadUncommitted)?.len())
}

fn wait_count(pair: &Pair, mirror: &mut Kmirror, topic: &str, wanted: usize) -> Result<()> {
    wait_for(topic, TIMEOUT, || {
        mirror.expect_running()?;
        let found = count(pair, topic)?;
        Ok(if found >= wanted {
            Look::Done(())
        } else {
            Look::Pending(format!("{found} records\n{}", mirror.output()))
        })
    })
}

#[test]
fn the_rights_that_are_printed_suffice_and_each_missing_one_is_named() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    for topic in ["orders", "pay.eu", "secret"] {
        pair.source().create_topic(topic, 1, &[])?;
        produce(pair, topic, "first")?;
    }
    pair.source().commit_group_offset("readers", "orders", 0, 1)?;
    pair.source().create_topic_acl("literal", "orders", "User:app", "READ", "ALLOW")?;
    let text = file(pair);
    for (alias, cluster) in [("A", &pair.a), ("B", &pair.b)] {
        let lines = printed(&text, alias)?;
        assert!(lines.len() >= 5, "{lines:?}");
        run_lines(cluster, &lines, ("", ""))?;
    }
    let mut mirror = Kmirror::start_with_admin(&["run"], &text)?;
    for topic in ["A.orders", "A.pay.eu", "A.checkpoints.internal", "heartbeats"] {
        wait_count(pair, &mut mirror, topic, 1)?;
    }
    wait_for("what follows the source", TIMEOUT, || {
        mirror.expect_running()?;
        let committed = pair.target().group_offsets("readers")?;
        let acls = pair.target().acls()?;
        let is_followed = acls.iter().any(|acl| acl.contains("TOPIC A.orders User:app * READ ALLOW"));
        let is_done = committed.get(&("A.orders".to_owned(), 0)) == Some(&1) && is_followed;
        Ok(if is_done {
            Look::Done(())
        } else {
            Look::Pending(format!("{committed:?} {acls:?}\n{}", mirror.output()))
        })
    })?;
    let output = mirror.output();
    assert!(!output.contains("AUTHORIZATION_FAILED") && !output.contains("is needed"), "{output}");
    assert_eq!(mirror.get("/readyz")?.0, 200);
    missing_write_stops_one_topic(pair, &text, &mut mirror)?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    without_the_lease_nothing_is_written(pair, &text)
}

/// The topic stops with the right that it lacks, the other goes on; given back, the topic goes on by itself.
fn missing_write_stops_one_topic(pair: &Pair, text: &str, mirror: &mut Kmirror) -> Result<()> {
    let lines: Vec<String> =
        printed(text, "B")?.into_iter().filter(|line| line.contains("--topic A.pay. ")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let only_write = |line: &String| {
        let (head, tail) = line.split_once("--operation").unwrap_or((line, ""));
        let topic = tail.split_once("--topic").map_or("", |(_, topic)| topic);
        format!("{head}--operation Write --topic{topic}")
    };
    let write: Vec<String> = lines.iter().map(only_write).collect();
    run_lines(&pair.b, &write, (" --add ", " --remove --force "))?;
    produce(pair, "pay.eu", "second")?;
    produce(pair, "orders", "second")?;
    wait_count(pair, mirror, "A.orders", 2)?;
    wait_for("the reason", TIMEOUT, || {
        let status = mirror.get("/status")?.1;
        let is_said = status.contains("not_authorized") && status.contains("WRITE on it is needed");
        Ok(if is_said { Look::Done(()) } else { Look::Pending(status) })
    })?;
    produce(pair, "orders", "third")?;
    wait_count(pair, mirror, "A.orders", 3)?;
    assert_eq!(count(pair, "A.pay.eu")?, 1);
    run_lines(&pair.b, &write, ("", ""))?;
    wait_count(pair, mirror, "A.pay.eu", 2)
}

fn without_the_lease_nothing_is_written(pair: &Pair, text: &str) -> Result<()> {
    let lines: Vec<String> =
        printed(text, "B")?.into_iter().filter(|line| line.contains("kmirror-A->B")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    run_lines(&pair.b, &lines, (" --add ", " --remove --force "))?;
    let before = count(pair, "A.orders")?;
    let mut mirror = Kmirror::start(&["run"], text)?;
    // Its only flow cannot go on.
    assert_eq!(mirror.wait(TIMEOUT)?, 3, "{}", mirror.output());
    let output = mirror.output();
    assert!(
        output.contains("group kmirror-A->B")
            && output.contains("READ (to look at it, DESCRIBE) on the group is needed"),
        "{output}"
    );
    assert_eq!(count(pair, "A.orders")?, before);
    run_lines(&pair.b, &lines, ("", ""))
}
