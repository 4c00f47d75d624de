//! Kafka's own command line tools, as runbooks have them: `kafka-console-producer.sh`, `kafka-console-consumer.sh`,
//! `kafka-topics.sh` and `kafka-consumer-groups.sh`.

use super::jars::{KafkaJars, KafkaVersion};
use crate::process::{Program, tail};
use crate::{HarnessError, Result};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Output, Stdio};

const OPTIONS: [&str; 2] = ["-Xmx128m", "-XX:+UseSerialGC"];
/// Until the console consumer gives up waiting for more.
const CONSUMER_TIMEOUT_MS: &str = "30000";

/// The tools of the current release, on one cluster.
pub struct Console {
    jars: KafkaJars,
    bootstrap: String,
}

impl Console {
    /// For a cluster.
    pub fn new(bootstrap: &str) -> Result<Console> {
        Ok(Console { jars: KafkaJars::get(KafkaVersion::CURRENT)?, bootstrap: bootstrap.to_owned() })
    }

    /// Writes lines `KEY:VALUE` to a topic.
    pub fn produce(&self, topic: &str, lines: &[String]) -> Result<()> {
        let program = self.tool("org.apache.kafka.tools.ConsoleProducer").args([
            "--topic",
            topic,
            "--reader-property",
            "parse.key=true",
            "--reader-property",
            "key.separator=:",
        ]);
        run(program, &lines.join("\n")).map(drop)
    }

    /// Reads so many records of a topic from its beginning, as lines `KEY:VALUE`.
    pub fn consume(&self, topic: &str, count: usize) -> Result<Vec<String>> {
        let program = self.tool("org.apache.kafka.tools.consumer.ConsoleConsumer").args([
            "--topic",
            topic,
            "--from-beginning",
            "--max-messages",
            &count.to_string(),
            "--timeout-ms",
            CONSUMER_TIMEOUT_MS,
            "--formatter-property",
            "print.key=true",
            "--formatter-property",
            "key.separator=:",
        ]);
        Ok(run(program, "")?.lines().map(str::to_owned).collect())
    }

    /// The names of all topics.
    pub fn topics(&self) -> Result<Vec<String>> {
        let program = self.tool("org.apache.kafka.tools.TopicCommand").arg("--list");
        Ok(run(program, "")?.lines().map(str::to_owned).collect())
    }

    /// The lag of a group by topic and partition, as `--describe` has it; partitions without an offset are left out.
    pub fn lag(&self, group: &str) -> Result<BTreeMap<(String, i32), i64>> {
        let tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
        let text = run(self.tool(tool).args(["--describe", "--group", group]), "")?;
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let place = (words.get(1)?.to_string(), words.get(2)?.parse().ok()?);
            Some((place, words.get(5)?.parse().ok()?))
        };
        Ok(text.lines().filter_map(row).collect())
    }

    fn tool(&self, class: &str) -> Program {
        self.jars.java(&OPTIONS, None, class).args(["--bootstrap-server", &self.bootstrap])
    }
}

/// What a tool prints on its standard output.
fn run(program: Program, input: &str) -> Result<String> {
    let failed = |error| HarnessError::io("a tool of Kafka", error);
    let mut command = program.into_command();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(failed)?;
    }
    let Output { status, stdout, stderr } = child.wait_with_output().map_err(failed)?;
    let text = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() {
        return Ok(text);
    }
    let log = tail(&format!("{text}{}", String::from_utf8_lossy(&stderr)), 40);
    Err(HarnessError::Process { what: format!("a tool of Kafka ended with {status}"), log })
}
