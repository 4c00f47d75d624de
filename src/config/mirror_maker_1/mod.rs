//! MirrorMaker 1's command line and files as the settings of the same engine: one flow for each `--consumer.config`, all into the
//! cluster of `--producer.config`, with the source's consumer group in the place of MirrorMaker 2's topics.
//!
//! Each file is looked at by itself (`file`), under the keys' own names; then its settings go where a file of MirrorMaker 2 has
//! them, so that the same readers read them, with their defaults and refusals. What a flow of MirrorMaker 1 does not have
//! (syncs, checkpoints, heartbeats, topics of its own on the target) is switched off last.

mod file;
mod keys;
mod member;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::build;
use super::lint::Linted;
use super::problem::{Problem, Severity, SourceText};
use super::providers::Outside;
use super::reader::{Problems, Reader, Section};
use super::scoping::{Scope, Setting};
use super::{Options, Report, Settings, files};
use crate::mirror::{
    FlowSettings, Gathering, OnOversize, OnPaused, OnRefused, PatternList, PolicyKind, ReplicationFactor,
    TopicRewrites, WantedPartitioning,
};
use file::FileSettings;
use keys::File;

/// What a choice of topics looks like.
const EXAMPLE: &str = "--include 'orders|payments.*'";

/// What stands on the command line.
#[derive(Clone, Debug)]
pub struct MirrorMaker1 {
    /// `--consumer.config`: one source each.
    pub consumer_configs: Vec<PathBuf>,
    /// `--producer.config`.
    pub producer_config: PathBuf,
    /// `--include` or `--whitelist`, with the flag that it came by.
    pub include: Option<(&'static str, String)>,
    /// `--blacklist`: everything else.
    pub exclude: Option<String>,
    /// `--offset.commit.interval.ms`.
    pub offset_commit_interval: Option<Duration>,
    /// `--abort.on.send.failure`.
    pub on_send_failure: OnSendFailure,
    /// `--rewrite.topics`.
    pub rewrite_topics: Vec<String>,
}

/// `--abort.on.send.failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSendFailure {
    /// `true`: nothing behind a record that the target refuses is copied.
    Stop,
    /// `false`: it is left out and counted.
    Skip,
}

/// The alias of the target.
const TARGET: &str = "target";

/// Reads everything that a command line names.
pub fn load_mirror_maker_1(command: &MirrorMaker1, outside: Outside<'_>) -> Report {
    let mut source = SourceText::new("command line", b"");
    let mut loader = Loader { command, outside, problems: Problems::default() };
    let built = loader.load(&mut source);
    let mut problems: Vec<Problem> =
        loader.problems.into_list().into_iter().map(Problem::printable).collect();
    problems.sort_by_key(|problem| (problem.severity, problem.span.map_or(usize::MAX, |span| span.start)));
    let failed = problems.iter().any(|problem| problem.severity == Severity::Error);
    let (settings, resolved) = built.unzip();
    Report {
        settings: settings.filter(|_| !failed),
        problems,
        resolved: resolved.unwrap_or_default(),
        source,
    }
}

struct Loader<'a> {
    command: &'a MirrorMaker1,
    outside: Outside<'a>,
    problems: Problems,
}

impl Loader<'_> {
    fn load(&mut self, source: &mut SourceText) -> Option<(Settings, Vec<Section>)> {
        let topics = self.topics();
        let rewrites = self.rewrites();
        let consumers = self.command.consumer_configs.iter();
        let consumers: Vec<Option<FileSettings>> =
            consumers.map(|path| self.read(path, File::Consumer, source)).collect();
        let producer = self.read(&self.command.producer_config, File::Producer, source);
        let consumers = consumers.into_iter().collect::<Option<Vec<FileSettings>>>()?;
        let linted = join(consumers, producer?);
        if self.problems.has_errors() {
            return None;
        }
        let outside = Outside { env: self.outside.env, read: self.outside.read };
        let options = Options { clusters: &[], takeover_timeout: Duration::ZERO, outside };
        let mut said = Problems::default();
        let mut built = build::build(&linted, source, &options, &mut said);
        // Remarks about no line are about files of MirrorMaker 2.
        let is_kept = |problem: &Problem| problem.span.is_some() || problem.severity != Severity::Info;
        said.into_list().into_iter().filter(is_kept).for_each(|problem| self.problems.push(problem));
        for flow in &mut built.process.flows {
            self.as_mirror_maker_1(flow, &topics, &rewrites);
            let mut section = Section { title: format!("group of {}", flow.source), settings: Vec::new() };
            let scope = consumer_scope(&linted.raw, &flow.source);
            let mut reader = Reader {
                entries: &linted.entries,
                source,
                problems: &mut self.problems,
                section: &mut section,
                scope: &scope,
                prefix: "",
            };
            flow.group = member::read(&mut reader);
            flow.gathering = gathering(&linted.raw);
            let partitioning = linted.raw.get(&format!("{}->{TARGET}.kmirror.partitioning", flow.source));
            if let (Some(group), Some(setting)) = (&mut flow.group, partitioning) {
                group.partitioning = match setting.value.trim() {
                    "key" => WantedPartitioning::Key,
                    _ => WantedPartitioning::Preserve,
                };
            }
            if let (Some(group), Some(cluster)) = (&flow.group, built.process.clusters.get_mut(&flow.source))
                && !scope.contains_key("client.id")
            {
                // As MirrorMaker 1 calls its first consumer, since quotas go by it.
                cluster.net.client_id = format!("{}-0", group.group_id);
            }
            built.sections.push(section);
        }
        built.process.heartbeats.clear();
        Some((Settings { process: built.process, observe: built.observe }, built.sections))
    }

    fn read(&mut self, path: &Path, file: File, source: &mut SourceText) -> Option<FileSettings> {
        let name = path.display().to_string();
        let bytes = match files::read_file(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.problems.push(Problem::error(format!("{name} cannot be read: {error}")));
                return None;
            }
        };
        file::read(&name, &bytes, file, source, &self.outside, &mut self.problems)
    }

    /// The topics that are taken, and those that are not.
    fn topics(&mut self) -> (PatternList, PatternList) {
        let mut compile = |flag: &str, pattern: &str| {
            let cleaned = cleaned(pattern);
            if cleaned.is_empty() && flag != "--blacklist" {
                let message = format!("{flag} is empty: which topics are to be copied is not said");
                self.problems.push(Problem::error(message).help(EXAMPLE));
            }
            PatternList::new(&[&cleaned]).unwrap_or_else(|error| {
                self.problems.push(Problem::error(format!("{flag}: {error}")));
                PatternList::default()
            })
        };
        match (&self.command.include, &self.command.exclude) {
            (Some((flag, include)), _) => (compile(flag, include), PatternList::default()),
            (None, Some(exclude)) => (compile("--blacklist", ".*"), compile("--blacklist", exclude)),
            (None, None) => {
                let problem = Problem::error("which topics are to be copied is not said");
                self.problems.push(problem.help(EXAMPLE));
                (PatternList::default(), PatternList::default())
            }
        }
    }

    fn rewrites(&mut self) -> TopicRewrites {
        TopicRewrites::new(&self.command.rewrite_topics.join(",")).unwrap_or_else(|reason| {
            let help = "as in --rewrite.topics 'orders:orders-copy,eu-(.*):$1'";
            self.problems.push(Problem::error(format!("--rewrite.topics: {reason}")).help(help));
            TopicRewrites::default()
        })
    }

    /// Switches off what MirrorMaker 1 does not do, and on what its flags say.
    fn as_mirror_maker_1(
        &self,
        flow: &mut FlowSettings,
        (topics, exclude): &(PatternList, PatternList),
        rewrites: &TopicRewrites,
    ) {
        (flow.topics, flow.topics_exclude) = (topics.clone(), exclude.clone());
        flow.policy.kind = PolicyKind::Same;
        flow.policy.rewrites = rewrites.clone();
        flow.translation.offset_syncs = None;
        flow.translation.emit_checkpoints_interval = None;
        flow.translation.sync_group_offsets_interval = None;
        (flow.sync_topic_configs_interval, flow.sync_topic_acls_interval) = (None, None);
        (flow.heartbeats_replication, flow.on_paused) = (false, OnPaused::Ignore);
        // As many replicas as the target gives to topics that come by themselves.
        flow.replication_factor = ReplicationFactor::Named(-1);
        if let Some(interval) = self.command.offset_commit_interval {
            flow.offset_flush_interval = interval;
        }
        if self.command.on_send_failure == OnSendFailure::Skip {
            (flow.on_oversize, flow.on_refused) = (OnOversize::Skip, OnRefused::Skip);
        }
    }
}

/// How large batches become where records are dealt out by key.
fn gathering(raw: &Scope) -> Gathering {
    let number = |key: &str| {
        let setting = raw.get(&format!("{TARGET}.producer.{key}"))?;
        setting.value.trim().parse::<u64>().ok()
    };
    let unset = Gathering::default();
    Gathering {
        batch_bytes_max: number("batch.size").map_or(unset.batch_bytes_max, |bytes| bytes as usize),
        linger: number("linger.ms").map_or(unset.linger, Duration::from_millis),
    }
}

/// `Whitelist` of `TopicFilter.scala`: without blanks and quotes around it, and a comma is an "or".
fn cleaned(pattern: &str) -> String {
    let joined = pattern.trim().replace(',', "|").replace(' ', "");
    joined.trim_matches(['"', '\'']).to_owned()
}

/// All files as one, with their settings where a file of MirrorMaker 2 has them.
fn join(consumers: Vec<FileSettings>, producer: FileSettings) -> Linted {
    let mut linted =
        Linted { entries: Vec::new(), raw: Scope::new(), clusters: Vec::new(), problems: Vec::new() };
    let several = consumers.len() > 1;
    let aliases: Vec<String> = (1..=consumers.len())
        .map(|number| if several { format!("source-{number}") } else { "source".to_owned() })
        .collect();
    for (index, (alias, consumer)) in aliases.iter().zip(consumers).enumerate() {
        let flow = format!("{alias}->{TARGET}");
        let on = Setting { value: "true".into(), shown: "true".into(), entry: linted.entries.len() };
        let before = linted.entries.len();
        linted.raw.insert(format!("{flow}.enabled"), on);
        let reset = consumer.clients.contains_key("auto.offset.reset");
        put_client(&mut linted.raw, alias, "consumer", consumer.clients, before);
        if !reset {
            let latest = Setting { value: "latest".into(), shown: "latest".into(), entry: before };
            linted.raw.insert(format!("{alias}.consumer.auto.offset.reset"), latest);
        }
        for (key, setting) in consumer.of_flow {
            linted.raw.insert(format!("{flow}.{key}"), moved(setting, before));
        }
        // What holds for the process stands in the first file.
        for (key, setting) in consumer.of_process.into_iter().filter(|_| index == 0) {
            linted.raw.insert(key, moved(setting, before));
        }
        linted.entries.extend(consumer.entries);
    }
    let before = linted.entries.len();
    put_client(&mut linted.raw, TARGET, "producer", producer.clients, before);
    linted.entries.extend(producer.entries);
    linted.clusters = aliases.into_iter().chain([TARGET.to_owned()]).collect();
    linted
}

fn put_client(raw: &mut Scope, alias: &str, client: &str, settings: Scope, before: usize) {
    for (key, setting) in settings {
        let key = match super::keys::is_cluster_wide(&key) {
            true => format!("{alias}.{key}"),
            false => format!("{alias}.{client}.{key}"),
        };
        raw.insert(key, moved(setting, before));
    }
}

fn moved(setting: Setting, before: usize) -> Setting {
    Setting { entry: setting.entry + before, ..setting }
}

/// A consumer's keys again, for what only a member of a group reads.
fn consumer_scope(raw: &Scope, alias: &str) -> Scope {
    let prefix = format!("{alias}.consumer.");
    let keyed = raw.iter().filter_map(|(key, setting)| Some((key.strip_prefix(&prefix)?, setting)));
    keyed.map(|(key, setting)| (key.to_owned(), setting.clone())).collect()
}

#[cfg(test)]
mod tests;
