//! A real KRaft cluster of one or three nodes on 127.0.0.1. The first node is the controller too, so that any other can be
//! killed or frozen while leaders move; it must stay up itself.
//!
//! Settings favour a quick start, a small heap and short intervals. Ports are chosen below the ephemeral range, so
//! that no outgoing connection takes one between the choice and the bind.

use super::LOGGING;
use super::jars::{KafkaJars, KafkaVersion, create_folder};
use super::security::{self, Certificates, Listener};
use crate::process::{ScratchFolder, Signal, Supervised};
use crate::{HarnessError, Result};
use std::fmt::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

const START_TIMEOUT: Duration = Duration::from_secs(90);
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// What a cluster is to be.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    name: String,
    version: KafkaVersion,
    nodes: u16,
    settings: Vec<(String, String)>,
    jvm_options: Vec<String>,
    certificates: Option<Certificates>,
}

impl ClusterSpec {
    /// One node of the current release. The name is used in messages and folder names.
    pub fn new(name: &str) -> ClusterSpec {
        ClusterSpec {
            name: name.to_owned(),
            version: KafkaVersion::CURRENT,
            nodes: 1,
            settings: Vec::new(),
            jvm_options: Vec::new(),
            certificates: None,
        }
    }

    /// Chooses the release.
    pub fn version(mut self, version: KafkaVersion) -> ClusterSpec {
        self.version = version;
        self
    }

    /// Chooses the number of nodes: 1 or 3.
    pub fn nodes(mut self, nodes: u16) -> ClusterSpec {
        self.nodes = nodes;
        self
    }

    /// Sets a broker setting over the harness's own.
    pub fn set(mut self, key: &str, value: &str) -> ClusterSpec {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Opens all other ways in beside the plaintext one.
    pub fn secured(mut self, certificates: &Certificates) -> ClusterSpec {
        self.certificates = Some(certificates.clone());
        self
    }

    /// Chooses heap, collector and compiler of the nodes: benches want other ones than tests.
    pub fn jvm_options(mut self, options: &[&str]) -> ClusterSpec {
        self.jvm_options = options.iter().map(|&option| option.to_owned()).collect();
        self
    }

    fn jvm(&self) -> Vec<&str> {
        if !self.jvm_options.is_empty() {
            return self.jvm_options.iter().map(String::as_str).collect();
        }
        let heap = if self.nodes == 1 { ["-Xms256m", "-Xmx512m"] } else { ["-Xms192m", "-Xmx384m"] };
        [&heap[..], &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]].concat()
    }
}

/// A running cluster. Dropping it kills the nodes and removes their folders.
pub struct Kafka {
    spec: ClusterSpec,
    jars: KafkaJars,
    nodes: Vec<Node>,
    /// Dropped last: the nodes write into it.
    folder: ScratchFolder,
}

struct Node {
    id: u16,
    /// Clients; the next one is the controller's.
    port: u16,
    folder: PathBuf,
    process: Mutex<Option<Supervised>>,
}

impl Kafka {
    /// Starts a cluster and returns when every node serves clients.
    pub fn start(spec: ClusterSpec) -> Result<Kafka> {
        let jars = KafkaJars::get(spec.version)?;
        let folder = ScratchFolder::new(&spec.name)?;
        let nodes = (1..=spec.nodes)
            .map(|id| {
                let folder = folder.path().join(format!("node{id}"));
                let ports = if spec.certificates.is_some() { 2 + Listener::ALL.len() as u16 } else { 2 };
                Ok(Node { id, port: free_ports(ports)?, folder, process: Mutex::new(None) })
            })
            .collect::<Result<Vec<_>>>()?;
        let kafka = Kafka { spec, jars, nodes, folder };
        let cluster_id = random_uuid();
        std::thread::scope(|scope| {
            let formats: Vec<_> =
                kafka.nodes.iter().map(|node| scope.spawn(|| kafka.format(node, &cluster_id))).collect();
            formats.into_iter().try_for_each(|handle| joined(handle.join()))
        })?;
        for node in &kafka.nodes {
            kafka.spawn(node)?;
        }
        kafka.nodes.iter().try_for_each(|node| kafka.wait_started(node))?;
        Ok(kafka)
    }

    /// `host:port` of every node, as `bootstrap.servers` wants it.
    pub fn bootstrap(&self) -> String {
        let all: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        all.join(",")
    }

    /// The same through another listener of a secured cluster.
    pub fn bootstrap_of(&self, listener: Listener) -> String {
        let address = |node: &Node| format!("127.0.0.1:{}", node.port + listener.offset());
        self.nodes.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// The name given by the test.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Node ids, from 1.
    pub fn node_ids(&self) -> impl Iterator<Item = i32> + '_ {
        self.nodes.iter().map(|node| i32::from(node.id))
    }

    /// Process id of a node's JVM, for measurements; `None` while it is down.
    pub fn pid(&self, node: i32) -> Result<Option<u32>> {
        Ok(lock(&self.node(node)?.process).as_ref().map(Supervised::pid))
    }

    /// Stops a node in order.
    pub fn stop(&self, node: i32) -> Result<()> {
        self.end(node, Signal::Terminate)
    }

    /// Kills a node at once, as in a crash.
    pub fn kill(&self, node: i32) -> Result<()> {
        self.end(node, Signal::Kill)
    }

    /// Freezes or thaws a node.
    pub fn signal(&self, node: i32, signal: Signal) -> Result<()> {
        lock(&self.node(node)?.process).as_mut().map_or(Ok(()), |process| process.signal(signal))
    }

    /// Starts a stopped node again, with its data, and waits until it serves clients.
    pub fn restart(&self, node: i32) -> Result<()> {
        let node = self.node(node)?;
        self.spawn(node)?;
        self.wait_started(node)
    }

    /// The folder in which a node keeps the log of a partition.
    pub fn partition_folder(&self, node: i32, topic: &str, partition: i32) -> Result<PathBuf> {
        Ok(self.node(node)?.folder.join("data").join(format!("{topic}-{partition}")))
    }

    /// What a node has logged since it was started last.
    pub fn server_log(&self, node: i32) -> Result<String> {
        let path = self.node(node)?.folder.join("server.log");
        std::fs::read_to_string(&path).map_err(|error| HarnessError::path("read", path, error))
    }

    /// Where everything of this cluster is.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn node(&self, id: i32) -> Result<&Node> {
        self.nodes.iter().find(|node| i32::from(node.id) == id).ok_or_else(|| HarnessError::Missing {
            what: format!("node {id} of {}", self.spec.name),
            detail: format!("it has {} nodes", self.nodes.len()),
        })
    }

    fn title(&self, node: &Node) -> String {
        format!("node {} of {} ({})", node.id, self.spec.name, self.spec.version.name())
    }

    fn format(&self, node: &Node, cluster_id: &str) -> Result<()> {
        create_folder(&node.folder)?;
        let (properties, logging) =
            (node.folder.join("server.properties"), node.folder.join("log4j2.properties"));
        for (path, text) in [(&properties, self.server_properties(node)), (&logging, LOGGING.to_owned())] {
            std::fs::write(path, text).map_err(|error| HarnessError::path("write", path, error))?;
        }
        let options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        let mut program = self
            .jars
            .java(&options, None, "kafka.tools.StorageTool")
            .args(["format", "--cluster-id", cluster_id, "--config"])
            .arg(&properties);
        if self.nodes.len() == 1 {
            program = program.arg("--standalone");
        }
        if self.spec.certificates.is_some() {
            program = program.args(security::scram_arguments());
        }
        program.run(&format!("formatting {}", self.title(node))).map(drop)
    }

    fn spawn(&self, node: &Node) -> Result<()> {
        let mut process = lock(&node.process);
        if process.is_some() {
            return Ok(());
        }
        let log = node.folder.join("server.log");
        if log.exists() {
            // Readiness is read from the log, so every start has its own.
            super::jars::rename(&log, &node.folder.join(format!("server.log.{}", random_uuid())))?;
        }
        let logging =
            format!("-Dlog4j2.configurationFile={}", node.folder.join("log4j2.properties").display());
        let urls = self.spec.certificates.as_ref().map(security::jvm_option);
        let mut options = self.spec.jvm();
        options.push(&logging);
        options.extend(urls.as_deref());
        let program =
            self.jars.java(&options, None, "kafka.Kafka").arg(node.folder.join("server.properties"));
        *process = Some(Supervised::start(&self.title(node), program, &log)?);
        Ok(())
    }

    fn wait_started(&self, node: &Node) -> Result<()> {
        let mut process = lock(&node.process);
        let Some(process) = process.as_mut() else { return Ok(()) };
        let port = node.port;
        process.wait_ready(START_TIMEOUT, |log| {
            log.contains("Kafka Server started") && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        })
    }

    fn end(&self, node: i32, signal: Signal) -> Result<()> {
        let mut process = lock(&self.node(node)?.process);
        if let Some(mut running) = process.take() {
            running.signal(signal)?;
            running.wait(STOP_TIMEOUT)?;
        }
        Ok(())
    }

    fn server_properties(&self, node: &Node) -> String {
        let replicas = self.nodes.len();
        let in_sync = if replicas > 1 { replicas - 1 } else { 1 };
        let (client, controller) = (node.port, self.nodes[0].port + 1);
        let is_controller = node.id == self.nodes[0].id;
        let (roles, mut listeners) = ("broker", format!("CLIENT://127.0.0.1:{client}"));
        let roles = if is_controller { "broker,controller" } else { roles };
        let advertised = listeners.clone();
        if is_controller {
            let _ = write!(listeners, ",CONTROLLER://127.0.0.1:{controller}");
        }
        // One node makes a dynamic quorum (format --standalone), several have a static voter.
        let quorum = if replicas == 1 {
            format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}")
        } else {
            format!("controller.quorum.voters={}@127.0.0.1:{controller}", self.nodes[0].id)
        };
        let mut text = format!(
            "process.roles={roles}\nnode.id={id}\nbroker.rack=rack{id}\nlisteners={listeners}\n\
             advertised.listeners={advertised}\nlog.dirs={data}\n{quorum}\n\
             default.replication.factor={replicas}\nmin.insync.replicas={in_sync}\n\
             offsets.topic.replication.factor={replicas}\n\
             transaction.state.log.replication.factor={replicas}\n\
             transaction.state.log.min.isr={in_sync}\n\
             share.coordinator.state.topic.replication.factor={replicas}\n\
             share.coordinator.state.topic.min.isr={in_sync}\n",
            id = node.id,
            data = node.folder.join("data").display(),
        );
        text.push_str(SMALL_AND_QUICK);
        if let Some(certificates) = &self.spec.certificates {
            text.push_str(&security::server_properties(certificates, &listeners, &advertised, client));
        }
        for (key, value) in &self.spec.settings {
            let _ = writeln!(text, "{key}={value}");
        }
        text
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        for node in &self.nodes {
            lock(&node.process).take();
        }
    }
}

const SMALL_AND_QUICK: &str = "\
listener.security.protocol.map=CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
auto.create.topics.enable=false
num.partitions=1
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=2
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
background.threads=2
num.recovery.threads.per.data.dir=1
log.initial.task.delay.ms=500
# Tests write records of the past; a topic that is to expire sets retention.ms itself.
log.retention.ms=-1
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=300
log.cleaner.threads=1
# The default of 128 MiB is taken from the heap at start; a small heap dies of it.
log.cleaner.dedupe.buffer.size=2097152
log.segment.delete.delay.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
";

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn joined(result: std::thread::Result<Result<()>>) -> Result<()> {
    result.unwrap_or_else(|_| {
        Err(HarnessError::Process { what: "a thread of the harness panicked".to_owned(), log: String::new() })
    })
}

/// The first of `count` neighbouring free ports, none of them given out before by this process.
pub(crate) fn free_ports(count: u16) -> Result<u16> {
    const FIRST: u16 = 20_000;
    const SPAN: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other test processes begin elsewhere.
    let base = (std::process::id() % u32::from(SPAN)) as u16;
    for _ in 0..SPAN / count {
        let step = NEXT.fetch_add(count, Ordering::Relaxed);
        let port = FIRST + base.wrapping_add(step) % (SPAN - count);
        let listeners: Vec<_> = (port..port + count)
            .map_while(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
            .collect();
        if listeners.len() == usize::from(count) {
            return Ok(port);
        }
    }
    Err(HarnessError::Missing { what: "a free port".to_owned(), detail: "all are taken".to_owned() })
}

/// 128 random bits as Kafka writes them: 22 characters of URL-safe base64, the last of which holds two bits.
fn random_uuid() -> String {
    use std::hash::{BuildHasher, RandomState};
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bits =
        u128::from(RandomState::new().hash_one(0)) << 64 | u128::from(RandomState::new().hash_one(1));
    let mut text = String::from("K");
    for _ in 0..20 {
        text.push(char::from(ALPHABET[(bits % 64) as usize]));
        bits /= 64;
    }
    text.push('A');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_out_once() {
        let first = free_ports(2).unwrap();
        let second = free_ports(2).unwrap();
        assert!(second >= first + 2 || second + 2 <= first, "{first} {second}");
    }

    #[test]
    fn cluster_ids_have_kafkas_form() {
        let id = random_uuid();
        assert_eq!(id.len(), 22);
        assert_ne!(id, random_uuid());
    }
}
