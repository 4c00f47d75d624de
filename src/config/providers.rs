//! Config providers: `${file:path:key}`, `${env:NAME}` and `${dir:path:file}` in values (`ConfigTransformer.java`).
//!
//! As in Kafka, a reference to a provider that is not declared, or to a key that is not there, stays as it is written,
//! which is worth a warning; a file that cannot be read is an error. What a provider gives is treated as a secret: it is
//! used, and never shown.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use super::files::read_file;
use super::problem::Problem;
use super::properties::{self, FILE_BYTES_MAX};
use crate::mirror::PatternList;

/// What providers may look at: the environment and files.
pub struct Outside<'a> {
    /// A variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The bytes of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
}

impl Outside<'static> {
    /// This process's environment and this machine's files.
    pub fn real() -> Outside<'static> {
        Outside { env: &|name| std::env::var(name).ok(), read: &read_file }
    }
}

/// A declared provider.
#[derive(Clone, Debug)]
enum Provider {
    File { allowed_paths: Option<Vec<PathBuf>> },
    Directory { allowed_paths: Option<Vec<PathBuf>> },
    Environment { allowlist: Option<PatternList> },
}

/// The providers that a file declares.
pub(super) struct Providers<'a> {
    outside: &'a Outside<'a>,
    declared: BTreeMap<String, Provider>,
    files: BTreeMap<PathBuf, BTreeMap<String, String>>,
}

/// A value after its references were replaced.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    /// The value.
    pub(super) text: String,
    /// Whether a provider gave part of it.
    pub(super) provided: bool,
    /// What went wrong, and at which bytes of the value as it was written.
    pub(super) problems: Vec<(Range<usize>, Problem)>,
}

impl<'a> Providers<'a> {
    pub(super) fn new(outside: &'a Outside<'a>) -> Providers<'a> {
        Providers { outside, declared: BTreeMap::new(), files: BTreeMap::new() }
    }

    /// Declares a provider; `parameter` looks one of its `param.` keys up.
    pub(super) fn declare(
        &mut self,
        name: &str,
        class: &str,
        parameter: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), Problem> {
        let allowed_paths =
            || parameter("allowed.paths").map(|paths| paths.split(',').map(PathBuf::from).collect());
        let provider = match class.trim().rsplit_once('.') {
            Some(("org.apache.kafka.common.config.provider", "FileConfigProvider")) => {
                Provider::File { allowed_paths: allowed_paths() }
            }
            Some(("org.apache.kafka.common.config.provider", "DirectoryConfigProvider")) => {
                Provider::Directory { allowed_paths: allowed_paths() }
            }
            Some(("org.apache.kafka.common.config.provider", "EnvVarConfigProvider")) => {
                let pattern = parameter("allowlist.pattern").map(|pattern| PatternList::new(&[&pattern]));
                let allowlist = pattern.transpose().map_err(|error| Problem::error(error.to_string()))?;
                Provider::Environment { allowlist }
            }
            _ => {
                return Err(Problem::error(format!(
                    "the config provider class {} is not known here",
                    class.trim()
                ))
                .help("FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider of Kafka are"));
            }
        };
        self.declared.insert(name.to_owned(), provider);
        Ok(())
    }

    /// Replaces all references in a value; none are looked for in what is put in.
    pub(super) fn resolve(&mut self, value: &str) -> Resolved {
        let mut resolved = Resolved::default();
        let mut at = 0;
        while let Some((start, end)) = next_reference(value, at) {
            resolved.text.push_str(&value[at..start]);
            match self.look_up(&value[start + 2..end - 1]) {
                Ok(text) => {
                    resolved.text.push_str(&text);
                    resolved.provided = true;
                }
                Err(problem) => {
                    resolved.text.push_str(&value[start..end]);
                    resolved.problems.push((start..end, problem));
                }
            }
            at = end;
        }
        resolved.text.push_str(&value[at..]);
        resolved
    }

    fn look_up(&mut self, reference: &str) -> Result<String, Problem> {
        let (name, rest) = reference.split_once(':').unwrap_or((reference, ""));
        let (path, key) = match rest.split_once(':') {
            Some((path, key)) => (Some(path), key),
            None => (None, rest),
        };
        let Some(provider) = self.declared.get(name).cloned() else {
            let problem = Problem::warning(format!(
                "no config provider is called {name}: the reference stays as it is"
            ));
            return Err(problem
                .help(format!("declare it by config.providers={name} and config.providers.{name}.class")));
        };
        match provider {
            Provider::File { allowed_paths } => {
                self.file_key(path.unwrap_or(""), key, allowed_paths.as_deref())
            }
            Provider::Directory { allowed_paths } => {
                self.directory_file(path.unwrap_or(""), key, allowed_paths.as_deref())
            }
            Provider::Environment { allowlist } => self.variable(path, key, allowlist.as_ref()),
        }
    }

    fn file_key(&mut self, path: &str, key: &str, allowed: Option<&[PathBuf]>) -> Result<String, Problem> {
        check_allowed(Path::new(path), allowed)?;
        if path.is_empty() {
            return Err(Problem::warning("the reference names no file: it stays as it is"));
        }
        if !self.files.contains_key(Path::new(path)) {
            let bytes = self.read(Path::new(path))?;
            let parsed = properties::parse_text(&String::from_utf8_lossy(&bytes));
            if !parsed.problems.is_empty() {
                return Err(Problem::error(format!("{path} holds a malformed \\u escape")));
            }
            let entries = parsed.entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
            self.files.insert(PathBuf::from(path), entries);
        }
        let entries = self.files.get(Path::new(path));
        let found = |key: &str| entries.and_then(|entries| entries.get(key));
        found(key).cloned().ok_or_else(|| {
            // As it is for Java.
            let marked = found(&format!("\u{feff}{key}")).is_some();
            let why = if marked { ", since its byte order mark is a part of the key" } else { "" };
            missing(&format!("{path} holds no key {key}{why}"))
        })
    }

    fn directory_file(&self, path: &str, file: &str, allowed: Option<&[PathBuf]>) -> Result<String, Problem> {
        let full = Path::new(path).join(file);
        check_allowed(&full, allowed)?;
        if path.is_empty() || Path::new(file).components().count() != 1 {
            return Err(missing(&format!("{file} is no file of the directory {path}")));
        }
        let bytes = self.read(&full)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn variable(
        &self,
        path: Option<&str>,
        name: &str,
        allowlist: Option<&PatternList>,
    ) -> Result<String, Problem> {
        if path.is_some_and(|path| !path.is_empty()) {
            return Err(Problem::error("a variable of the environment has no path")
                .help(format!("write ${{env:{name}}}")));
        }
        if allowlist.is_some_and(|allowlist| !allowlist.matches(name)) {
            return Err(missing(&format!("allowlist.pattern does not allow the variable {name}")));
        }
        (self.outside.env)(name).ok_or_else(|| missing(&format!("the environment has no variable {name}")))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, Problem> {
        let bytes = (self.outside.read)(path)
            .map_err(|error| Problem::error(format!("{} cannot be read: {error}", path.display())))?;
        if bytes.len() > FILE_BYTES_MAX {
            return Err(Problem::error(format!("{} is larger than {FILE_BYTES_MAX} bytes", path.display())));
        }
        Ok(bytes)
    }
}

fn missing(what: &str) -> Problem {
    Problem::warning(format!("{what}: the reference stays as it is"))
}

fn check_allowed(path: &Path, allowed: Option<&[PathBuf]>) -> Result<(), Problem> {
    let climbs = path.components().any(|component| component == Component::ParentDir);
    match allowed {
        Some(allowed) if climbs || !allowed.iter().any(|allowed| path.starts_with(allowed)) => {
            Err(missing(&format!("allowed.paths does not allow {}", path.display())))
        }
        _ => Ok(()),
    }
}

/// The next `${provider:…}` at or after `at`: its start and the end behind its brace.
fn next_reference(value: &str, mut at: usize) -> Option<(usize, usize)> {
    loop {
        let start = at + value[at..].find("${")?;
        let end = start + value[start..].find('}')? + 1;
        if value[start..end].contains(':') {
            return Some((start, end));
        }
        at = start + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::Severity;
    use super::*;

    const CLASSES: [(&str, &str); 3] =
        [("file", "FileConfigProvider"), ("dir", "DirectoryConfigProvider"), ("env", "EnvVarConfigProvider")];

    fn check(value: &str, text: &str, problem: Option<(Severity, &str)>) {
        let outside = Outside {
            env: &|name| (name == "HOME_PORT").then(|| "9092".to_owned()),
            read: &|path| match path.to_str() {
                Some("/s/a.properties") => Ok("user=\u{e9}mile\npassword : x\\u0041\n".as_bytes().to_vec()),
                Some("/s/marked") => Ok("\u{feff}user=x\n".as_bytes().to_vec()),
                Some("/s/token") => Ok(b"abc\n".to_vec()),
                _ => Err(io::ErrorKind::NotFound.into()),
            },
        };
        let mut providers = Providers::new(&outside);
        for (name, class) in CLASSES {
            let class = format!("org.apache.kafka.common.config.provider.{class}");
            providers
                .declare(name, &class, &|key| {
                    (key == "allowed.paths")
                        .then(|| "/s".to_owned())
                        .or((key == "allowlist.pattern").then(|| "HOME.*".to_owned()))
                })
                .unwrap();
        }
        let resolved = providers.resolve(value);
        assert_eq!(resolved.text, text, "{value}");
        let found =
            resolved.problems.first().map(|(_, problem)| (problem.severity, problem.message.as_str()));
        assert_eq!(found, problem, "{value}");
    }

    #[test]
    fn references_are_replaced_as_kafka_does() {
        let warning = |text| Some((Severity::Warning, text));
        let error = |text| Some((Severity::Error, text));
        check("plain ${x} $y", "plain ${x} $y", None);
        check("${file:/s/a.properties:user}", "\u{e9}mile", None);
        check("a${file:/s/a.properties:password}b${env:HOME_PORT}", "axAb9092", None);
        check("${env::HOME_PORT}", "9092", None);
        check("${dir:/s:token}", "abc\n", None);
        check(
            "${vault:a:b}",
            "${vault:a:b}",
            warning("no config provider is called vault: the reference stays as it is"),
        );
        check(
            "${file:/s/a.properties:x}",
            "${file:/s/a.properties:x}",
            warning("/s/a.properties holds no key x: the reference stays as it is"),
        );
        check(
            "${file:/s/marked:user}",
            "${file:/s/marked:user}",
            warning(
                "/s/marked holds no key user, since its byte order mark is a part of the key: the reference stays as it is",
            ),
        );
        check(
            "${env:PATH}",
            "${env:PATH}",
            warning("allowlist.pattern does not allow the variable PATH: the reference stays as it is"),
        );
        check("${env:x:HOME_PORT}", "${env:x:HOME_PORT}", error("a variable of the environment has no path"));
        check("${file:/s/none:x}", "${file:/s/none:x}", error("/s/none cannot be read: entity not found"));
        check(
            "${file:/s/../etc/passwd:x}",
            "${file:/s/../etc/passwd:x}",
            warning("allowed.paths does not allow /s/../etc/passwd: the reference stays as it is"),
        );
        check(
            "${${env:HOME_PORT}}",
            "${${env:HOME_PORT}}",
            warning("no config provider is called ${env: the reference stays as it is"),
        );
        check("${open:", "${open:", None);
    }

    #[test]
    fn an_unknown_class_is_refused_by_name() {
        let outside = Outside::real();
        let refused = Providers::new(&outside).declare("v", "com.example.Vault", &|_| None).unwrap_err();
        assert_eq!(refused.message, "the config provider class com.example.Vault is not known here");
        assert_eq!(refused.severity, Severity::Error);
    }
}
