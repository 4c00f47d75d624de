//! The jars of Apache Kafka and what is compiled against them, in a cache folder.
//!
//! `KMIRROR_KAFKA_HOME` (default `.kafka` in the checkout) holds one folder per version. A file lock makes parallel
//! test processes fetch once; a folder is moved into place only when it is whole.

use crate::process::Program;
use crate::{HarnessError, Result, workspace};
use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// A release of Apache Kafka that the suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KafkaVersion {
    V4_3_1,
    V3_9_1,
}

impl KafkaVersion {
    /// The one whose clients and MirrorMaker are used, and whose brokers unless a test asks for others.
    pub const CURRENT: KafkaVersion = KafkaVersion::V4_3_1;

    /// As Maven spells it.
    pub fn name(self) -> &'static str {
        match self {
            KafkaVersion::V4_3_1 => "4.3.1",
            KafkaVersion::V3_9_1 => "3.9.1",
        }
    }

    /// The Maven profile of `kafka/pom.xml` for more than the broker: only the current MirrorMaker is run.
    fn profile(self) -> Option<&'static str> {
        match self {
            KafkaVersion::V4_3_1 => Some("mirror-maker"),
            KafkaVersion::V3_9_1 => None,
        }
    }
}

/// A folder of jars.
#[derive(Clone, Debug)]
pub struct KafkaJars {
    version: KafkaVersion,
    home: PathBuf,
}

impl KafkaJars {
    /// Fetches the jars of a release unless they are there.
    pub fn get(version: KafkaVersion) -> Result<KafkaJars> {
        let home = cache_folder().join(version.name());
        let jars = KafkaJars { version, home };
        let pom = workspace().join("protocol-tests/kafka/pom.xml");
        let wanted = fingerprint(&[read(&pom)?, version.profile().unwrap_or_default().to_owned()]);
        create_folder(&jars.home)?;
        let _lock = locked_file(&jars.home.join("fetch.lock"))?;
        let marker = jars.home.join("fetched");
        if std::fs::read_to_string(&marker).is_ok_and(|seen| seen == wanted) {
            return Ok(jars);
        }
        jars.fetch(&pom)?;
        std::fs::write(&marker, wanted).map_err(|error| HarnessError::path("write", &marker, error))?;
        Ok(jars)
    }

    /// Which release this is.
    pub fn version(&self) -> KafkaVersion {
        self.version
    }

    /// A Java command with the JVM's options, this class path (and `extra` before it) and a main class.
    pub fn java(&self, jvm_options: &[&str], extra: Option<&Path>, main: &str) -> Program {
        let mut class_path = OsString::new();
        if let Some(extra) = extra {
            class_path.push(extra);
            class_path.push(":");
        }
        class_path.push(self.home.join("libs"));
        class_path.push("/*");
        Program::new("java").args(jvm_options.iter().copied()).arg("-cp").arg(class_path).arg(main)
    }

    /// The classes of `protocol-tests/java`, compiled against these jars once per text of the sources.
    pub fn own_classes(&self) -> Result<PathBuf> {
        let folder = workspace().join("protocol-tests/java");
        let mut sources: Vec<PathBuf> = std::fs::read_dir(&folder)
            .map_err(|error| HarnessError::path("list", &folder, error))?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "java"))
            .collect();
        sources.sort();
        let texts = sources.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
        let classes = self.home.join(format!("classes-{}", fingerprint(&texts)));
        let _lock = locked_file(&self.home.join("compile.lock"))?;
        if classes.exists() {
            return Ok(classes);
        }
        let partial = self.home.join("classes-partial");
        remove_folder(&partial)?;
        Program::new("javac")
            .args(["-Xlint:all", "-Xlint:-processing", "-Xlint:-path", "-Werror", "-proc:none", "-d"])
            .arg(&partial)
            .arg("-cp")
            .arg(self.home.join("libs/*"))
            .args(&sources)
            .run("javac")?;
        rename(&partial, &classes)?;
        Ok(classes)
    }

    fn fetch(&self, pom: &Path) -> Result<()> {
        let (libs, partial) = (self.home.join("libs"), self.home.join("libs-partial"));
        remove_folder(&partial)?;
        let mut output = OsString::from("-DoutputDirectory=");
        output.push(&partial);
        Program::new("mvn")
            .args(["-B", "-q", "-f"])
            .arg(pom)
            .arg(format!("-Dkafka.version={}", self.version.name()))
            .args(self.version.profile().map(|profile| format!("-P{profile}")))
            .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
            .arg(output)
            .run("mvn")
            .map_err(|error| HarnessError::Missing {
                what: format!("Apache Kafka {}", self.version.name()),
                detail: error.to_string(),
            })?;
        remove_folder(&libs)?;
        rename(&partial, &libs)
    }
}

/// Where jars and the Python environment are kept.
pub(crate) fn cache_folder() -> PathBuf {
    std::env::var_os("KMIRROR_KAFKA_HOME").map_or_else(|| workspace().join(".kafka"), PathBuf::from)
}

/// Opens a file and waits until no other process holds it.
pub(crate) fn locked_file(path: &Path) -> Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|error| HarnessError::path("open", path, error))?;
    file.lock().map_err(|error| HarnessError::path("lock", path, error))?;
    Ok(file)
}

pub(crate) fn create_folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| HarnessError::path("create", path, error))
}

pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(HarnessError::path("remove", path, error))
        }
        _ => Ok(()),
    }
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).map_err(|error| HarnessError::path("rename", from, error))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| HarnessError::path("read", path, error))
}

fn fingerprint(texts: &[String]) -> String {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
