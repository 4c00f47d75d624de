//! Files in shapes that people copy from, in `shapes/`: what `kmirror check` makes of each.

use kmirror::config::{Options, Severity, load};
use protocol_tests::workspace;

/// The flows of a file, and what is said to it above the level of a hint.
#[track_caller]
fn check(file: &str, change: impl Fn(String) -> String, flows: &[&str], said: &[&str]) {
    let text = std::fs::read_to_string(workspace().join("protocol-tests/shapes").join(file)).unwrap();
    let report = load(file, change(text).as_bytes(), &Options::default());
    let found: Vec<String> = report
        .settings
        .iter()
        .flat_map(|settings| &settings.process.flows)
        .map(|flow| format!("{}->{} {}", flow.source, flow.target, flow.topics.patterns().join(" ")))
        .collect();
    let problems: Vec<String> = report
        .problems
        .iter()
        .filter(|problem| problem.severity < Severity::Info)
        .map(|problem| format!("{}: {}", problem.severity, problem.message))
        .collect();
    assert_eq!(found, flows, "{problems:#?}");
    assert_eq!(problems, said);
}

fn unchanged(text: String) -> String {
    text
}

#[test]
fn the_file_that_comes_with_kafka() {
    check("as-kafka-ships-it.properties", unchanged, &["A->B .*", "B->A .*"], &[]);
}

/// The `topics.exclude` of guides is that of releases before 4.0; written out, it is taken as it stands.
#[test]
fn active_active_of_three_sites() {
    let sites = ["us-west", "us-east", "us-north"];
    let pairs = sites.iter().flat_map(|from| sites.iter().map(move |to| (from, to)));
    let flows: Vec<String> = pairs
        .filter(|(from, to)| from != to)
        .map(|(from, to)| format!("{from}->{to} topicA topicB.*"))
        .collect();
    let flows: Vec<&str> = flows.iter().map(String::as_str).collect();
    check("three-sites.properties", unchanged, &flows, &[]);
}

#[test]
fn a_migration_between_managed_clusters() {
    let class = "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy";
    check(
        "a-managed-service.properties",
        unchanged,
        &[],
        &[&format!("error: replication.policy.class: {class} is a Java class that is not known here")],
    );
    let identity = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy";
    check(
        "a-managed-service.properties",
        |text| text.replace(class, identity),
        &["msksource->mskdest Example.*"],
        &[],
    );
}
