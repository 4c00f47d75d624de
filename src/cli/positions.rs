//! `kmirror positions`: how far the flows of a file are, and moving those that stand still; a dry run without `--execute`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::arguments::Positions;
use super::exit::Exit;
use super::reach::{Clusters, patiently};
use super::render;
use super::run::{failed, runtime};
use crate::client::{self, Cluster};
use crate::config::{self, Options, Outside, Settings};
use crate::mirror::positions::{self, Change, FlowPositions, Moves, PartitionPosition, execute, plan};
use crate::mirror::state::TopicPartition;
use crate::mirror::{FlowSettings, PatternList, ProcessSettings};
use crate::seam::Seam;

/// Words for `--help`.
pub(crate) const HELP: &str = "\
Without an option that moves, positions are shown. With one, what would be moved; --execute moves it. A flow that runs, with kmirror
or with MirrorMaker, is never moved. Offsets are those of the source: the next one to be copied. They are stored where MirrorMaker
keeps its own as well, so that either goes on from there.

A cluster that does not answer is named within seconds, and given up after --give-up-after.

Exit codes:
  0    shown, or moved
  1    some partitions could not be moved, or there was nothing to move; the others were moved
  2    the command line or the file is at fault, or --topics matches no topic; nothing was done
  3    the flow runs, or a cluster does not answer; nothing was done";

/// What came of a flow.
struct Outcome {
    positions: FlowPositions,
    moves: Option<Moves>,
    executed: bool,
}

impl Outcome {
    fn is_empty(&self) -> bool {
        self.positions.partitions.is_empty()
    }

    fn name(&self) -> String {
        format!("{}->{}", self.positions.source, self.positions.target)
    }
}

pub(crate) fn main(arguments: &Positions) -> Exit {
    let options =
        Options { clusters: &arguments.clusters, takeover_timeout: Duration::ZERO, outside: Outside::real() };
    let report = config::load_file(&arguments.file, &options);
    let Some(settings) = report.settings.clone() else {
        render::say_why_not(&report);
        return Exit::Usage;
    };
    let (change, topics, flows) = match (change(arguments), topics(arguments), flows(arguments, &settings)) {
        (Ok(change), Ok(topics), Ok(flows)) => (change, topics, flows),
        (Err(reason), ..) | (_, Err(reason), _) | (.., Err(reason)) => {
            tracing::error!("{reason}");
            return Exit::Usage;
        }
    };
    let worked = match runtime() {
        Ok(runtime) => runtime.block_on(work(&settings, flows, arguments, change.as_ref(), topics.as_ref())),
        Err(error) => return failed(&format!("the runtime cannot start: {error}")),
    };
    let outcomes = match worked {
        Ok(outcomes) => outcomes,
        Err(reason) => return failed(&reason),
    };
    if let Some(pattern) = arguments.topics.as_ref().filter(|_| outcomes.iter().all(Outcome::is_empty)) {
        let flows: Vec<String> = outcomes.iter().map(Outcome::name).collect();
        tracing::error!("--topics {pattern} matches no topic of {}", flows.join(", "));
        return Exit::Usage;
    }
    let text = if arguments.json { document(&outcomes) } else { text(&outcomes) };
    // A reader that went away, as `head` does, is no failure.
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let fell_short =
        |moves: &Moves| !moves.refused.is_empty() || (moves.moves.is_empty() && arguments.set.is_empty());
    if outcomes.iter().any(|outcome| outcome.moves.as_ref().is_some_and(fell_short)) {
        Exit::Incomplete
    } else {
        Exit::Done
    }
}

fn change(arguments: &Positions) -> Result<Option<Change>, String> {
    let mut set = BTreeMap::new();
    for (partition, offset) in &arguments.set {
        if set.insert(partition.clone(), *offset).is_some_and(|before| before != *offset) {
            return Err(format!("--set names {partition} twice"));
        }
    }
    Ok(match arguments {
        _ if !set.is_empty() => Some(Change::Set(set)),
        Positions { to_earliest: true, .. } => Some(Change::Earliest),
        Positions { to_latest: true, .. } => Some(Change::Latest),
        Positions { to_timestamp: Some(timestamp), .. } => Some(Change::Timestamp(*timestamp)),
        _ => None,
    })
}

fn topics(arguments: &Positions) -> Result<Option<PatternList>, String> {
    let Some(pattern) = &arguments.topics else { return Ok(None) };
    PatternList::new(&[pattern]).map(Some).map_err(|error| format!("--topics: {error}"))
}

/// The flows that are meant. Only one is moved at a time: an offset of one source means nothing in another.
fn flows(arguments: &Positions, settings: &Settings) -> Result<Vec<FlowSettings>, String> {
    let name = |flow: &FlowSettings| format!("{}->{}", flow.source, flow.target);
    let all = &settings.process.flows;
    let meant = |flow: &&FlowSettings| arguments.flow.as_ref().is_none_or(|named| *named == name(flow));
    let flows: Vec<FlowSettings> = all.iter().filter(meant).cloned().collect();
    let names = || all.iter().map(name).collect::<Vec<_>>().join(", ");
    if flows.is_empty() {
        return Err(format!("--flow names none of the flows: {}", names()));
    }
    if flows.len() > 1 && change(arguments)?.is_some() {
        return Err(format!("say which flow is to be moved with --flow: {}", names()));
    }
    Ok(flows)
}

async fn work(
    settings: &Settings,
    flows: Vec<FlowSettings>,
    arguments: &Positions,
    change: Option<&Change>,
    topics: Option<&PatternList>,
) -> Result<Vec<Outcome>, String> {
    let process = &settings.process;
    let clusters = Clusters::reach(&Seam::real(), of_flows(process, &flows), arguments.give_up_after).await;
    let mut outcomes = Vec::new();
    for flow in flows {
        let name = format!("{}->{}", flow.source, flow.target);
        let told = |reason: String| format!("{name}: {reason}");
        let (source, target) = clusters.pair(&flow.source, &flow.target).map_err(told)?;
        let flow = Arc::new(flow);
        let work = one(&flow, source, target, arguments, change, topics);
        outcomes.push(patiently(&name, &[source, target], work).await.map_err(told)?);
    }
    Ok(outcomes)
}

/// What is not asked need not answer.
fn of_flows(process: &ProcessSettings, flows: &[FlowSettings]) -> BTreeMap<Arc<str>, client::Settings> {
    let is_asked = |alias: &Arc<str>| flows.iter().any(|flow| flow.source == *alias || flow.target == *alias);
    let clusters = process.clusters.iter().filter(|(alias, _)| is_asked(alias));
    clusters.map(|(alias, settings)| (alias.clone(), settings.clone())).collect()
}

async fn one(
    flow: &Arc<FlowSettings>,
    source: &Cluster,
    target: &Cluster,
    arguments: &Positions,
    change: Option<&Change>,
    topics: Option<&PatternList>,
) -> Result<Outcome, String> {
    let positions = positions::positions(flow, source, target, topics).await?;
    let Some(change) = change else { return Ok(Outcome { positions, moves: None, executed: false }) };
    if let Some(alive) = &positions.alive {
        return Err(format!("{alive}; stop it before its positions are moved"));
    }
    let moves = plan(flow, source, &positions, change).await?;
    let executed = arguments.execute && !moves.moves.is_empty();
    if executed {
        execute(flow, source, target, &positions, &moves.moves).await?;
    }
    Ok(Outcome { positions, moves: Some(moves), executed })
}

fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for Outcome { positions, moves, executed } in outcomes {
        let FlowPositions { source, target, offsets_topic, state_topic, .. } = positions;
        let _ = writeln!(text, "{source}->{target}  ({offsets_topic} and {state_topic} on {target})");
        if let Some(alive) = &positions.alive {
            let _ = writeln!(text, "it runs, and goes on while you read: {alive}");
        }
        match moves {
            None => shown(&mut text, positions),
            Some(moves) => {
                moved(&mut text, positions, moves);
                let _ = match (moves.moves.len(), executed) {
                    (0, _) => writeln!(text, "nothing to move"),
                    (1, true) => writeln!(text, "1 position is moved"),
                    (1, false) => writeln!(text, "nothing is moved yet: --execute moves this position"),
                    (count, true) => writeln!(text, "{count} positions are moved"),
                    (count, false) => {
                        writeln!(text, "nothing is moved yet: --execute moves these {count} positions")
                    }
                };
            }
        }
    }
    text
}

fn shown(text: &mut String, positions: &FlowPositions) {
    let mut rows = vec![
        ["TOPIC", "PARTITION", "POSITION", "LOG-START", "LOG-END", "LAG", "STORED-BY"].map(str::to_owned),
    ];
    for (partition, position) in &positions.partitions {
        rows.push([
            partition.topic.to_string(),
            partition.partition.to_string(),
            number(position.next),
            number(position.log_start),
            number(position.log_end),
            number(position.lag()),
            position.stored_by.name().to_owned(),
        ]);
    }
    table(text, &rows);
    for (topic, reason) in &positions.left_out {
        let _ = writeln!(text, "  {topic} is not copied now: {reason}");
    }
}

fn moved(text: &mut String, positions: &FlowPositions, moves: &Moves) {
    let mut rows = vec![["TOPIC", "PARTITION", "POSITION", "NEW-POSITION", "NOTE"].map(str::to_owned)];
    let before = |partition| number(positions.partitions.get(partition).and_then(|position| position.next));
    for (partition, to) in &moves.moves {
        let note = to.note.unwrap_or_default().to_owned();
        rows.push([
            partition.topic.to_string(),
            partition.partition.to_string(),
            before(partition),
            to.to.to_string(),
            note,
        ]);
    }
    for (words, partitions) in [("cannot be moved", &moves.refused), ("not moved", &moves.skipped)] {
        for (partition, reason) in partitions {
            let (topic, number) = (partition.topic.to_string(), partition.partition.to_string());
            rows.push([topic, number, before(partition), "-".to_owned(), format!("{words}: {reason}")]);
        }
    }
    table(text, &rows);
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// Columns as wide as their widest entry.
fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "  {}", line.trim_end());
    }
}

fn document(outcomes: &[Outcome]) -> String {
    let flows: Vec<Value> = outcomes.iter().map(flow_document).collect();
    format!("{:#}\n", json!({ "flows": flows }))
}

fn flow_document(Outcome { positions, moves, executed }: &Outcome) -> Value {
    let place =
        |partition: &TopicPartition| json!({ "topic": &*partition.topic, "partition": partition.partition });
    let join = |place: Value, more: Value| match (place, more) {
        (Value::Object(mut place), Value::Object(more)) => {
            place.extend(more);
            Value::Object(place)
        }
        (place, _) => place,
    };
    let partition = |(partition, position): (&TopicPartition, &PartitionPosition)| {
        let more = json!({
            "position": position.next,
            "downstream": position.downstream,
            "stored_by": position.stored_by.name(),
            "log_start": position.log_start,
            "log_end": position.log_end,
            "lag": position.lag(),
        });
        join(place(partition), more)
    };
    let mut document = Map::new();
    document.insert("flow".to_owned(), json!(format!("{}->{}", positions.source, positions.target)));
    document.insert("offsets_topic".to_owned(), json!(positions.offsets_topic));
    document.insert("state_topic".to_owned(), json!(positions.state_topic));
    document.insert("alive".to_owned(), json!(positions.alive));
    document.insert("partitions".to_owned(), positions.partitions.iter().map(partition).collect());
    let left_out = positions.left_out.iter().map(|(topic, reason)| (topic.to_string(), json!(reason)));
    document.insert("left_out".to_owned(), Value::Object(left_out.collect()));
    if let Some(moves) = moves {
        let moved = moves.moves.iter().map(|(partition, to)| {
            let before = positions.partitions.get(partition).and_then(|position| position.next);
            join(place(partition), json!({ "position": before, "new_position": to.to, "note": to.note }))
        });
        let with_reason = |(partition, reason): (&TopicPartition, &String)| {
            join(place(partition), json!({ "reason": reason }))
        };
        document.insert("moves".to_owned(), moved.collect());
        document.insert("refused".to_owned(), moves.refused.iter().map(with_reason).collect());
        document.insert("skipped".to_owned(), moves.skipped.iter().map(with_reason).collect());
        document.insert("executed".to_owned(), json!(executed));
    }
    Value::Object(document)
}
