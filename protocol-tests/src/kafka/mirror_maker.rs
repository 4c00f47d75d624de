//! MirrorMaker 2, a Connect worker, and MirrorMaker 1 of the last release that has it, as child processes, for take-over tests and benches.

use super::LOGGING;
use super::jars::{KafkaJars, KafkaVersion};
use crate::process::{ScratchFolder, Signal, Supervised};
use crate::{HarnessError, Result};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(40);
const QUIET_CLIENTS: &str = "\
logger.quiet.name = org.apache.kafka.clients
logger.quiet.level = warn
";

/// A running MirrorMaker 2 (the dedicated `connect-mirror-maker` process); killed on drop.
pub struct MirrorMaker {
    process: Supervised,
    _folder: ScratchFolder,
}

impl MirrorMaker {
    /// Starts it with the given file text and JVM options, and returns when it says that it has started.
    pub fn start(properties: &str, jvm_options: &[&str]) -> Result<MirrorMaker> {
        let mut started = MirrorMaker::spawn(properties, jvm_options)?;
        started.process.wait_ready(START_TIMEOUT, |log| log.contains("Kafka MirrorMaker started"))?;
        Ok(started)
    }

    /// The same without waiting.
    pub fn spawn(properties: &str, jvm_options: &[&str]) -> Result<MirrorMaker> {
        let jars = KafkaJars::get(KafkaVersion::CURRENT)?;
        let folder = ScratchFolder::new("mm2")?;
        let (file, logging) = (folder.path().join("mm2.properties"), folder.path().join("log4j2.properties"));
        for (path, text) in [(&file, properties), (&logging, &format!("{LOGGING}{QUIET_CLIENTS}"))] {
            std::fs::write(path, text).map_err(|error| HarnessError::path("write", path, error))?;
        }
        let logging = format!("-Dlog4j2.configurationFile={}", logging.display());
        let mut options: Vec<&str> = jvm_options.to_vec();
        options.push(&logging);
        let program = jars.java(&options, None, "org.apache.kafka.connect.mirror.MirrorMaker").arg(&file);
        let process = Supervised::start("MirrorMaker 2", program, &folder.path().join("mm2.log"))?;
        Ok(MirrorMaker { process, _folder: folder })
    }

    /// Its JVM's process id, for measurements.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it has logged.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Ends it in order, so that it stores its positions.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::Terminate)?;
        self.process.wait(STOP_TIMEOUT).map(drop)
    }

    /// Kills it at once, as in a crash.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(Signal::Kill)?;
        self.process.wait(STOP_TIMEOUT).map(drop)
    }
}

/// A running worker of a Connect cluster (`connect-distributed`), in which MirrorMaker's connectors may run; killed on drop.
pub struct ConnectWorker {
    process: Supervised,
    port: u16,
    _folder: ScratchFolder,
}

impl ConnectWorker {
    /// Starts it with the given file text, but for its listener, and returns when it can be asked for its connectors.
    pub fn start(properties: &str, jvm_options: &[&str]) -> Result<ConnectWorker> {
        let jars = KafkaJars::get(KafkaVersion::CURRENT)?;
        let folder = ScratchFolder::new("connect")?;
        let (file, logging) =
            (folder.path().join("worker.properties"), folder.path().join("log4j2.properties"));
        let port = free_port()?;
        let properties = format!("{properties}\nlisteners = http://127.0.0.1:{port}\n");
        for (path, text) in [(&file, &properties), (&logging, &format!("{LOGGING}{QUIET_CLIENTS}"))] {
            std::fs::write(path, text).map_err(|error| HarnessError::path("write", path, error))?;
        }
        let logging = format!("-Dlog4j2.configurationFile={}", logging.display());
        let mut options: Vec<&str> = jvm_options.to_vec();
        options.push(&logging);
        let program = jars.java(&options, None, "org.apache.kafka.connect.cli.ConnectDistributed").arg(&file);
        let mut process = Supervised::start("a Connect worker", program, &folder.path().join("connect.log"))?;
        process.wait_ready(START_TIMEOUT, |log| log.contains("Finished starting connectors and tasks"))?;
        Ok(ConnectWorker { process, port, _folder: folder })
    }

    /// Creates a connector, or gives it another config (a JSON object of strings).
    pub fn put_config(&self, connector: &str, config: &str) -> Result<()> {
        let request = format!(
            "PUT /connectors/{connector}/config HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{config}",
            config.len()
        );
        let mut answer = String::new();
        let asked = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).and_then(|mut stream| {
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut answer)
        });
        let is_done = asked.is_ok() && (answer.contains(" 201 ") || answer.contains(" 200 "));
        if is_done {
            return Ok(());
        }
        let what = format!("the worker did not take the connector: {asked:?} {answer}");
        Err(HarnessError::Process { what, log: self.output() })
    }

    /// What it has logged.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Ends it in order, so that it stores its positions.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::Terminate)?;
        self.process.wait(STOP_TIMEOUT).map(drop)
    }
}

fn free_port() -> Result<u16> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound
        .map(|address| address.port())
        .map_err(|error| HarnessError::Process { what: "no port is free".to_owned(), log: error.to_string() })
}

/// A running MirrorMaker 1 (`kafka-mirror-maker.sh` of 3.9.1); killed on drop.
pub struct MirrorMaker1 {
    process: Supervised,
    _folder: ScratchFolder,
}

impl MirrorMaker1 {
    /// Starts it with these files; further arguments go behind them.
    pub fn start(consumer: &str, producer: &str, arguments: &[&str]) -> Result<MirrorMaker1> {
        let jars = KafkaJars::get(KafkaVersion::V3_9_1)?;
        let folder = ScratchFolder::new("mm1")?;
        let path = |name: &str| folder.path().join(name);
        for (name, text) in [("consumer.properties", consumer), ("producer.properties", producer)] {
            std::fs::write(path(name), text)
                .map_err(|error| HarnessError::path("write", path(name), error))?;
        }
        let options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        let program = jars
            .java(&options, None, "kafka.tools.MirrorMaker")
            .arg("--consumer.config")
            .arg(path("consumer.properties"))
            .arg("--producer.config")
            .arg(path("producer.properties"))
            .args(arguments.iter().copied());
        let process = Supervised::start("MirrorMaker 1", program, &path("mm1.log"))?;
        Ok(MirrorMaker1 { process, _folder: folder })
    }

    /// What it has logged.
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Ends it in order, so that it commits.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::Terminate)?;
        self.process.wait(STOP_TIMEOUT).map(drop)
    }
}
