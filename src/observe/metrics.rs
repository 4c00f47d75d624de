//! Prometheus text (exposition format 0.0.4) of a replicator's state.
//!
//! Made piece by piece, since a flow of a hundred thousand partitions fills tens of megabytes: a piece holds whole lines,
//! and no more than about [`PIECE_BYTES`] (a group's lines stay together). Everything is made from one state, in one pass
//! over it for each family. `ours` are the names of kmirror: they begin with `kmirror_`, carry base units and end in
//! `_total` when they only grow. `mirror_maker` are those that dashboards of MirrorMaker ask for.

mod mirror_maker;
mod ours;

use std::fmt::Write as _;
use std::ops::Bound;
use std::sync::Arc;

use crate::mirror::status::{
    BrokerStatus, FlowState, FlowStatus, GroupStatus, PartitionStatus, ReplicatorStatus,
};

/// Size at which a piece ends.
pub const PIECE_BYTES: usize = 16 * 1024;

/// By which names MirrorMaker's metrics are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// `kafka_connect_mirror_mirrorsourceconnector_…`, as the JMX exporter makes them by default, and Strimzi.
    #[default]
    Standard,
    /// Those, and `kafka_connect_mirror_source_connector_…`, by which older tutorials have renamed them.
    AlsoSourceConnector,
}

/// The pieces of one answer.
#[derive(Debug)]
pub struct Metrics {
    status: Arc<ReplicatorStatus>,
    families: Vec<&'static Family>,
    family: usize,
    flow: usize,
    at: At,
    labels: String,
}

/// Behind which entry of a flow a piece ended.
#[derive(Debug, PartialEq)]
enum At {
    Start,
    Partition((Arc<str>, i32)),
    Group(Arc<str>),
}

/// One metric.
#[derive(Debug)]
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    of: Of,
}

/// What a metric is about.
#[derive(Debug)]
enum Of {
    Process(fn(&mut Line<'_>, &ReplicatorStatus)),
    Flow(fn(&mut Line<'_>, &FlowStatus, i64)),
    Broker(fn(&BrokerStatus) -> f64),
    /// With the labels `topic`, at the source, and `partition`.
    Partition(fn(&mut Line<'_>, &PartitionStatus, i64)),
    /// With the topic's name on the target.
    RemotePartition(fn(&mut Line<'_>, &PartitionStatus), Labels),
    /// With the client id of MirrorMaker's consumer in place of both aliases.
    Consumer(fn(&mut Line<'_>, &PartitionStatus)),
    /// With the label `group`.
    Group(fn(&mut Line<'_>, &GroupStatus, i64)),
}

/// Which labels the target's alias has.
#[derive(Debug)]
enum Labels {
    /// `target`.
    Plain,
    /// `destination` as well.
    Destination,
}

impl Metrics {
    /// The text of a state.
    pub fn new(status: Arc<ReplicatorStatus>, names: Names) -> Metrics {
        let mut families: Vec<&'static Family> =
            ours::FAMILIES.iter().chain(mirror_maker::FAMILIES).collect();
        if names == Names::AlsoSourceConnector {
            families.extend(mirror_maker::RENAMED);
        }
        Metrics { status, families, family: 0, flow: 0, at: At::Start, labels: String::new() }
    }

    fn fill(&mut self, piece: &mut String) {
        let status = Arc::clone(&self.status);
        while let Some(&family) = self.families.get(self.family).filter(|_| piece.len() < PIECE_BYTES) {
            if self.flow == 0 && self.at == At::Start {
                let _ = writeln!(
                    piece,
                    "# HELP {} {}\n# TYPE {} {}",
                    family.name, family.help, family.name, family.kind
                );
            }
            if let Of::Process(write) = &family.of {
                write(&mut self.line(piece, family), &status);
            } else {
                while let Some(flow) = status.flows.get(self.flow) {
                    if self.flow(piece, family, flow, status.now_ms) == Progress::PieceIsFull {
                        return;
                    }
                    (self.flow, self.at) = (self.flow + 1, At::Start);
                }
            }
            (self.family, self.flow, self.at) = (self.family + 1, 0, At::Start);
        }
    }

    /// The lines of one flow, from where the last piece ended.
    fn flow(&mut self, piece: &mut String, family: &Family, flow: &FlowStatus, now_ms: i64) -> Progress {
        match &family.of {
            Of::Process(_) => {}
            Of::Flow(write) => write(&mut self.line_of(piece, family, flow), flow, now_ms),
            Of::Broker(value) => {
                for ((cluster, id), broker) in &flow.brokers {
                    let mut line = self.line_of(piece, family, flow);
                    line.label("cluster", cluster);
                    line.label("broker", id);
                    line.value(value(broker));
                }
            }
            Of::Partition(write) => {
                return self.partitions(piece, family, flow, |line, topic, partition| {
                    line.label("topic", topic);
                    write(line, partition, now_ms);
                });
            }
            Of::RemotePartition(write, labels) => {
                return self.partitions(piece, family, flow, |line, _, partition| {
                    if matches!(labels, Labels::Destination) {
                        line.label("destination", &flow.target);
                    }
                    line.label("topic", &partition.remote_topic);
                    write(line, partition);
                });
            }
            Of::Consumer(write) => {
                // With the quotes of a JMX name (`Sanitizer.java`), which queries expect.
                let client = format!(
                    "\"{}->{}|MirrorSourceConnector-0|replication-consumer\"",
                    flow.source, flow.target
                );
                return self.partitions(piece, family, flow, |line, topic, partition| {
                    line.labels.clear();
                    line.label("clientid", &client);
                    line.label("topic", topic);
                    write(line, partition);
                });
            }
            Of::Group(write) => return self.groups(piece, family, flow, *write, now_ms),
        }
        Progress::FlowIsDone
    }

    fn partitions(
        &mut self,
        piece: &mut String,
        family: &Family,
        flow: &FlowStatus,
        write: impl Fn(&mut Line<'_>, &str, &PartitionStatus),
    ) -> Progress {
        let from = match std::mem::replace(&mut self.at, At::Start) {
            At::Partition(key) => Bound::Excluded(key),
            _ => Bound::Unbounded,
        };
        for (key, partition) in flow.partitions.range((from, Bound::Unbounded)) {
            let mut line = self.line_of(piece, family, flow);
            line.partition = Some(key.1);
            write(&mut line, &key.0, partition);
            if piece.len() >= PIECE_BYTES {
                self.at = At::Partition(key.clone());
                return Progress::PieceIsFull;
            }
        }
        Progress::FlowIsDone
    }

    fn groups(
        &mut self,
        piece: &mut String,
        family: &Family,
        flow: &FlowStatus,
        write: fn(&mut Line<'_>, &GroupStatus, i64),
        now_ms: i64,
    ) -> Progress {
        let Some(groups) = &flow.translation.groups else { return Progress::FlowIsDone };
        let from = match std::mem::replace(&mut self.at, At::Start) {
            At::Group(group) => Bound::Excluded(group),
            _ => Bound::Unbounded,
        };
        for (name, group) in groups.groups.range((from, Bound::Unbounded)) {
            let mut line = self.line_of(piece, family, flow);
            line.label("group", name);
            write(&mut line, group, now_ms);
            if piece.len() >= PIECE_BYTES {
                self.at = At::Group(name.clone());
                return Progress::PieceIsFull;
            }
        }
        Progress::FlowIsDone
    }

    fn line<'a>(&'a mut self, out: &'a mut String, family: &Family) -> Line<'a> {
        self.labels.clear();
        Line { out, name: family.name, labels: &mut self.labels, partition: None }
    }

    fn line_of<'a>(&'a mut self, out: &'a mut String, family: &Family, flow: &FlowStatus) -> Line<'a> {
        let mut line = self.line(out, family);
        line.label("source", &flow.source);
        line.label("target", &flow.target);
        line
    }
}

#[derive(PartialEq)]
enum Progress {
    PieceIsFull,
    FlowIsDone,
}

impl Iterator for Metrics {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut piece = String::new();
        // A family may have no lines where it is taken up again.
        while piece.is_empty() && self.family < self.families.len() {
            self.fill(&mut piece);
        }
        (!piece.is_empty()).then_some(piece)
    }
}

/// Lines in the making: the name, and the labels that they share.
struct Line<'a> {
    out: &'a mut String,
    name: &'static str,
    labels: &'a mut String,
    /// The last label, where there is one.
    partition: Option<i32>,
}

impl Line<'_> {
    fn label(&mut self, name: &str, value: impl std::fmt::Display) {
        append_label(self.labels, name, value);
    }

    fn value(&mut self, value: impl std::fmt::Display) {
        self.value_with(&[], value);
    }

    /// With further labels, for this line alone.
    fn value_with(&mut self, more: &[(&str, &str)], value: impl std::fmt::Display) {
        let before = self.labels.len();
        if let Some(partition) = self.partition {
            self.label("partition", partition);
        }
        for (name, word) in more {
            self.label(name, word);
        }
        let labels = &self.labels;
        let _ = match labels.is_empty() {
            true => writeln!(self.out, "{} {value}", self.name),
            false => writeln!(self.out, "{}{{{labels}}} {value}", self.name),
        };
        self.labels.truncate(before);
    }

    fn maybe(&mut self, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.value(value);
        }
    }
}

/// Backslash, quote and line feed are escaped; nothing else may be.
fn append_label(labels: &mut String, name: &str, value: impl std::fmt::Display) {
    if !labels.is_empty() {
        labels.push(',');
    }
    let _ = write!(labels, "{name}=\"");
    // Writing to a String cannot fail.
    let _ = write!(Escaped(labels), "{value}");
    labels.push('"');
}

/// What is written to it comes out escaped.
struct Escaped<'a>(&'a mut String);

impl std::fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

/// The word of a state for metrics and JSON.
pub(super) fn state_word(state: &FlowState) -> &'static str {
    match state {
        FlowState::Starting => "starting",
        FlowState::WaitingForMirrorMaker { .. } => "waiting_for_mirrormaker",
        FlowState::Paused { .. } => "paused",
        FlowState::Standby => "standby",
        FlowState::Running => "running",
        FlowState::Stopping => "stopping",
        FlowState::Stopped => "stopped",
        FlowState::Failed(_) => "failed",
    }
}

const STATES: [&str; 8] =
    ["starting", "waiting_for_mirrormaker", "paused", "standby", "running", "stopping", "stopped", "failed"];

fn seconds(ms: i64) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;
    use crate::mirror::state::TopicPartition;

    #[test]
    fn the_text_of_an_example() {
        let text: String = Metrics::new(Arc::new(example::status()), Names::Standard).collect();
        let wanted = include_str!("testdata/metrics.txt").replace("$VERSION", env!("CARGO_PKG_VERSION"));
        assert_eq!(text, wanted, "if the change is meant, replace testdata/metrics.txt");
    }

    #[test]
    fn label_values_are_escaped() {
        let mut labels = String::new();
        append_label(&mut labels, "a", "x\\y\"z\nw\u{e9}");
        append_label(&mut labels, "b", "");
        assert_eq!(labels, "a=\"x\\\\y\\\"z\\nw\u{e9}\",b=\"\"");
    }

    /// Everything that is asked for costs in proportion to what there is: partitions, and partitions with a checkpoint.
    #[test]
    fn a_scrape_grows_as_the_flow_does() {
        let bytes_of = |partitions: i32| {
            let mut status = example::status();
            let flow = &mut status.flows[0];
            let one = flow.partitions.values().next().unwrap().clone();
            let mut groups = flow.translation.groups.as_deref().unwrap().clone();
            let group = groups.groups.values_mut().next().unwrap();
            for partition in 0..partitions {
                flow.partitions.insert((Arc::from("many"), partition), one.clone());
                Arc::make_mut(&mut group.checkpointed).insert(TopicPartition::new("A.many", partition));
            }
            flow.translation.groups = Some(Arc::new(groups));
            let pieces = Metrics::new(Arc::new(status), Names::AlsoSourceConnector);
            pieces.map(|piece| piece.len()).sum::<usize>()
        };
        let (some, twice) = (bytes_of(1_500), bytes_of(3_000));
        assert!(twice > some && twice < some * 21 / 10 && twice < 3_000 * 10_000, "{some} {twice}");
    }

    #[test]
    fn pieces_are_bounded_and_lose_nothing() {
        let mut status = example::status();
        let flow = &mut status.flows[0];
        let one = flow.partitions.values().next().unwrap().clone();
        for partition in 0..2_000 {
            flow.partitions.insert((Arc::from("many"), partition), one.clone());
        }
        let count = flow.partitions.len();
        let pieces: Vec<String> = Metrics::new(Arc::new(status), Names::Standard).collect();
        assert!(pieces.iter().all(|piece| piece.len() < PIECE_BYTES + 4096 && piece.ends_with('\n')));
        let text = pieces.concat();
        let lines =
            text.lines().filter(|line| line.starts_with("kmirror_records_total{source=\"A\"")).count();
        assert_eq!(lines, count);
        let families = ours::FAMILIES.len() + mirror_maker::FAMILIES.len();
        assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE")).count(), families);
    }
}
