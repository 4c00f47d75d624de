//! One file of MirrorMaker 1: its entries under their own names, each judged, old ones with today's name and value.

use std::rc::Rc;

use super::super::classify::closest;
use super::super::fold;
use super::super::keys::{Effect, Kind, is_secret};
use super::super::lint::{BYTE_ORDER_MARK, Linted, byte_order_mark};
use super::super::problem::{Problem, SourceText};
use super::super::properties::{self, Entry, FILE_BYTES_MAX};
use super::super::providers::{Outside, Providers};
use super::super::reader::Problems;
use super::super::scoping::{Scope, Setting};
use super::keys::{self, File, Meaning};

/// What a file says.
pub(super) struct FileSettings {
    pub(super) entries: Vec<Entry>,
    /// Keys of its client, by today's names.
    pub(super) clients: Scope,
    /// kmirror's own for the flow.
    pub(super) of_flow: Scope,
    /// kmirror's own for the process.
    pub(super) of_process: Scope,
}

/// Reads the bytes of a file; `None` when it is no text.
pub(super) fn read(
    name: &str,
    bytes: &[u8],
    file: File,
    source: &mut SourceText,
    outside: &Outside<'_>,
    problems: &mut Problems,
) -> Option<FileSettings> {
    if bytes.len() > FILE_BYTES_MAX || bytes.contains(&0) {
        problems.push(Problem::error(format!("{name} is no text, or larger than {FILE_BYTES_MAX} bytes")));
        return None;
    }
    let start = source.append(name, bytes);
    let mark = if bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
    let parsed = properties::parse_behind(bytes, mark);
    let mut entries: Vec<Entry> = parsed.entries.into_iter().map(|entry| entry.shifted(start)).collect();
    let mut said: Vec<Problem> = parsed.problems.into_iter().map(|problem| problem.shifted(start)).collect();
    if mark > 0 {
        said.push(byte_order_mark().shifted(start));
    }
    fold::keys(&mut entries, source, &mut said);
    for entry in entries.iter().filter(|entry| is_secret(&entry.key)) {
        source.mask(entry.value_span);
    }
    let mut linted = Linted { entries, raw: Scope::new(), clusters: Vec::new(), problems: said };
    let last = linted.last_entries(source);
    let mut providers = Providers::new(outside);
    linted.declare_providers(&last, &mut providers);
    let mut reading = Reading { file, settings: Sorted::default() };
    for (key, &index) in last.iter().filter(|(key, _)| !key.starts_with("config.providers")) {
        let setting = linted.resolve(index, &mut providers);
        reading.take(&mut linted, key, setting);
    }
    reading.check_required(name, &mut linted);
    linted.problems.into_iter().for_each(|problem| problems.push(problem));
    let Sorted { clients, of_flow, of_process } = reading.settings;
    Some(FileSettings { entries: linted.entries, clients, of_flow, of_process })
}

#[derive(Default)]
struct Sorted {
    clients: Scope,
    of_flow: Scope,
    of_process: Scope,
}

struct Reading {
    file: File,
    settings: Sorted,
}

impl Reading {
    /// Judges one entry, and puts it where it belongs.
    fn take(&mut self, linted: &mut Linted, key: &str, setting: Setting) {
        let span = linted.entries[setting.entry].span();
        match keys::meaning(self.file, key) {
            Meaning::Client(_, kind, effect) => {
                let setting = other_words(linted, key, setting, keys::old_words(key));
                if let Effect::Nothing(reason) | Effect::NotYet(reason) = effect {
                    linted.problems.push(Problem::info(format!("{key} has no effect: {reason}")).at(span));
                }
                let setting = judged(linted, key, setting, kind, effect);
                warn(linted, key, &setting);
                self.settings.clients.insert(key.to_owned(), setting);
            }
            Meaning::Renamed(name, words) => {
                let message = format!("{key} is called {name} today, and is taken for it");
                linted.problems.push(Problem::warning(message).at(span));
                let setting = other_words(linted, key, setting, words);
                if let Meaning::Client(_, kind, effect) = keys::meaning(self.file, name) {
                    let setting = judged(linted, name, setting, kind, effect);
                    warn(linted, name, &setting);
                    // What is called as today counts, wherever it stands.
                    self.settings.clients.entry(name.to_owned()).or_insert(setting);
                }
            }
            Meaning::Nothing(reason) => {
                linted.problems.push(Problem::info(format!("{key} has no effect: {reason}")).at(span));
            }
            Meaning::Refused(reason, help) => {
                linted.problems.push(Problem::error(format!("{key}: {reason}")).at(span).help(help));
            }
            Meaning::Process(kind) => {
                let setting = judged(linted, key, setting, kind, Effect::Used);
                self.settings.of_process.insert(key.to_owned(), setting);
            }
            Meaning::Flow(kind) => {
                let setting = judged(linted, key, setting, kind, Effect::Used);
                self.settings.of_flow.insert(key.to_owned(), setting);
            }
            Meaning::Unknown if key == "offsets.storage" => offsets_storage(linted, &setting),
            Meaning::Unknown => {
                let message = format!("{key} is not known, and has no effect");
                let problem = Problem::warning(message).at(linted.entries[setting.entry].key_span);
                linted.problems.push(match closest(key, keys::names(self.file)) {
                    Some(name) => problem.help(format!("did you mean {name}?")),
                    None => problem,
                });
            }
        }
    }

    fn check_required(&self, name: &str, linted: &mut Linted) {
        let clients = &self.settings.clients;
        let mut missing = |key: &str, help: &str| {
            linted.problems.push(Problem::error(format!("{name}: {key} is missing")).help(help));
        };
        if !clients.contains_key("bootstrap.servers") {
            let help = match self.file {
                File::Consumer => {
                    "write bootstrap.servers = host:9092, with brokers of the source; ZooKeeper is not asked for them"
                }
                File::Producer => "write bootstrap.servers = host:9092, with brokers of the target",
            };
            missing("bootstrap.servers", help);
        }
        if self.file == File::Consumer && !clients.contains_key("group.id") {
            missing(
                "group.id",
                "the group's committed offsets are the positions: write group.id = the one that MirrorMaker has",
            );
        }
    }
}

/// Judges a value as the linter does, under the name `key`.
fn judged(linted: &mut Linted, key: &str, setting: Setting, kind: Kind, effect: Effect) -> Setting {
    linted.raw.insert(key.to_owned(), setting.clone());
    linted.judge_value(key, kind, effect);
    linted.raw.remove(key).unwrap_or(setting)
}

/// A value as it is called today.
fn other_words(linted: &mut Linted, key: &str, setting: Setting, words: &[(&str, &str)]) -> Setting {
    let Some((old, new)) = words.iter().find(|(old, _)| setting.value.trim().eq_ignore_ascii_case(old))
    else {
        return setting;
    };
    if key == "auto.offset.reset" || !key.contains("acks") {
        let span = linted.entries[setting.entry].span();
        linted.problems.push(Problem::warning(format!("{key}={old} is called {new} today")).at(span));
    }
    Setting { value: Rc::from(*new), shown: Rc::from(*new), entry: setting.entry }
}

/// What bounds how often MirrorMaker tries would lose records.
fn warn(linted: &mut Linted, key: &str, setting: &Setting) {
    let span = linted.entries[setting.entry].span();
    if key == "retries" && setting.value.trim() != i32::MAX.to_string() {
        let message = format!(
            "{key}={} bounds nothing: what is not acknowledged is sent until it is, so that nothing is lost",
            setting.shown
        );
        let does = "gives a batch up after so many tries, and with it the whole process unless \
            --abort.on.send.failure=false, when the records are lost";
        linted.problems.push(Problem::warning(message).at(span).mirror_maker(does));
    }
    if key == "partitioner.class" && !setting.value.contains("DefaultPartitioner") {
        let message = format!("{key}: the Java class {} cannot run here", setting.shown);
        let help = "leave it out: records keep the partitions that they have at the source";
        linted.problems.push(Problem::error(message).at(span).help(help));
    }
    if key == "interceptor.classes" {
        let message = format!("{key}: Java classes cannot run here; records are copied as they are");
        linted.problems.push(Problem::warning(message).at(span));
    }
}

/// Offsets in ZooKeeper are nobody's who asks the group's coordinator.
fn offsets_storage(linted: &mut Linted, setting: &Setting) {
    let span = linted.entries[setting.entry].span();
    linted.problems.push(match setting.value.trim() {
        value if value.eq_ignore_ascii_case("kafka") => {
            Problem::info("offsets.storage has no effect: offsets are always the group's in Kafka").at(span)
        }
        _ => Problem::error("offsets.storage: offsets that lie in ZooKeeper cannot be read here").at(span).help(
            "let the old MirrorMaker run once with offsets.storage=kafka and dual.commit.enabled=true, which moves them to \
             Kafka; then write offsets.storage=kafka, or leave it out",
        ),
    });
}
