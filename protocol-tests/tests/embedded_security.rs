//! SASL between the replicator and embedded clusters in the simulated network: each mechanism, what is refused and how it is
//! asked for again, and sessions that end while records flow.

use std::time::Duration;

use kmirror::broker::log::Isolation;
use kmirror::broker::{EmbeddedCluster, Sasl, SaslMechanism, Settings};
use kmirror::mirror::Replicator;
use kmirror::mirror::status::{FlowState, ReplicatorStatus};
use kmirror::observe::json;
use kmirror::record::Codec;
use kmirror::seam::{Seam, Simulation};
use protocol_tests::inside::{self, numbered, replicator};

const USER: &str = "kmirror";
const PASSWORD: &str = "s3cret";

fn sasl(mechanisms: &[SaslMechanism]) -> Sasl {
    let users = [(USER.to_owned(), PASSWORD.to_owned())].into();
    Sasl { mechanisms: mechanisms.to_vec(), users, session_ms_max: None }
}

async fn cluster(seam: &Seam, seed: u64, host: &str, sasl: Option<Sasl>) -> EmbeddedCluster {
    let settings = Settings { brokers: 3, seed, address: host.parse().unwrap(), sasl, ..Settings::default() };
    EmbeddedCluster::start(seam.clone(), settings).await.unwrap()
}

/// The lines that lead into a cluster.
fn way(alias: &str, cluster: &EmbeddedCluster, mechanism: &str, password: &str) -> String {
    let module = if mechanism == "PLAIN" { "plain.PlainLoginModule" } else { "scram.ScramLoginModule" };
    format!(
        "{alias}.bootstrap.servers = {}\n{alias}.security.protocol = SASL_PLAINTEXT\n\
         {alias}.sasl.mechanism = {mechanism}\n\
         {alias}.sasl.jaas.config = org.apache.kafka.common.security.{module} required \
         username=\"{USER}\" password=\"{password}\";\n",
        cluster.bootstrap()
    )
}

fn flow(aliases: &str, flows: &[&str]) -> String {
    let mut text = format!(
        "clusters = {aliases}\nemit.heartbeats.enabled = false\nrefresh.topics.interval.seconds = 1\n"
    );
    for flow in flows {
        text.push_str(&format!("{flow}.enabled = true\n{flow}.topics = t\n"));
    }
    text
}

fn append(cluster: &EmbeddedCluster, first: u32, count: u32) {
    cluster.append("t", 0, &numbered(first, count, Codec::Lz4)).unwrap();
}

fn read(cluster: &EmbeddedCluster, topic: &str) -> Vec<i64> {
    let records = cluster.read_all(topic, 0, Isolation::ReadUncommitted).unwrap();
    records.iter().map(|logged| logged.record.timestamp).collect()
}

async fn until(replicator: &Replicator, what: &str, condition: impl Fn(&ReplicatorStatus) -> bool) {
    inside::until(replicator, what, condition, ReplicatorStatus::clone).await;
}

fn position(status: &ReplicatorStatus, flow: usize) -> Option<i64> {
    status.flows[flow].partitions.get(&("t".into(), 0)).and_then(|partition| partition.position)
}

#[tokio::test(start_paused = true)]
async fn records_go_through_each_mechanism() {
    for (nth, mechanism) in SaslMechanism::ALL.into_iter().enumerate() {
        let seam = Seam::Simulated(Simulation::new(nth as u64));
        let other = SaslMechanism::ALL[(nth + 1) % SaslMechanism::ALL.len()];
        let a = cluster(&seam, 1, "10.0.0.1", Some(sasl(&[mechanism]))).await;
        let b = cluster(&seam, 2, "10.0.0.2", Some(sasl(&SaslMechanism::ALL))).await;
        a.create_topic("t", 1, 3, &[]).unwrap();
        append(&a, 0, 100);
        let file = format!(
            "{}{}{}",
            flow("A, B", &["A->B"]),
            way("A", &a, mechanism.name(), PASSWORD),
            way("B", &b, other.name(), PASSWORD)
        );
        let replicator = replicator(&seam, &file);
        until(&replicator, mechanism.name(), |status| position(status, 0) == Some(100)).await;
        assert_eq!(json::unready(&replicator.status().await), "");
        replicator.stop().await;
        assert_eq!(read(&b, "A.t"), (0..100).collect::<Vec<i64>>());
        for cluster in [&a, &b] {
            let logins = cluster.logins();
            assert!(logins.accepted > 0 && logins.refused == 0, "{logins:?}");
        }
    }
}

/// A way in that is closed.
struct Closed {
    mechanism: &'static str,
    password: &'static str,
    says: &'static str,
}

/// Whoever is refused asks ever more seldom, says why, and is not ready; the other flow goes on. When the password is put
/// right on the broker, the flow begins by itself.
#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_not_repeated_in_haste_and_stops_no_other_flow() {
    for closed in [
        Closed {
            mechanism: "PLAIN",
            password: "hunter2",
            says: "refuses the user \"kmirror\" with PLAIN: Authentication failed: Invalid username or password",
        },
        Closed {
            mechanism: "SCRAM-SHA-512",
            password: "hunter2",
            says: "refuses the user \"kmirror\" with SCRAM-SHA-512",
        },
        Closed {
            mechanism: "SCRAM-SHA-256",
            password: PASSWORD,
            says: "does not take SCRAM-SHA-256 but PLAIN, SCRAM-SHA-512",
        },
    ] {
        refused(&closed).await;
    }
}

async fn refused(closed: &Closed) {
    let seam = Seam::Simulated(Simulation::new(9));
    let without_256 = sasl(&[SaslMechanism::Plain, SaslMechanism::ScramSha512]);
    let a = cluster(&seam, 1, "10.0.0.1", Some(without_256)).await;
    let b = cluster(&seam, 2, "10.0.0.2", None).await;
    let c = cluster(&seam, 3, "10.0.0.3", Some(sasl(&[SaslMechanism::Plain]))).await;
    for cluster in [&a, &c] {
        cluster.create_topic("t", 1, 3, &[]).unwrap();
        append(cluster, 0, 10);
    }
    let file = format!(
        "{}{}B.bootstrap.servers = {}\n{}",
        flow("A, B, C", &["A->B", "C->B"]),
        way("A", &a, closed.mechanism, closed.password),
        b.bootstrap(),
        way("C", &c, "PLAIN", PASSWORD)
    );
    let replicator = replicator(&seam, &file);
    until(&replicator, "the other flow", |status| position(status, 1) == Some(10)).await;
    until(&replicator, closed.says, |status| json::unready(status).contains(closed.says)).await;
    let begun = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(300)).await;
    append(&c, 10, 10);
    until(&replicator, "the other flow goes on", |status| position(status, 1) == Some(20)).await;
    let status = replicator.status().await;
    assert_eq!((&status.flows[0].state, &status.flows[1].state), (&FlowState::Starting, &FlowState::Running));
    let text = json::status(&status).to_string();
    assert!(!text.contains("hunter2") && !text.contains(PASSWORD), "{text}");
    // Three brokers, each asked after 1, 2, 4, 8, 16, then every 30 seconds.
    let refused = a.logins().refused;
    assert!(refused <= 3 * (6 + begun.elapsed().as_secs() / 24), "{refused} in {:?}", begun.elapsed());
    if closed.password != PASSWORD {
        assert!(refused > 3, "{refused}");
        a.set_password(USER, closed.password);
        until(&replicator, "the right password", |status| position(status, 0) == Some(10)).await;
        assert_eq!(json::unready(&replicator.status().await), "");
    }
    replicator.stop().await;
}

/// Sessions of two seconds on both sides under steady traffic: every connection authenticates again in time, so that none is
/// closed, and each record arrives once.
#[tokio::test(start_paused = true)]
async fn sessions_are_renewed_under_traffic_and_nothing_is_lost() {
    let seam = Seam::Simulated(Simulation::new(11));
    let short = || Some(Sasl { session_ms_max: Some(2_000), ..sasl(&SaslMechanism::ALL) });
    let a = cluster(&seam, 1, "10.0.0.1", short()).await;
    let b = cluster(&seam, 2, "10.0.0.2", short()).await;
    a.create_topic("t", 1, 3, &[]).unwrap();
    let file = format!(
        "{}{}{}",
        flow("A, B", &["A->B"]),
        way("A", &a, "SCRAM-SHA-256", PASSWORD),
        way("B", &b, "PLAIN", PASSWORD)
    );
    let replicator = replicator(&seam, &file);
    for nth in 0..600 {
        append(&a, nth * 5, 5);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until(&replicator, "all copied", |status| position(status, 0) == Some(3_000)).await;
    let status = replicator.status().await;
    assert!(
        status.flows[0].brokers.values().all(|broker| broker.disconnects == 0),
        "{:?}",
        status.flows[0].brokers
    );
    replicator.stop().await;
    assert_eq!(read(&b, "A.t"), (0..3_000).collect::<Vec<i64>>());
    for cluster in [&a, &b] {
        let logins = cluster.logins();
        assert!(logins.renewed >= 60 && logins.refused == 0, "{logins:?}");
    }
    assert!(b.violations().is_empty(), "{:?}", b.violations());
}
