//! Files in the shapes that go round: what they become, and what `check` says to them.

use super::*;

/// Loads a file; answers with its flows and with what is wrong with it, the errors first.
fn load_text(text: &str) -> (Vec<String>, Vec<String>) {
    let report = load("mm2.properties", text.as_bytes(), &Options::default());
    let flow = |flow: &crate::mirror::FlowSettings| {
        format!("{}->{} {}", flow.source, flow.target, flow.topics.patterns().join(" "))
    };
    let flows = report.settings.iter().flat_map(|settings| settings.process.flows.iter().map(flow)).collect();
    let said = report.problems.iter().filter(|problem| problem.severity < Severity::Info);
    (flows, said.map(|problem| format!("{}: {}", problem.severity, problem.message)).collect())
}

#[track_caller]
fn check(text: &str, flows: &[&str], said: &[&str]) {
    let (found, problems) = load_text(text);
    assert_eq!(found, flows, "{problems:#?}");
    assert_eq!(problems, said);
}

/// As guides to geo-replication have it: topics and groups for all flows, keys of the clusters' clients.
#[test]
fn active_active_of_a_guide() {
    check(
        "# sites\nclusters = us-west, us-east\nus-west.bootstrap.servers = w1:9092,w2:9092\n\
         us-east.bootstrap.servers = e1:9092\n\ntopics = .*\ngroups = .*\n\
         topics.exclude = .*[\\\\-\\\\.]internal, .*\\\\.replica, __consumer_offsets\n\
         us-west->us-east.enabled = true\nus-east->us-west.enabled = true\n\
         us-west.consumer.isolation.level = read_committed\nus-east.consumer.isolation.level = read_committed\n\
         us-east.producer.compression.type = gzip\nus-east.producer.buffer.memory = 32768\n\
         us-east.admin.request.timeout.ms = 20000\nreplication.factor = 3\n",
        &["us-west->us-east .*", "us-east->us-west .*"],
        &[],
    );
}

/// As generators of configuration write it: everything spelled out, replication factors, sync intervals, Connect's keys.
#[test]
fn a_generated_file() {
    check(
        "clusters=source,target\nsource.bootstrap.servers=s:9092\ntarget.bootstrap.servers=t:9092\n\
         source.config.storage.replication.factor=-1\ntarget.config.storage.replication.factor=-1\n\
         target.offset.storage.replication.factor=-1\ntarget.status.storage.replication.factor=-1\n\
         source->target.enabled=true\ntarget->source.enabled=false\nsource->target.topics=orders|payments.*\n\
         source->target.groups=.*\nsource->target.emit.checkpoints.interval.seconds=10\n\
         replication.policy.class=io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy\n\
         offset-syncs.topic.replication.factor=-1\ncheckpoints.topic.replication.factor=-1\nheartbeats.topic.replication.factor=-1\n\
         key.converter=org.apache.kafka.connect.converters.ByteArrayConverter\n\
         value.converter=org.apache.kafka.connect.converters.ByteArrayConverter\ntasks.max=10\nrefresh.topics.interval.seconds=30\n\
         source->target.emit.checkpoints.enabled=true\nsource->target.source.consumer.auto.offset.reset=latest\n",
        &["source->target orders|payments.*"],
        &[],
    );
}

/// Odd spacing, all three separators, continued lines, Windows' ends of lines, a comment in the middle.
#[test]
fn odd_spacing() {
    check(
        "  clusters:A ,  B\r\nA.bootstrap.servers   a1:9092 , \\\r\n     a2:9092\r\nB.bootstrap.servers=b:9092   \r\n\
         ! both ways\r\nA->B.enabled:true\t\r\nA->B.topics\torders,\\\r\n  payments\r\n",
        &["A->B orders payments"],
        &[],
    );
}

/// What people get wrong, and is plain all the same.
#[test]
fn plain_mistakes() {
    check(
        "clusters = \"A, B\"\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA -> B.enabled = true\n\
         A->B.topics.blacklist = tmp.*\nA->B.sync.topic.acls = false\noffset.syncs.topic.replication.factor = 1\n\
         A.zookeeper.connect = z:2181\nA->B.topics = orders         # these\n",
        &["A->B orders"],
        &[
            "warning: the quotes around the value of clusters are left out",
            "warning: the key in line 4 is read as A->B.enabled, without blanks",
            "warning: topics.blacklist was removed in MirrorMaker 4.0; it is taken for topics.exclude",
            "warning: A->B.sync.topic.acls is taken for A->B.sync.topic.acls.enabled",
            "warning: offset.syncs.topic.replication.factor is taken for offset-syncs.topic.replication.factor",
            "warning: what follows # is taken for a comment, so that A->B.topics is \"orders\"",
        ],
    );
}

/// The rules of an older release are chosen by one key.
#[test]
fn an_older_releases_defaults() {
    let text = "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\nkmirror.compat=3.9\n";
    let settings = load("f", text.as_bytes(), &Options::default()).settings.unwrap();
    let flow = &settings.process.flows[0];
    assert_eq!(flow.topics_exclude.patterns()[0], ".*[\\-\\.]internal");
    assert!(!flow.config_properties_exclude.matches("message.timestamp.after.max.ms"));
    assert!(flow.config_properties_exclude.matches("min.insync.replicas"));
}
