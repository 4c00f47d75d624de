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

/// Around each item as around the whole.
#[test]
fn quotes_around_the_items_of_a_list() {
    check(
        "clusters = \"A\", 'B'\nA.bootstrap.servers = \"a:9092\", \"a2:9092\"\nB.bootstrap.servers = b:9092\n\
         A->B.enabled = \"true\"\nA->B.topics = \"orders\", payments, 'logs-.*'\n",
        &["A->B orders payments logs-.*"],
        &[
            "warning: the quotes around the value of clusters are left out",
            "warning: the quotes around the value of A.bootstrap.servers are left out",
            "warning: the quotes around the value of A->B.enabled are left out",
            "warning: the quotes around the value of A->B.topics are left out",
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

/// As editors of Windows save a file.
#[test]
fn a_byte_order_mark_is_left_out_and_said() {
    let rest = "A.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\nA.consumer.isolation.level=read_committed\n";
    for first in ["clusters=A,B\n", "# ours\nclusters=A,B\n", "\nclusters=A,B\n", "\r\n  clusters = A, B\r\n"]
    {
        check(
            &format!("\u{feff}{first}{rest}"),
            &["A->B .*"],
            &["warning: the file begins with a byte order mark (EF BB BF), which is left out"],
        );
    }
    let report = load("f", format!("\u{feff}clusters=A,B\n{rest}").as_bytes(), &Options::default()).strict();
    let help = report.problems[0].help.as_deref().unwrap();
    assert!(
        help.starts_with("MirrorMaker takes the mark for the beginning of the first line's key"),
        "{help}"
    );
    let utf16: Vec<u8> = "\u{feff}clusters=A,B\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let report = load("f", &utf16, &Options::default());
    assert_eq!(
        report.problems[0].message,
        "f is UTF-16 text: save it as ASCII, or as UTF-8 without a byte order mark"
    );
}

/// Whoever found out about it: a line that is wrong is one line to look at.
#[test]
fn no_line_is_reported_twice() {
    let text = "clusters = A, B, C\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nC.bootstrap.servers = c:1\n\
        A->B.enabled = true\nA->C.enabled = true\nretries = -3\noffset.flush.interval.ms = abc\ncompression.type = foo\n\
        emit.checkpoints.interval.seconds = \"x\"\nA->B.errors.tolerance = most # h\nB.producer.batch.size = 12 # x\n\
        A->B.sync.topic.acls = true # yes\nname = caf\u{e9}\ntasks.max = many\n";
    let report = load("f", text.as_bytes(), &Options::default());
    let mut lines: Vec<usize> = report
        .problems
        .iter()
        .filter_map(|problem| Some(report.source.position(problem.span?.start).0))
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, (7..=15).collect::<Vec<_>>(), "{:#?}", report.problems);
    let both = report.problems.iter().find(|problem| problem.message.contains("retries: -3")).unwrap();
    assert_eq!(both.message, "retries has no effect; retries: -3 is less than 0");
    // Two items of one value that are wrong are two.
    let entries = properties::parse(b"k = aa, bb").entries;
    let item = |start: usize| Problem::error("wrong").at((start..start + 2).into());
    assert_eq!(by_place(vec![item(4), item(8)], &entries).len(), 2);
    assert_eq!(
        by_place(vec![item(4), item(8), item(0)], &entries).len(),
        2,
        "what is wrong with the key goes with the first"
    );
}
