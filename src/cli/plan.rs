//! `kmirror plan`: what each flow of a file would do to its target now. Nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::arguments::Plan;
use super::output;
use super::reach::{Clusters, patiently};
use super::render;
use super::run::runtime;
use crate::client::{ConfigChange, TopicAcl};
use crate::config::{self, Options, Outside, Settings};
use crate::mirror::ProcessSettings;
use crate::mirror::dry_run::{FlowPlan, TopicChange, TopicPlan, plan_flow, plan_heartbeats};
use crate::seam::Seam;

/// The exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
A cluster that does not answer is named within seconds, and given up after --give-up-after.

Exit codes:
  0    nothing would be changed
  1    the file is at fault, a cluster does not answer, or the plan cannot be written
  2    something would be changed";

/// How long a cluster that does not answer is waited for, where the command line does not say.
pub(crate) const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

/// What a plan looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Lines for people.
    Text,
    /// One document for programs.
    Json,
}

/// What is planned for one pair of clusters.
struct Entry {
    name: String,
    kind: Kind,
    plan: Result<FlowPlan, String>,
}

/// What runs between the two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A flow.
    Flow,
    /// Nothing but heartbeats: the flow is off.
    Heartbeats,
}

type Planned = Vec<Entry>;

pub(crate) fn main(arguments: &Plan) -> ExitCode {
    let options =
        Options { clusters: &arguments.clusters, takeover_timeout: Duration::ZERO, outside: Outside::real() };
    let report = config::load_file(&arguments.file, &options);
    let Some(settings) = report.settings.clone() else {
        render::say_why_not(&report);
        return ExitCode::from(1);
    };
    let form = if arguments.json { Form::Json } else { Form::Text };
    show(settings, form, arguments.give_up_after)
}

/// Prints what the flows of settings would do.
pub(crate) fn show(settings: Settings, form: Form, give_up_after: Duration) -> ExitCode {
    let planned = match runtime() {
        Ok(runtime) => runtime.block_on(plan(settings.process, give_up_after)),
        Err(error) => {
            tracing::error!("the runtime cannot start: {error}");
            return ExitCode::from(1);
        }
    };
    let text = match form {
        Form::Json => document(&planned),
        Form::Text => text(&planned),
    };
    match output::print(&text) {
        Ok(()) => exit_code(&planned),
        Err(_) => ExitCode::from(1),
    }
}

fn exit_code(planned: &Planned) -> ExitCode {
    let failed = planned.iter().any(|entry| entry.plan.is_err());
    ExitCode::from(match (failed, has_changes(planned)) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    })
}

fn has_changes(planned: &Planned) -> bool {
    planned.iter().any(|entry| entry.plan.as_ref().is_ok_and(FlowPlan::has_changes))
}

async fn plan(process: ProcessSettings, give_up_after: Duration) -> Planned {
    let clusters = Clusters::reach(&Seam::real(), process.clusters, give_up_after).await;
    let mut planned = Vec::new();
    let names: BTreeSet<String> = process.flows.iter().map(|flow| pair(&flow.source, &flow.target)).collect();
    for flow in process.flows {
        let name = pair(&flow.source, &flow.target);
        let plan = match clusters.pair(&flow.source, &flow.target) {
            Ok((source, target)) => {
                let flow = Arc::new(flow);
                patiently(&name, &[source, target], plan_flow(&flow, &process.heartbeats, source, target))
                    .await
            }
            Err(reason) => Err(reason),
        };
        planned.push(Entry { name, kind: Kind::Flow, plan });
    }
    for heartbeats in &process.heartbeats {
        let name = pair(&heartbeats.source, &heartbeats.target);
        if names.contains(&name) {
            continue;
        }
        let plan = match clusters.one(&heartbeats.target) {
            Ok(target) => patiently(&name, &[target], plan_heartbeats(heartbeats, target)).await,
            Err(reason) => Err(reason),
        };
        planned.push(Entry { name, kind: Kind::Heartbeats, plan });
    }
    planned
}

fn pair(source: &str, target: &str) -> String {
    format!("{source}->{target}")
}

fn text(planned: &Planned) -> String {
    let mut text = String::new();
    for Entry { name, kind, plan } in planned {
        let remark = if *kind == Kind::Heartbeats { "  (heartbeats alone)" } else { "" };
        let _ = writeln!(text, "{name}{remark}");
        match plan {
            Ok(plan) if *kind == Kind::Heartbeats => internal_topics(&mut text, plan),
            Ok(plan) => flow(&mut text, plan),
            Err(error) => {
                let _ = writeln!(text, "  error: {error}");
            }
        }
    }
    text
}

fn internal_topics(text: &mut String, plan: &FlowPlan) {
    for topic in plan.internal_topics.iter().filter(|topic| !topic.is_there) {
        let _ = writeln!(text, "  + internal topic {} on {}", topic.name, topic.cluster);
    }
}

fn flow(text: &mut String, plan: &FlowPlan) {
    internal_topics(text, plan);
    let mut line = |sign: char, words: &str| {
        let _ = writeln!(text, "  {sign} {words}");
    };
    for topic in plan.topics.iter().filter(|topic| topic.is_changed()) {
        let (sign, words) = topic_line(topic);
        line(sign, &words);
        for change in &topic.configs {
            line('~', &format!("  {change}"));
        }
    }
    for topic in &plan.topics {
        if let Some(choice) = topic.partitioning {
            line('=', &format!("topic {}: {choice}", topic.source));
        }
    }
    for acl in &plan.acls {
        line('+', &format!("acl {}", acl_words(acl)));
    }
    for (group, name) in plan.groups.iter().filter(|(group, name)| &***group != name.as_str()) {
        line('=', &format!("group {group} as {name}"));
    }
    for (topic, reason) in &plan.refused {
        line('!', &format!("topic {topic} cannot be replicated: {reason}"));
    }
    for (topic, rule) in &plan.left_out {
        line('-', &format!("topic {topic} is left out: {rule}"));
    }
    for note in &plan.notes {
        line('?', note);
    }
    let changed = plan.topics.iter().filter(|topic| topic.is_changed()).count();
    let summary = format!(
        "{} topics, {changed} with changes, {} left out, {} refused, {} ACLs to create; {} groups, {} left out",
        plan.topics.len(),
        plan.left_out.len(),
        plan.refused.len(),
        plan.acls.len(),
        plan.groups.len(),
        plan.groups_left_out
    );
    line('=', &summary);
}

fn topic_line(topic: &TopicPlan) -> (char, String) {
    let (source, remote, partitions) = (&topic.source, &topic.remote, topic.partitions);
    match &topic.change {
        TopicChange::Create { replication_factor, configs } => {
            let mut words =
                format!("topic {source} as {remote}: {partitions} partitions, {replication_factor} replicas");
            for (name, value) in configs {
                let _ = write!(words, ", {name}={value}");
            }
            ('+', words)
        }
        TopicChange::Grow { from } => {
            ('~', format!("topic {source} as {remote}: {from} to {partitions} partitions"))
        }
        TopicChange::Keep => ('~', format!("topic {source} as {remote}")),
    }
}

fn acl_words(acl: &TopicAcl) -> String {
    format!(
        "{}: {} {} {} from {}",
        acl.topic,
        acl.principal,
        acl.permission.name(),
        acl.operation.name(),
        acl.host
    )
}

fn document(planned: &Planned) -> String {
    let flows: Vec<Value> = planned
        .iter()
        .map(|Entry { name, kind, plan }| match plan {
            Ok(plan) => flow_document(name, *kind, plan),
            Err(error) => json!({ "flow": name, "error": error }),
        })
        .collect();
    format!("{:#}\n", json!({ "changes": has_changes(planned), "flows": flows }))
}

fn flow_document(name: &str, kind: Kind, plan: &FlowPlan) -> Value {
    let reasons = |reasons: &BTreeMap<Arc<str>, String>| -> Map<String, Value> {
        reasons.iter().map(|(topic, reason)| (topic.to_string(), json!(reason))).collect()
    };
    let topics: Vec<Value> = plan.topics.iter().map(topic_document).collect();
    let acls: Vec<Value> = plan
        .acls
        .iter()
        .map(|acl| {
            json!({
                "topic": &*acl.topic,
                "principal": acl.principal,
                "permission": acl.permission.name(),
                "operation": acl.operation.name(),
                "host": acl.host,
            })
        })
        .collect();
    let internal: Vec<Value> = plan
        .internal_topics
        .iter()
        .map(|topic| {
            let action = if topic.is_there { "keep" } else { "create" };
            json!({ "cluster": &*topic.cluster, "topic": topic.name, "action": action })
        })
        .collect();
    json!({
        "flow": name,
        "heartbeats_alone": kind == Kind::Heartbeats,
        "topics": topics,
        "left_out": reasons(&plan.left_out),
        "refused": reasons(&plan.refused),
        "acls": acls,
        "internal_topics": internal,
        "groups": plan.groups.iter().map(|(group, name)| (group.to_string(), json!(name))).collect::<Map<String, Value>>(),
        "groups_left_out": plan.groups_left_out,
        "notes": plan.notes,
    })
}

fn topic_document(topic: &TopicPlan) -> Value {
    let mut document = json!({
        "source": &*topic.source,
        "remote": &*topic.remote,
        "partitions": topic.partitions,
        "action": match topic.change {
            TopicChange::Create { .. } => "create",
            TopicChange::Grow { .. } => "grow",
            TopicChange::Keep => "keep",
        },
    });
    if let Some(choice) = topic.partitioning {
        document["partitioning"] =
            json!({ "kmirror.partitioning": choice.partitioning.to_string(), "why": choice.to_string() });
    }
    match &topic.change {
        TopicChange::Create { replication_factor, configs } => {
            document["replication_factor"] = json!(replication_factor);
            document["configs"] = json!(configs);
        }
        TopicChange::Grow { from } => document["partitions_there"] = json!(from),
        TopicChange::Keep => {}
    }
    let changes: Map<String, Value> = topic
        .configs
        .iter()
        .map(|change| match change {
            ConfigChange::Set(name, value) => (name.clone(), json!(value)),
            ConfigChange::Delete(name) => (name.clone(), Value::Null),
        })
        .collect();
    if !changes.is_empty() {
        document["config_changes"] = Value::Object(changes);
    }
    document
}
