//! Whether real Kafka is used, and that only one test process at a time does.
//!
//! `KMIRROR_REAL=auto` (default) runs the real suite where Java 17, Maven and the jars can be had and says plainly when
//! not; `off` never; `require` fails instead of skipping. Two JVM clusters are all that a small machine bears, so a test
//! process holds one lock from its first look until its end and may start one pair.

use super::client::Client;
use super::jars::{KafkaJars, KafkaVersion, cache_folder, locked_file};
use crate::process::Program;
use crate::{HarnessError, Result};
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

/// What `KMIRROR_REAL` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RealMode {
    Auto,
    Off,
    Require,
}

impl RealMode {
    /// Reads `KMIRROR_REAL`.
    pub fn from_env() -> Result<RealMode> {
        let text = std::env::var("KMIRROR_REAL").unwrap_or_default();
        RealMode::parse(&text).ok_or_else(|| HarnessError::Malformed {
            what: "KMIRROR_REAL".to_owned(),
            detail: format!("{text:?} is none of auto, off, require"),
        })
    }

    fn parse(text: &str) -> Option<RealMode> {
        match text {
            "" | "auto" => Some(RealMode::Auto),
            "off" => Some(RealMode::Off),
            "require" => Some(RealMode::Require),
            _ => None,
        }
    }
}

/// Real Kafka may be used: the jars are there and this process holds the lock.
pub struct RealKafka {
    /// The Java client, one JVM for the whole test process.
    pub java: Client,
    /// librdkafka under Python, or why not.
    librdkafka: std::result::Result<Client, String>,
    mode: RealMode,
    /// Held until the end of the process.
    _lock: File,
}

impl RealKafka {
    /// The librdkafka client; `None`, said plainly, where Python cannot give it.
    pub fn librdkafka(&self) -> Result<Option<&Client>> {
        match (&self.librdkafka, self.mode) {
            (Ok(client), _) => Ok(Some(client)),
            (Err(detail), RealMode::Require) => {
                Err(HarnessError::Missing { what: "librdkafka".to_owned(), detail: detail.clone() })
            }
            (Err(detail), _) => {
                say(&format!("SKIPPED, no librdkafka: {detail}"));
                Ok(None)
            }
        }
    }
}

/// The real Kafka of this test process, or `None` when it is not to be used (said plainly on standard error). With
/// `KMIRROR_REAL=require` what is missing is an error.
pub fn real_kafka() -> Result<Option<&'static RealKafka>> {
    static SHARED: OnceLock<std::result::Result<Option<RealKafka>, String>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| open().map_err(|error| error.to_string()));
    match shared {
        Ok(found) => Ok(found.as_ref()),
        Err(detail) => Err(HarnessError::Missing { what: "real Kafka".to_owned(), detail: detail.clone() }),
    }
}

fn open() -> Result<Option<RealKafka>> {
    let mode = RealMode::from_env()?;
    if mode == RealMode::Off {
        say("SKIPPED, KMIRROR_REAL=off: nothing was tested against real Kafka");
        return Ok(None);
    }
    match prepare(mode) {
        Ok(real) => Ok(Some(real)),
        Err(error) if mode == RealMode::Auto => {
            say(&format!("SKIPPED: nothing was tested against real Kafka, because {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn prepare(mode: RealMode) -> Result<RealKafka> {
    need_java()?;
    let jars = KafkaJars::get(KafkaVersion::CURRENT)?;
    let lock = locked_file(&std::env::temp_dir().join("kmirror-real-kafka.lock"))?;
    let java = Client::java(&jars)?;
    let librdkafka = Client::librdkafka(&cache_folder()).map_err(|error| error.to_string());
    Ok(RealKafka { java, librdkafka, mode, _lock: lock })
}

fn need_java() -> Result<()> {
    let text = Program::new("java")
        .arg("-version")
        .run("java -version")
        .map_err(|error| HarnessError::Missing { what: "Java 17".to_owned(), detail: error.to_string() })?;
    match java_release(&text) {
        Some(release) if release >= 17 => Ok(()),
        _ => Err(HarnessError::Missing { what: "Java 17".to_owned(), detail: text }),
    }
}

/// The feature release out of `java -version`: `openjdk version "17.0.15" 2025-04-15`; before 9 it began with `1.`.
fn java_release(text: &str) -> Option<u32> {
    let quoted = text.split('"').nth(1)?;
    let mut numbers = quoted.split(['.', '-', '+', '_']).map(str::parse::<u32>);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        release => Some(release),
    }
}

/// Writes to standard error past the test runner's capture, so that a skip is seen in an ordinary run.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "\nreal Kafka: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_java_is_found() {
        let cases = [
            ("openjdk version \"17.0.15\" 2025-04-15", Some(17)),
            ("java version \"1.8.0_202\"", Some(8)),
            ("openjdk version \"21\" 2023-09-19", Some(21)),
            ("openjdk version \"25-ea\" 2025-09-16", Some(25)),
            ("command not found", None),
        ];
        for (text, release) in cases {
            assert_eq!(java_release(text), release, "{text}");
        }
    }

    #[test]
    fn the_mode_is_one_of_three_words() {
        assert_eq!(RealMode::parse(""), Some(RealMode::Auto));
        assert_eq!(RealMode::parse("off"), Some(RealMode::Off));
        assert_eq!(RealMode::parse("require"), Some(RealMode::Require));
        assert_eq!(RealMode::parse("yes"), None);
    }
}
