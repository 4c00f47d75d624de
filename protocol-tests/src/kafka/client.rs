//! Stock clients: the Java client and librdkafka, behind one face.
//!
//! Both processes understand the same requests (`java/ClientAgent.java`, `python/librdkafka_agent.py`).

use super::Codec;
use super::agent::Agent;
use super::jars::{KafkaJars, create_folder, locked_file, remove_folder, rename};
use crate::compare::Side;
use crate::process::Program;
use crate::records::{ReadRecord, TestRecord, malformed};
use crate::{Result, workspace};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The wheel brings its own librdkafka.
const PYTHON_PACKAGE: &str = "confluent-kafka==2.16.1";

/// Filling a topic may take as long as the slowest load takes a busy machine.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// Which implementation a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    Java,
    Librdkafka,
}

/// How a producer guards against duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProducerKind {
    /// Without a producer id.
    Plain,
    Idempotent,
    /// With this transactional id.
    Transactional(String),
}

/// What a consumer sees of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
}

impl Isolation {
    /// As in `isolation.level`.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read_uncommitted",
            Isolation::ReadCommitted => "read_committed",
        }
    }
}

/// One thing a producer does.
#[derive(Clone, Debug)]
pub enum Step {
    /// Hands a record over; it may wait in a batch.
    Send(String, TestRecord),
    /// Sends what waits and waits for every acknowledgement.
    Flush,
    Begin,
    Commit,
    Abort,
}

impl Step {
    fn to_json(&self) -> Value {
        match self {
            Step::Send(topic, record) => {
                let mut value = record.to_json();
                value["do"] = json!("send");
                value["topic"] = json!(topic);
                value
            }
            Step::Flush => json!({"do": "flush"}),
            Step::Begin => json!({"do": "begin"}),
            Step::Commit => json!({"do": "commit"}),
            Step::Abort => json!({"do": "abort"}),
        }
    }
}

/// Many records of one size.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// For tables.
    pub name: &'a str,
    pub codec: Codec,
    pub records: u64,
    pub record_bytes: usize,
    /// `batch.size`; 0 makes every record a batch.
    pub batch_bytes: usize,
    pub partitions: i32,
}

/// One client process, used by all tests of a binary.
pub struct Client {
    kind: ClientKind,
    agent: Agent,
    next_producer: AtomicU64,
}

impl Client {
    /// Starts the Java client.
    pub(super) fn java(jars: &KafkaJars) -> Result<Client> {
        let classes = jars.own_classes()?;
        let options = ["-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        let logging = format!("-Dlog4j2.configurationFile={}", classes_log_config(&classes)?.display());
        let mut all: Vec<&str> = options.to_vec();
        all.push(&logging);
        let command = jars.java(&all, Some(&classes), "ClientAgent").into_command();
        Client::new(ClientKind::Java, Agent::start("the Java client", command)?)
    }

    /// Starts librdkafka under Python, after installing its wheel into the cache folder.
    pub(super) fn librdkafka(cache: &Path) -> Result<Client> {
        let python = python_with_librdkafka(cache)?;
        let mut command = Command::new(python);
        command.arg("-u").arg(workspace().join("protocol-tests/python/librdkafka_agent.py"));
        Client::new(ClientKind::Librdkafka, Agent::start("librdkafka", command)?)
    }

    fn new(kind: ClientKind, agent: Agent) -> Result<Client> {
        agent.call("hello", json!({}))?;
        Ok(Client { kind, agent, next_producer: AtomicU64::new(1) })
    }

    /// Which implementation this is.
    pub fn kind(&self) -> ClientKind {
        self.kind
    }

    pub(super) fn call(&self, op: &str, arguments: Value) -> Result<Value> {
        self.agent.call(op, arguments)
    }

    /// Opens a producer; `settings` are producer configs that both clients understand (`linger.ms`, `batch.size`, …).
    pub fn producer(
        &self,
        bootstrap: &str,
        kind: &ProducerKind,
        codec: Codec,
        settings: &[(&str, &str)],
    ) -> Result<Producer<'_>> {
        let mut config = Map::new();
        let mut set = |key: &str, value: &str| config.insert(key.to_owned(), json!(value));
        set("bootstrap.servers", bootstrap);
        set("compression.type", codec.name());
        set("acks", "all");
        match kind {
            ProducerKind::Plain => set("enable.idempotence", "false"),
            ProducerKind::Idempotent => set("enable.idempotence", "true"),
            ProducerKind::Transactional(id) => set("transactional.id", id),
        };
        for (key, value) in settings {
            set(key, value);
        }
        let name = format!("producer-{}", self.next_producer.fetch_add(1, Ordering::Relaxed));
        self.call("producer.open", json!({"producer": name, "config": config}))?;
        Ok(Producer { client: self, name })
    }

    /// Produces records with a plain, uncompressed producer and waits for their acknowledgements; gives their offsets.
    pub fn produce(&self, bootstrap: &str, topic: &str, records: &[TestRecord]) -> Result<Vec<i64>> {
        let producer = self.producer(bootstrap, &ProducerKind::Plain, Codec::None, &[])?;
        producer.send(topic, records)
    }

    /// Fills a topic with many records of one size, as benches need it (Java only).
    pub fn load(&self, bootstrap: &str, topic: &str, load: &Load<'_>) -> Result<()> {
        let mut config = Map::new();
        let linger = if load.batch_bytes == 0 { "0" } else { "50" };
        let settings = [
            ("bootstrap.servers", bootstrap.to_owned()),
            ("compression.type", load.codec.name().to_owned()),
            ("acks", "all".to_owned()),
            ("enable.idempotence", "false".to_owned()),
            ("batch.size", load.batch_bytes.to_string()),
            ("linger.ms", linger.to_owned()),
            ("buffer.memory", (64 << 20).to_string()),
            // A busy machine may take minutes.
            ("request.timeout.ms", "300000".to_owned()),
            ("delivery.timeout.ms", "600000".to_owned()),
        ];
        settings.into_iter().for_each(|(key, value)| drop(config.insert(key.to_owned(), json!(value))));
        let arguments = json!({
            "config": config, "topic": topic, "partitions": load.partitions,
            "records": load.records, "record_bytes": load.record_bytes,
        });
        self.agent.call_within("producer.load", arguments, LOAD_TIMEOUT).map(drop)
    }

    /// Sends records at a steady rate and reads them on both sides (Java only); gives, per record, how long after its
    /// sending it was read at the source and at the target. Both topics must exist; partition 0 is used.
    pub fn latency(
        &self,
        source: Side<'_>,
        target: Side<'_>,
        records: u32,
        per_second: u32,
    ) -> Result<Vec<[Duration; 2]>> {
        let arguments = json!({
            "source": source.bootstrap, "topic": source.topic, "target": target.bootstrap, "remote": target.topic,
            "records": records, "rate": per_second,
        });
        let result = self.agent.call_within("latency", arguments, LOAD_TIMEOUT)?;
        let list = result.as_array().ok_or_else(|| malformed("latencies", &result))?;
        let nanos = |value: &Value| Duration::from_nanos(value.as_u64().unwrap_or_default());
        Ok(list.iter().map(|pair| [nanos(&pair[0]), nanos(&pair[1])]).collect())
    }

    /// Reads a topic from its start to the end that it has now, in partition and offset order.
    pub fn read(&self, bootstrap: &str, topic: &str, isolation: Isolation) -> Result<Vec<ReadRecord>> {
        let result = self
            .call("read", json!({"bootstrap": bootstrap, "topic": topic, "isolation": isolation.name()}))?;
        let list = result.as_array().ok_or_else(|| malformed("the records of a topic", &result))?;
        let mut records = list.iter().map(ReadRecord::from_json).collect::<Result<Vec<_>>>()?;
        records.sort_by_key(|record| (record.partition, record.offset));
        Ok(records)
    }
}

/// An open producer; closed on drop (an open transaction is aborted then).
pub struct Producer<'a> {
    client: &'a Client,
    name: String,
}

impl Producer<'_> {
    /// Runs steps one after another; gives the offset of every record sent in them that was acknowledged by the last
    /// flush or commit, in sending order (−1 for one that an abort took back before it was sent).
    pub fn run(&self, steps: &[Step]) -> Result<Vec<i64>> {
        let steps: Vec<Value> = steps.iter().map(Step::to_json).collect();
        let result = self.client.call("producer.run", json!({"producer": self.name, "steps": steps}))?;
        let offsets = result.as_array().ok_or_else(|| malformed("offsets", &result))?;
        Ok(offsets.iter().map(|offset| offset.as_i64().unwrap_or(-1)).collect())
    }

    /// Sends records to a topic and waits for their acknowledgements.
    pub fn send(&self, topic: &str, records: &[TestRecord]) -> Result<Vec<i64>> {
        let mut steps: Vec<Step> =
            records.iter().map(|record| Step::Send(topic.to_owned(), record.clone())).collect();
        steps.push(Step::Flush);
        self.run(&steps)
    }
}

impl Drop for Producer<'_> {
    fn drop(&mut self) {
        let _ = self.client.call("producer.close", json!({"producer": self.name}));
    }
}

/// Only warnings, to standard error: standard output carries replies.
fn classes_log_config(classes: &Path) -> Result<PathBuf> {
    let path = classes.with_extension("log4j2.properties");
    let text = "status = error\nrootLogger.level = warn\nrootLogger.appenderRef.c.ref = c\n\
                appender.c.type = Console\nappender.c.name = c\nappender.c.target = SYSTEM_ERR\n\
                appender.c.layout.type = PatternLayout\nappender.c.layout.pattern = [%d] %p %m (%c)%n\n";
    std::fs::write(&path, text).map_err(|error| crate::HarnessError::path("write", &path, error))?;
    Ok(path)
}

/// A Python environment with the wheel, made once per package version.
fn python_with_librdkafka(cache: &Path) -> Result<PathBuf> {
    create_folder(cache)?;
    let _lock = locked_file(&cache.join("python.lock"))?;
    let home = cache.join(format!("python-{}", PYTHON_PACKAGE.replace("==", "-")));
    let python = home.join("bin/python3");
    let marker = home.join("installed");
    if !marker.exists() {
        remove_folder(&home)?;
        Program::new("python3").args(["-m", "venv"]).arg(&home).run("python3 -m venv")?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_PACKAGE];
        Program::new(&python).args(pip).run("pip install")?;
        let partial = home.join("installed.partial");
        create_folder(&partial)?;
        rename(&partial, &marker)?;
    }
    Ok(python)
}
