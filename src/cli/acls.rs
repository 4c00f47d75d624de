//! `kmirror acls`: the least rights that the flows of a file need, as lines of `kafka-acls`. No cluster is asked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::arguments::Acls;
use super::exit::Exit;
use super::{output, render};
use crate::client;
use crate::config::{self, Options, Outside, Settings};
use crate::mirror::rights::{Name, Resource, Rights, Side, joined, rights_of};
use crate::net::sasl::Credentials;

/// For `--help`.
pub(crate) const HELP: &str = "\
Each line may be run as it is, by somebody who may give rights (--command-config names the file of that somebody). A regular
expression in topics or groups becomes the narrowest name or prefix that covers it, * if there is none; look at those lines.
Topics that somebody else creates need no Create, and what a flow does not do asks for nothing: leaving out heartbeats, offset
syncs, checkpoints or ACLs (emit.*.enabled, sync.*.enabled) leaves out their lines.

Exit codes:
  0    printed
  2    the command line or the file is at fault";

/// Where nothing in the file says who we are.
const UNKNOWN_PRINCIPAL: &str = "User:kmirror";

pub(crate) fn main(arguments: &Acls) -> Exit {
    let options =
        Options { clusters: &arguments.clusters, takeover_timeout: Duration::ZERO, outside: Outside::real() };
    let report = config::load_file(&arguments.file, &options);
    let Some(settings) = &report.settings else {
        render::say_why_not(&report);
        return Exit::Usage;
    };
    match output::print(&text(settings, arguments)) {
        Ok(()) => Exit::Done,
        Err(exit) => exit,
    }
}

fn text(settings: &Settings, arguments: &Acls) -> String {
    let process = &settings.process;
    let all = process.flows.iter().flat_map(|flow| {
        let alias = |side| match side {
            Side::Source => flow.source.to_string(),
            Side::Target => flow.target.to_string(),
        };
        rights_of(flow, &process.heartbeats).into_iter().map(move |rights| (alias(rights.side), rights))
    });
    let all = joined(all);
    let mut text = String::new();
    for (alias, cluster) in &process.clusters {
        let of_cluster: Vec<&Rights> =
            all.iter().filter(|((name, _), _)| **name == **alias).map(|(_, rights)| rights).collect();
        if !of_cluster.is_empty() {
            cluster_text(&mut text, (alias, cluster), &of_cluster, arguments);
        }
    }
    text
}

fn cluster_text(
    text: &mut String,
    (alias, cluster): (&Arc<str>, &client::Settings),
    rights: &[&Rights],
    arguments: &Acls,
) {
    let known = arguments.principal.clone().or_else(|| principal_of(cluster));
    let servers: Vec<String> = cluster.bootstrap_servers.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "# cluster {alias}");
    if known.is_none() {
        let _ = writeln!(
            text,
            "# the file does not say who kmirror is there: put its principal in the place of {UNKNOWN_PRINCIPAL}"
        );
    }
    let principal = known.unwrap_or_else(|| UNKNOWN_PRINCIPAL.to_owned());
    let mut why: BTreeMap<&str, Vec<&Rights>> = BTreeMap::new();
    for rights in rights {
        why.entry(rights.why).or_default().push(rights);
    }
    for (why, rights) in why {
        let _ = writeln!(text, "# {why}");
        for rights in rights {
            let mut line = format!("kafka-acls --bootstrap-server {}", quoted(&servers.join(",")));
            if let Some(file) = &arguments.command_config {
                let _ = write!(line, " --command-config {}", quoted(file));
            }
            let _ = write!(line, " --add --allow-principal {}", quoted(&principal));
            for operation in &rights.operations {
                let _ = write!(line, " --operation {}", operation.name());
            }
            let _ = writeln!(text, "{line} {}", resource(&rights.resource));
        }
    }
    text.push('\n');
}

/// Whom the credentials of the file name.
fn principal_of(cluster: &client::Settings) -> Option<String> {
    match &cluster.net.security.sasl.as_ref()?.credentials {
        Credentials::Password(password) => Some(format!("User:{}", password.username)),
        Credentials::Provided(source) => Some(format!("User:{}", source.last().username)),
        Credentials::Token(_) | Credentials::Aws(_) => None,
    }
}

fn resource(resource: &Resource) -> String {
    let (option, name) = match resource {
        Resource::Cluster => return "--cluster".to_owned(),
        Resource::Topic(name) => ("--topic", name),
        Resource::Group(name) => ("--group", name),
        Resource::TransactionalId(name) => ("--transactional-id", name),
    };
    match name {
        Name::Literal(name) => format!("{option} {}", quoted(name)),
        Name::Prefixed(prefix) => format!("{option} {} --resource-pattern-type prefixed", quoted(prefix)),
        Name::All => format!("{option} '*'"),
    }
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@+".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "clusters=A,B\nA.bootstrap.servers=a1:9092,a2:9092\nB.bootstrap.servers=b:9092\nA->B.enabled=true\n\
        A->B.topics=orders,pay.*\nemit.checkpoints.enabled=false\nemit.offset-syncs.enabled=false\nsync.topic.acls.enabled=false\n\
        heartbeats.replication.enabled=false\nemit.heartbeats.enabled=false\n\
        A.security.protocol=SASL_PLAINTEXT\nA.sasl.mechanism=SCRAM-SHA-512\nA.sasl.username=o'brien\nA.sasl.password=s3cret\n";

    fn printed(principal: Option<&str>) -> String {
        let report = config::load("f", FILE.as_bytes(), &Options::default());
        let settings = report.settings.unwrap_or_else(|| panic!("{:#?}", report.problems));
        let arguments = Acls {
            file: "f".into(),
            clusters: Vec::new(),
            principal: principal.map(str::to_owned),
            command_config: Some("admin.properties".to_owned()),
        };
        text(&settings, &arguments)
    }

    #[test]
    fn lines_can_be_run_as_they_are() {
        let text = printed(None);
        let begin = "kafka-acls --bootstrap-server";
        for line in [
            format!(
                "{begin} a1:9092,a2:9092 --command-config admin.properties --add --allow-principal 'User:o'\\''brien' --operation Read --operation DescribeConfigs --topic orders\n"
            ),
            format!(
                "{begin} b:9092 --command-config admin.properties --add --allow-principal User:kmirror --operation Read --operation Write --operation Create --operation Alter --operation AlterConfigs --topic A.pay --resource-pattern-type prefixed\n"
            ),
            format!(
                "{begin} b:9092 --command-config admin.properties --add --allow-principal User:kmirror --operation Read --group 'kmirror-A->B'\n"
            ),
            "# the file does not say who kmirror is there".to_owned(),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert!(!text.contains("s3cret") && !text.contains("--cluster"), "{text}");
        assert!(
            printed(Some("User:me"))
                .lines()
                .filter(|line| line.starts_with(begin))
                .all(|line| line.contains("User:me "))
        );
    }
}
