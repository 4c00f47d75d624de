//! The rights that `kmirror acls` prints, given by the real `kafka-acls` to a plain user, and enforced by the real
//! StandardAuthorizer: with exactly these everything works, and with one of them missing that one is named and only what needs
//! it stops. Each right is taken away in turn ([`RUNNING`], [`AT_START`], creating first), and given back.
//!
//! Whoever comes by the plaintext listener may do everything: the test's own clients do. kmirror comes by SASL.

use protocol_tests::Result;
use protocol_tests::kafka::Admin;
use protocol_tests::kafka::{
    Certificates, ClusterSpec, Isolation, Kafka, KafkaJars, KafkaVersion, Listener, USERS,
};
use protocol_tests::mirror::{Kmirror, kmirror_binary};
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::{Program, ScratchFolder};
use protocol_tests::records::TestRecord;
use protocol_tests::wait::{Look, wait_for};
use std::collections::BTreeMap;
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

/// kmirror is somebody else on each cluster, so that ACLs that are copied give it nothing.
fn way(alias: &str, cluster: &Kafka, (name, password): (&str, &str)) -> String {
    let bootstrap = cluster.bootstrap_of(Listener::Sasl);
    format!(
        "{alias}.bootstrap.servers = {bootstrap}\n{alias}.security.protocol = SASL_PLAINTEXT\n{alias}.sasl.mechanism = PLAIN\n\
         {alias}.sasl.username = {name}\n{alias}.sasl.password = {password}\n"
    )
}

fn file(pair: &Pair) -> String {
    format!(
        "clusters = A, B\n{}{}A->B.enabled = true\nA->B.topics = orders, pay[.].*\nA->B.groups = readers\n\
         B->A.emit.heartbeats.enabled = false\nrefresh.topics.interval.seconds = 1\n\
         emit.checkpoints.interval.seconds = 1\nA->B.sync.group.offsets.enabled = true\nsync.group.offsets.interval.seconds = 1\n\
         sync.topic.acls.interval.seconds = 1\nsync.topic.configs.interval.seconds = 1\nB.offset.storage.partitions = 2\n\
         B.offset.flush.interval.ms = 1000\nerrors.retry.delay.max.ms = 1000\n",
        way("A", &pair.a, USERS[0]),
        way("B", &pair.b, USERS[1])
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    A,
    B,
}

/// What a missing right does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It is named, and everything else goes on.
    Named,
    /// It is named, and the flow ends.
    Ends,
    /// kmirror does without it and has nothing to say in this test.
    Silent,
}

/// A right: where, on what, which; what makes kmirror need it; and what it says.
struct Row(Side, &'static str, &'static str, fn(&mut World<'_>) -> Result<()>, Effect, &'static str);

const RUNNING: [Row; 22] = [
    Row(Side::A, "TOPIC mm2-kmirror.", "READ", nothing, Effect::Silent, ""),
    Row(Side::A, "GROUP kmirror-", "DESCRIBE", nothing, Effect::Silent, ""),
    Row(
        Side::A,
        "CLUSTER kafka-cluster",
        "DESCRIBE",
        nothing,
        Effect::Named,
        "DESCRIBE on the cluster is needed",
    ),
    Row(Side::A, "GROUP readers", "DESCRIBE", nothing, Effect::Named, "DESCRIBE) on the group is needed"),
    Row(
        Side::A,
        "TOPIC orders",
        "DESCRIBE_CONFIGS",
        nothing,
        Effect::Named,
        "DESCRIBE_CONFIGS on the topic is needed",
    ),
    Row(
        Side::A,
        "TOPIC pay.",
        "DESCRIBE_CONFIGS",
        nothing,
        Effect::Named,
        "DESCRIBE_CONFIGS on the topic is needed",
    ),
    Row(
        Side::A,
        "TOPIC heartbeats",
        "DESCRIBE_CONFIGS",
        nothing,
        Effect::Named,
        "DESCRIBE_CONFIGS on the topic is needed",
    ),
    Row(Side::A, "TOPIC orders", "READ", orders, Effect::Named, "READ on the topic is needed"),
    Row(Side::A, "TOPIC pay.", "READ", pay, Effect::Named, "READ on the topic is needed"),
    Row(Side::A, "TOPIC heartbeats", "READ", nothing, Effect::Named, "READ on the topic is needed"),
    Row(
        Side::A,
        "TOPIC mm2-offset-syncs.B.internal",
        "WRITE",
        orders,
        Effect::Named,
        "WRITE on the topic is needed",
    ),
    Row(Side::B, "CLUSTER kafka-cluster", "ALTER", nothing, Effect::Named, "on the cluster is needed"),
    Row(Side::B, "GROUP A-mm2", "DESCRIBE", nothing, Effect::Named, "DESCRIBE) on the group is needed"),
    Row(
        Side::B,
        "GROUP readers",
        "READ",
        nothing,
        Effect::Named,
        "READ (to look at it, DESCRIBE) on the group is needed",
    ),
    Row(
        Side::B,
        "TOPIC A.checkpoints.internal",
        "WRITE",
        commit,
        Effect::Named,
        "WRITE on the topic is needed",
    ),
    Row(Side::B, "TOPIC heartbeats", "WRITE", nothing, Effect::Named, "WRITE on the topic is needed"),
    Row(Side::B, "TOPIC A.orders", "WRITE", orders, Effect::Named, "WRITE on the topic is needed"),
    Row(Side::B, "TOPIC A.orders", "ALTER", grow, Effect::Named, "ALTER on the topic is needed"),
    Row(
        Side::B,
        "TOPIC A.orders",
        "ALTER_CONFIGS",
        configure,
        Effect::Named,
        "CONFIGS on the topic is needed",
    ),
    Row(
        Side::B,
        "TOPIC mm2-offsets.A.internal",
        "WRITE",
        orders,
        Effect::Named,
        "WRITE on the topic is needed",
    ),
    Row(
        Side::B,
        "TOPIC mm2-kmirror.A.internal",
        "WRITE",
        orders,
        Effect::Named,
        "WRITE on the topic is needed",
    ),
    // Needed to look whether records that were sent before a crash have arrived.
    Row(Side::B, "TOPIC A.orders", "READ", orders, Effect::Silent, ""),
];

const AT_START: [Row; 7] = [
    Row(
        Side::A,
        "TOPIC mm2-offset-syncs.B.internal",
        "READ",
        nothing,
        Effect::Named,
        "READ on the topic is needed",
    ),
    Row(
        Side::B,
        "TOPIC A.checkpoints.internal",
        "READ",
        nothing,
        Effect::Named,
        "READ on the topic is needed",
    ),
    Row(
        Side::B,
        "TOPIC mm2-configs.A.internal",
        "READ",
        nothing,
        Effect::Named,
        "READ on the topic is needed",
    ),
    Row(
        Side::B,
        "TRANSACTIONAL_ID A-mm2-",
        "WRITE",
        nothing,
        Effect::Named,
        "on the transactional id is needed",
    ),
    Row(
        Side::B,
        "GROUP kmirror-A->B",
        "READ",
        nothing,
        Effect::Ends,
        "READ (to look at it, DESCRIBE) on the group is needed",
    ),
    Row(
        Side::B,
        "TOPIC mm2-offsets.A.internal",
        "READ",
        nothing,
        Effect::Ends,
        "READ on the topic is needed",
    ),
    Row(
        Side::B,
        "TOPIC mm2-kmirror.A.internal",
        "READ",
        nothing,
        Effect::Ends,
        "READ on the topic is needed",
    ),
];

/// These are of copies, as those of `A.orders` are.
const LIKE_OTHERS: [(&str, &str); 8] = [
    ("TOPIC A.pay.", "WRITE"),
    ("TOPIC A.pay.", "READ"),
    ("TOPIC A.pay.", "ALTER"),
    ("TOPIC A.pay.", "ALTER_CONFIGS"),
    ("TOPIC A.heartbeats", "READ"),
    ("TOPIC A.heartbeats", "WRITE"),
    ("TOPIC A.heartbeats", "ALTER"),
    ("TOPIC A.heartbeats", "ALTER_CONFIGS"),
];

fn nothing(_: &mut World<'_>) -> Result<()> {
    Ok(())
}

fn orders(world: &mut World<'_>) -> Result<()> {
    world.produce("orders")
}

fn pay(world: &mut World<'_>) -> Result<()> {
    world.produce("pay.eu")
}

fn commit(world: &mut World<'_>) -> Result<()> {
    let offset = world.sent.get("orders").copied().unwrap_or_default();
    world.pair.source().commit_group_offset("readers", "orders", 0, offset)
}

fn grow(world: &mut World<'_>) -> Result<()> {
    world.pair.source().create_partitions("orders", 2)
}

fn configure(world: &mut World<'_>) -> Result<()> {
    world.pair.source().alter_topic_configs("orders", &[("retention.ms", Some("7654321"))])
}

/// Both clusters and what the test has done to them.
struct World<'a> {
    pair: &'a Pair,
    text: String,
    sent: BTreeMap<&'static str, i64>,
}

impl World<'_> {
    fn admin(&self, side: Side) -> Admin<'_> {
        match side {
            Side::A => self.pair.source(),
            Side::B => self.pair.target(),
        }
    }

    fn produce(&mut self, topic: &'static str) -> Result<()> {
        *self.sent.entry(topic).or_default() += 1;
        let record = TestRecord::new("k", format!("{topic} {}", self.sent[topic]));
        self.pair.java().produce(&self.pair.a.bootstrap(), topic, &[record]).map(drop)
    }

    /// Lines of [`Admin::acls`] that are kmirror's.
    fn rights(&self, side: Side) -> Result<Vec<String>> {
        let user = format!(" User:{} ", USERS[side as usize].0);
        Ok(self.admin(side).acls()?.into_iter().filter(|acl| acl.contains(&user)).collect())
    }

    fn right(&self, row: &Row) -> Result<String> {
        let wanted = format!(" {} User:{} * {} ALLOW", row.1, USERS[row.0 as usize].0, row.2);
        let found = self.rights(row.0)?.into_iter().find(|acl| acl.ends_with(&wanted));
        Ok(found.unwrap_or_else(|| panic!("no line was printed for {wanted}")))
    }

    /// Waits until all that was sent of a topic has arrived.
    fn arrives(&self, mirror: &mut Kmirror, topic: &str) -> Result<()> {
        let wanted = self.sent.get(topic).copied().unwrap_or_default();
        wait_for(&format!("{wanted} records of {topic}"), TIMEOUT, || {
            mirror.expect_running()?;
            let found = self.found(topic)?;
            Ok(if found == wanted {
                Look::Done(())
            } else {
                Look::Pending(format!("{found}\n{}\n{}", mirror.output(), mirror.get("/status")?.1))
            })
        })
    }

    fn found(&self, topic: &str) -> Result<i64> {
        let remote = format!("A.{topic}");
        if self.pair.target().describe_topic(&remote)?.is_none() {
            return Ok(0);
        }
        let offsets = self.pair.target().offsets(&remote, Isolation::ReadUncommitted)?;
        Ok(offsets.values().map(|of| of.latest).sum())
    }

    /// Waits until nothing is said to be missing, and all has arrived.
    fn heals(&self, mirror: &mut Kmirror) -> Result<()> {
        self.arrives(mirror, "orders")?;
        self.arrives(mirror, "pay.eu")?;
        wait_for("nothing is missing", TIMEOUT, || {
            let status = mirror.get("/status")?.1;
            let missing = status.split(",\"").find(|piece| piece.contains("is needed")).map(str::to_owned);
            let ready = mirror.get("/readyz")?.0;
            Ok(if missing.is_none() && ready == 200 {
                Look::Done(())
            } else {
                Look::Pending(format!("{ready} {missing:?}\n{}", mirror.output()))
            })
        })
    }

    fn start(&self) -> Result<Kmirror> {
        Kmirror::start_with_admin(&["run"], &self.text)
    }
}

/// Waits until a line of the log behind `from`, or `/status`, names what is missing.
fn named(mirror: &mut Kmirror, from: usize, row: &Row) -> Result<()> {
    let name = row.1.split(' ').nth(1).filter(|_| !row.1.starts_with("CLUSTER")).unwrap_or("the cluster");
    wait_for(&format!("the right {:?} {} {}", row.0, row.1, row.2), TIMEOUT, || {
        if row.4 != Effect::Ends {
            mirror.expect_running()?;
        }
        let output = mirror.output();
        let mut lines: Vec<String> = output[from..].lines().map(str::to_owned).collect();
        if row.4 == Effect::Named {
            lines.extend(mirror.get("/status")?.1.split("},").map(str::to_owned));
        }
        let is_said = lines.iter().any(|line| line.contains(name) && line.contains(row.5));
        Ok(if is_said { Look::Done(()) } else { Look::Pending(lines.join("\n")) })
    })
}

#[test]
fn the_rights_that_are_printed_suffice_and_each_missing_one_is_named() -> Result<()> {
    let Some(pair) = pair()? else { return Ok(()) };
    let mut world = World { pair, text: file(pair), sent: BTreeMap::new() };
    prepare(&mut world)?;
    nothing_is_created_without_create(&mut world)?;
    let mut mirror = world.start()?;
    everything_works(&world, &mut mirror)?;
    for row in &RUNNING {
        missed_while_running(&mut world, &mut mirror, row)?;
    }
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    for row in &AT_START {
        missed_at_start(&mut world, row)?;
    }
    each_right_had_its_turn(&world)
}

fn prepare(world: &mut World<'_>) -> Result<()> {
    let pair = world.pair;
    for topic in ["orders", "pay.eu", "secret", "heartbeats"] {
        pair.source().create_topic(topic, 1, &[])?;
        world.produce(topic)?;
    }
    pair.source().commit_group_offset("readers", "orders", 0, 1)?;
    pair.source().create_topic_acl("literal", "orders", "User:app", "READ", "ALLOW")?;
    // What a MirrorMaker with exactly-once support has left.
    let configs = "mm2-configs.A.internal";
    pair.target().create_topic(configs, 1, &[("cleanup.policy", "compact")])?;
    let tasks = TestRecord::new("tasks-fencing-MirrorSourceConnector", r#"{"task-count":1}"#);
    pair.java().produce(&pair.b.bootstrap(), configs, &[tasks])?;
    let text = world.text.as_str();
    std::thread::scope(|scope| {
        let give = move |alias, cluster| {
            let lines = printed(text, alias)?;
            assert!(lines.len() >= 5, "{lines:?}");
            run_lines(cluster, &lines, ("", ""))
        };
        let here = scope.spawn(move || give("A", &pair.a));
        give("B", &pair.b)?;
        here.join().expect("no panic")
    })
}

fn everything_works(world: &World<'_>, mirror: &mut Kmirror) -> Result<()> {
    world.heals(mirror)?;
    let target = world.pair.target();
    wait_for("what follows the source", TIMEOUT, || {
        mirror.expect_running()?;
        let committed = target.group_offsets("readers")?;
        let acls = target.acls()?;
        let is_followed = acls.iter().any(|acl| acl.contains("TOPIC A.orders User:app * READ ALLOW"));
        let is_done = committed.get(&("A.orders".to_owned(), 0)) == Some(&1) && is_followed;
        Ok(if is_done {
            Look::Done(())
        } else {
            Look::Pending(format!("{committed:?} {acls:?}\n{}", mirror.output()))
        })
    })?;
    for topic in ["A.heartbeats", "A.checkpoints.internal", "heartbeats"] {
        assert!(target.describe_topic(topic)?.is_some(), "{topic}");
    }
    assert!(target.describe_topic("A.secret")?.is_none());
    let output = mirror.output();
    assert!(!output.contains("AUTHORIZATION_FAILED") && !output.contains("is needed"), "{output}");
    Ok(())
}

/// The topics that hold a flow's positions it cannot do without; whatever else it may not create it names, and goes on when
/// it may.
fn nothing_is_created_without_create(world: &mut World<'_>) -> Result<()> {
    let mut taken = Vec::new();
    for side in [Side::A, Side::B] {
        for acl in world.rights(side)?.into_iter().filter(|acl| acl.ends_with(" CREATE ALLOW")) {
            world.admin(side).take_acl(&acl)?;
            taken.push((side, acl));
        }
    }
    assert_eq!(taken.len(), 8, "{taken:?}");
    let needed = "CREATE on the topic, or on the cluster, is needed";
    for topic in ["mm2-kmirror.A.internal", "mm2-offsets.A.internal"] {
        let mut mirror = Kmirror::start(&["run"], &world.text)?;
        assert_eq!(mirror.wait(TIMEOUT)?, 3, "{}", mirror.output());
        let output = mirror.output();
        assert!(output.lines().any(|line| line.contains(topic) && line.contains(needed)), "{output}");
        let at = taken.iter().position(|(_, acl)| acl.contains(topic)).expect("it was taken");
        world.admin(Side::B).give_acl(&taken.remove(at).1)?;
    }
    let mut mirror = world.start()?;
    let is_named = |mirror: &mut Kmirror, topic: &str| {
        wait_for(topic, TIMEOUT, || {
            mirror.expect_running()?;
            let output = mirror.output();
            let is_said = output.lines().any(|line| line.contains(topic) && line.contains(needed));
            Ok(if is_said { Look::Done(()) } else { Look::Pending(output) })
        })
    };
    for topic in ["A.orders", "A.pay.eu", "A.heartbeats", "A.checkpoints.internal", "heartbeats"] {
        is_named(&mut mirror, topic)?;
    }
    assert_eq!(world.found("orders")?, 0);
    // Offset syncs are written once something has been copied.
    let (syncs, others): (Vec<_>, Vec<_>) = taken.into_iter().partition(|(side, _)| *side == Side::A);
    for (side, acl) in others.iter().chain(&syncs) {
        if *side == Side::A {
            is_named(&mut mirror, "mm2-offset-syncs.B.internal")?;
        }
        world.admin(*side).give_acl(acl)?;
    }
    world.heals(&mut mirror)?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    Ok(())
}

fn missed_while_running(world: &mut World<'_>, mirror: &mut Kmirror, row: &Row) -> Result<()> {
    let began = std::time::Instant::now();
    let (acl, from) = (world.right(row)?, mirror.output().len());
    world.admin(row.0).take_acl(&acl)?;
    (row.3)(world)?;
    if row.4 == Effect::Named {
        named(mirror, from, row)?;
    }
    let told = began.elapsed();
    goes_on(world, mirror, row)?;
    world.admin(row.0).give_acl(&acl)?;
    world.heals(mirror)?;
    println!("{:?} {} {}: told after {told:?}, healed after {:?}", row.0, row.1, row.2, began.elapsed());
    Ok(())
}

/// Topics that need another right are copied all the same.
fn goes_on(world: &mut World<'_>, mirror: &mut Kmirror, row: &Row) -> Result<()> {
    let stops = |topic: &str| row.1.contains(topic) && matches!(row.2, "READ" | "WRITE");
    for (topic, name) in [("orders", "orders"), ("pay.eu", "pay.")] {
        if !stops(name) || row.4 == Effect::Silent {
            world.produce(topic)?;
            world.arrives(mirror, topic)?;
        }
    }
    Ok(())
}

fn missed_at_start(world: &mut World<'_>, row: &Row) -> Result<()> {
    let began = std::time::Instant::now();
    let acl = world.right(row)?;
    world.admin(row.0).take_acl(&acl)?;
    let mut mirror = world.start()?;
    (row.3)(world)?;
    named(&mut mirror, 0, row)?;
    if row.4 == Effect::Ends {
        // Its only flow cannot go on.
        assert_eq!(mirror.wait(TIMEOUT)?, 3, "{}", mirror.output());
        world.admin(row.0).give_acl(&acl)?;
        mirror = world.start()?;
        world.produce("orders")?;
    } else {
        goes_on(world, &mut mirror, row)?;
        world.admin(row.0).give_acl(&acl)?;
    }
    world.arrives(&mut mirror, "orders")?;
    world.arrives(&mut mirror, "pay.eu")?;
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    println!("{:?} {} {}: {:?}", row.0, row.1, row.2, began.elapsed());
    Ok(())
}

/// A right that is printed and that no row is about shows up here.
fn each_right_had_its_turn(world: &World<'_>) -> Result<()> {
    for side in [Side::A, Side::B] {
        for acl in world.rights(side)? {
            let is_of = |resource: &str, operation: &str| {
                acl.contains(&format!(" {resource} User:")) && acl.ends_with(&format!(" {operation} ALLOW"))
            };
            let has_row = RUNNING.iter().chain(&AT_START).any(|row| row.0 == side && is_of(row.1, row.2));
            let is_like = LIKE_OTHERS.iter().any(|(resource, operation)| is_of(resource, operation));
            assert!(has_row || is_like || acl.ends_with(" CREATE ALLOW"), "{side:?} {acl}");
        }
    }
    Ok(())
}
