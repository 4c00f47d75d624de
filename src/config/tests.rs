//! Whole files: what they become, and what is said about them.

use std::time::Duration;

use super::*;
use crate::client::IsolationLevel;
use crate::mirror::takeover::{Connectors, Workers};
use crate::mirror::{
    Batching, Compat, DefaultsFrom, FlowSettings, OffsetReset, OnOversize, OnPaused, OnSourceReset,
    PolicyKind, ReplicationFactor,
};
use crate::observe::AdminListen;

const CLUSTERS: &str = "clusters=A,B\nA.bootstrap.servers=a:9092\nB.bootstrap.servers=b:9092\n";
const ENABLED: &str =
    "clusters=A,B\nA.bootstrap.servers=a:9092\nB.bootstrap.servers=b:9092\nA->B.enabled=true\n";

fn load_text(text: &str) -> Report {
    let outside = Outside {
        env: &|name| match name {
            "OLD_SERVERS" => Some("old:9092".to_owned()),
            "A_PASSWORD" => Some("s3cret".to_owned()),
            _ => None,
        },
        read: &|path| match path.extension() {
            Some(extension) if extension == "pem" => Ok(certificate_and_key()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        },
    };
    load(
        "mm2.properties",
        text.as_bytes(),
        &Options { clusters: &[], takeover_timeout: Duration::ZERO, outside },
    )
}

fn certificate_and_key() -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(vec!["me".to_owned()]).unwrap();
    format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem()).into_bytes()
}

fn settings(text: &str) -> Settings {
    let report = load_text(text);
    report.settings.unwrap_or_else(|| panic!("{text}: {:#?}", report.problems))
}

fn flow(lines: &str) -> FlowSettings {
    settings(&format!("{ENABLED}{lines}")).process.flows.remove(0)
}

#[test]
fn a_minimal_file_has_mirrormakers_defaults() {
    let Settings { process, observe } = settings(ENABLED);
    assert_eq!(observe.admin_listen, AdminListen::Default);
    assert_eq!(process.memory_budget_bytes, 128 << 20);
    let wanted = crate::client::Settings::new("A", crate::config::values::host_ports("a:9092").unwrap());
    assert_eq!(process.clusters["A"], wanted);
    assert_eq!(process.flows.len(), 1);
    assert_eq!(format!("{:?}", process.flows[0]), format!("{:?}", FlowSettings::new("A", "B")));
}

/// Case 61: of many clusters only the pairs that are wanted become flows.
#[test]
fn a_hub_of_many_clusters_has_only_its_own_flows() {
    let spokes: Vec<String> = (1..=12).map(|spoke| format!("S{spoke}")).collect();
    let mut text = format!("clusters = hub, {}\nhub.bootstrap.servers = hub:9092\n", spokes.join(", "));
    for spoke in &spokes {
        text += &format!("{spoke}.bootstrap.servers = {spoke}:9092\n{spoke}->hub.enabled = true\n");
    }
    let settings = settings(&text);
    assert_eq!(settings.process.flows.len(), 12);
    assert_eq!(settings.process.clusters.len(), 13, "flows share the hub");
}

#[test]
fn flows_are_enabled_as_mirrormaker_enables_them() {
    for (lines, flows) in [
        ("A->B.enabled=true", &["A->B"][..]),
        ("A->B.enabled=true\nB->A.enabled=true", &["A->B", "B->A"]),
        ("A->B.enabled=TRUE # yes", &["A->B"]),
        ("enabled=true", &["A->B", "B->A"]),
        ("enabled=true\nB->A.enabled=false", &["A->B"]),
        ("enabled=true\nA->B.emit.heartbeats.enabled=false", &["B->A"]),
    ] {
        let settings = settings(&format!("{CLUSTERS}{lines}"));
        let names: Vec<String> =
            settings.process.flows.iter().map(|flow| format!("{}->{}", flow.source, flow.target)).collect();
        assert_eq!(names, flows, "{lines}");
    }
}

#[test]
fn each_key_reaches_its_setting() {
    let flow = flow(
        "A->B.topics=orders, pay.*\ntopics.exclude=x\nreplication.policy.separator=_\nkmirror.compat=3.9\n\
         replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n\
         replication.policy.internal.topic.separator.enabled=false\nheartbeats.replication.enabled=false\n\
         A.consumer.auto.offset.reset=latest\nA->B.replication.factor=3\nA->B.use.defaults.from=source\n\
         B.offset.storage.replication.factor=1\nB.offset.storage.partitions=5\nB.offset.storage.topic=positions\n\
         B.group.id=mirror\nrefresh.topics.interval.seconds=7\nconfig.properties.exclude=retention.*\n\
         B.offset.flush.interval.ms=100\nkmirror.on.source.reset=append\nA->B.kmirror.on.oversize=skip\n\
         kmirror.batching=verbatim\nA.consumer.isolation.level=read_committed\nA.consumer.fetch.min.bytes=2\n\
         A.consumer.fetch.max.bytes=3\nA.consumer.max.partition.fetch.bytes=4\nA.consumer.fetch.max.wait.ms=5\n\
         B.producer.max.request.size=6\nB.producer.request.timeout.ms=7\n\
         A->B.producer.override.max.in.flight.requests.per.connection=8\nerrors.retry.timeout=9\n\
         A->B.errors.retry.delay.max.ms=10\nB.producer.retries=11\nA->B.producer.override.delivery.timeout.ms=12",
    );
    assert_eq!(flow.topics.patterns(), ["orders", "pay.*"]);
    assert_eq!(flow.topics_exclude.patterns(), ["x"]);
    assert_eq!(flow.config_properties_exclude.patterns(), ["retention.*"]);
    assert_eq!((flow.policy.kind, flow.policy.compat), (PolicyKind::Identity, Compat::V3_9));
    assert_eq!((flow.policy.separator.as_str(), flow.policy.internal_separator.as_str()), ("_", "."));
    assert!(!flow.heartbeats_replication);
    assert_eq!(flow.auto_offset_reset, OffsetReset::Latest);
    assert_eq!(flow.replication_factor, ReplicationFactor::Named(3));
    assert_eq!(flow.offset_storage_replication_factor, ReplicationFactor::Named(1));
    assert_eq!((flow.offset_storage_partitions, flow.offset_storage_topic.as_str()), (5, "positions"));
    assert_eq!(flow.worker_group_id, "mirror");
    assert_eq!(flow.refresh_topics_interval, Some(Duration::from_secs(7)));
    assert_eq!(flow.use_defaults_from, DefaultsFrom::Source);
    assert_eq!(flow.offset_flush_interval, Duration::from_millis(100));
    assert_eq!((flow.on_source_reset, flow.on_oversize), (OnSourceReset::Append, OnOversize::Skip));
    assert_eq!(flow.batching, Batching::Verbatim);
    assert_eq!(flow.fetch.isolation_level, IsolationLevel::ReadCommitted);
    assert_eq!((flow.fetch.fetch_min_bytes, flow.fetch.fetch_max_bytes), (2, 3));
    assert_eq!(
        (flow.fetch.max_partition_fetch_bytes, flow.fetch.fetch_max_wait, flow.fetch.fetch_max_wait_idle),
        (4, Duration::from_millis(5), Duration::from_millis(5))
    );
    assert_eq!((flow.produce.max_request_bytes, flow.produce.max_in_flight_requests), (6, 8));
    assert_eq!(flow.produce.ack_timeout, Duration::from_millis(7));
    assert_eq!(flow.retry_limits.outage_max, Some(Duration::from_millis(9)));
    assert_eq!(flow.retry_delay_max, Duration::from_millis(10));
    assert_eq!(
        (flow.retry_limits.retries, flow.retry_limits.delivery_timeout),
        (11, Duration::from_millis(12))
    );
}

#[test]
fn what_connect_calls_otherwise_is_named_by_keys_of_ours() {
    let plain = flow("A->B.topics=t");
    assert_eq!(plain.on_paused, OnPaused::Honour);
    assert_eq!(plain.config_storage_topic, "mm2-configs.A.internal");
    assert_eq!((&plain.connectors, plain.workers), (&Connectors::default(), Workers::Dedicated));
    let dedicated = flow("B.config.storage.topic=cfg\nA->B.kmirror.on.paused=ignore");
    assert_eq!((dedicated.config_storage_topic.as_str(), dedicated.on_paused), ("cfg", OnPaused::Ignore));
    let connect = flow(
        "B.offset.storage.topic=mine\nB.group.id=mine\nkmirror.connect.offsets.topic=connect-offsets\n\
         kmirror.connect.config.topic=connect-configs\nkmirror.connect.group.id=connect\n\
         A->B.kmirror.connect.source.connector=my mirror\nkmirror.connect.checkpoint.connector=cp\n\
         kmirror.connect.heartbeat.connector=hb",
    );
    assert_eq!(connect.offset_storage_topic, "connect-offsets");
    assert_eq!(connect.config_storage_topic, "connect-configs");
    assert_eq!((connect.worker_group_id.as_str(), connect.workers), ("connect", Workers::ConnectCluster));
    assert_eq!(connect.connectors.names().collect::<Vec<_>>(), ["my mirror", "cp", "hb"]);
}

#[test]
fn each_connection_key_reaches_its_cluster() {
    let settings = settings(&format!(
        "{ENABLED}A.client.id=me\nB.client.dns.lookup=resolve_canonical_bootstrap_servers_only\n\
         A.request.timeout.ms=1\nA.admin.request.timeout.ms=2\nA.consumer.request.timeout.ms=3\n\
         A.reconnect.backoff.ms=4\nA.reconnect.backoff.max.ms=5\nA.retry.backoff.ms=6\nA.retry.backoff.max.ms=7\n\
         A.connections.max.idle.ms=-1\nA.send.buffer.bytes=8\nA.receive.buffer.bytes=-1\nA.metadata.max.age.ms=9\n\
         A.socket.connection.setup.timeout.ms=10\nA.default.api.timeout.ms=11\nB.producer.metadata.max.age.ms=12\n\
         kmirror.admin.listen=none\nkmirror.memory.budget=8MiB"
    ));
    let a = &settings.process.clusters["A"];
    assert_eq!(a.net.client_id, "me");
    assert_eq!(a.net.request_timeout, Duration::from_millis(3));
    assert_eq!(a.net.reconnect_backoff, crate::net::Backoff::millis(4, 5));
    assert_eq!(a.retry_backoff, crate::net::Backoff::millis(6, 7));
    assert_eq!(a.net.connections_max_idle, None);
    assert_eq!((a.net.socket.send_buffer_bytes, a.net.socket.receive_buffer_bytes), (Some(8), None));
    assert_eq!(
        (a.metadata_max_age, a.default_api_timeout),
        (Duration::from_millis(9), Duration::from_millis(11))
    );
    assert_eq!(a.net.connection_setup_timeout, crate::net::Backoff::millis(10, 30_000));
    let b = &settings.process.clusters["B"];
    assert_eq!(b.net.dns_lookup, crate::net::DnsLookup::ResolveCanonicalBootstrapServersOnly);
    assert_eq!(b.metadata_max_age, Duration::from_millis(12));
    assert_eq!(settings.observe.admin_listen, AdminListen::Off);
    assert_eq!(settings.process.memory_budget_bytes, 8 << 20);
}

#[test]
fn what_cannot_be_honoured_is_refused_and_all_at_once() {
    for (text, messages) in [
        ("clusters=A", &["a flow needs two clusters"][..]),
        (CLUSTERS, &["no source->target replication flow is enabled"]),
        (
            "clusters=A,B\nA->B.enabled=true",
            &["A.bootstrap.servers is missing", "B.bootstrap.servers is missing"],
        ),
        (
            &format!(
                "{ENABLED}A->B.topics=a,*b,c{{1,2}}\nreplication.factor=0\ntransforms=x\n\
                 A->B.transforms.x.type=org.apache.kafka.connect.transforms.Filter\nB.value.converter=Json"
            ),
            &[
                "topics: *b is no valid regular expression: * repeats nothing",
                "replication.factor: 0 is not possible",
                "the transform x (org.apache.kafka.connect.transforms.Filter) cannot run: record batches are copied as they are",
                "the value.converter Json cannot run: record batches are copied as they are",
            ],
        ),
        (
            &format!("{ENABLED}replication.policy.class=com.example.Mine\ntopic.filter.class=com.example.F"),
            &[
                "replication.policy.class: com.example.Mine is a Java class that is not known here",
                "the topic.filter.class com.example.F is Java, which cannot run here",
            ],
        ),
        (
            &format!(
                "{ENABLED}B->A.enabled=true\n\
                 replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
            ),
            &[
                "A->B and B->A keep the names of their topics and take the same ones: records would go round without end",
            ],
        ),
        (
            &format!("{ENABLED}kmirror.memory.budget=1"),
            &["kmirror.memory.budget: 1 is less than 4194304 bytes"],
        ),
        (&format!("{ENABLED}A.bootstrap.servers=a"), &["A.bootstrap.servers: \"a\" is no host:port"]),
    ] {
        let report = load_text(text);
        assert!(report.settings.is_none(), "{text}");
        let errors: Vec<&str> = report
            .problems
            .iter()
            .filter(|problem| problem.severity == Severity::Error)
            .map(|problem| problem.message.as_str())
            .collect();
        let mut missing = messages.iter().filter(|message| !errors.contains(message)).peekable();
        assert!(missing.peek().is_none() && errors.len() == messages.len(), "{text}: {errors:#?}");
    }
}

#[test]
fn warnings_do_not_keep_a_file_from_running() {
    for (line, message) in [
        ("B.producer.acks=1", "acks=1 is raised to all: nothing counts as copied before all have it"),
        ("compression.type=snappy", "compression.type has no effect"),
        ("B.bootstrap.servers=x:1,a:9092", "A and B have a bootstrap server in common"),
        (
            "topics.blacklist=x",
            "topics.blacklist was removed in MirrorMaker 4.0; it is taken for topics.exclude",
        ),
        ("A->B.enable=true", "A->B.enable has no effect: A->B.enabled is set, too"),
        ("topics=a, __heartbeat", "__heartbeat in topics: MirrorMaker's topic is called heartbeats"),
        ("topics=", "topics is empty, which matches nothing"),
    ] {
        let report = load_text(&format!("{ENABLED}{line}"));
        assert!(report.settings.is_some(), "{line}");
        let found = report.problems.iter().any(|p| p.severity == Severity::Warning && p.message == message);
        assert!(found, "{line}: {:#?}", report.problems);
    }
    assert_eq!(flow("topics.blacklist=x").topics_exclude.patterns(), ["x"]);
    assert_eq!(flow("topics.blacklist=x\ntopics.exclude=y").topics_exclude.patterns(), ["y"]);
}

#[test]
fn a_login_in_an_address_is_refused_and_never_shown() {
    for servers in [
        "mallory:hun,ter2#@a:9092",
        "SASL_SSL://mallory:hun,ter2@a:9092, a2:9092",
        "a0:1, mallory:hunter2@a:9092",
    ] {
        let report = load_text(&format!("{ENABLED}A.bootstrap.servers={servers}"));
        let errors: Vec<&Problem> =
            report.problems.iter().filter(|problem| problem.severity == Severity::Error).collect();
        let [error] = errors[..] else { panic!("{servers}: {errors:#?}") };
        let message = "A.bootstrap.servers holds a user and a password, which are no part of an address";
        assert!(error.message.starts_with(message), "{}", error.message);
        assert!(error.help.as_ref().unwrap().contains("A.sasl.username and A.sasl.password"));
        assert_eq!(report.source.position(error.span.unwrap().start), (5, 21));
        let everything = format!("{:?} {:?} {:?}", report.problems, report.resolved, report.source);
        assert!(!everything.contains("mallory") && !everything.contains("ter2"), "{everything}");
    }
}

#[test]
fn a_port_alone_listens_everywhere_which_is_said() {
    for (value, said) in [(":9464", true), ("0.0.0.0:9464", false), ("127.0.0.1:1", false)] {
        let report =
            load_text(&format!("{ENABLED}kmirror.admin.listen={value}\nkmirror.admin.anonymous=true"));
        let begins = format!("kmirror.admin.listen: {value} listens on all addresses");
        let found =
            report.problems.iter().any(|p| p.severity == Severity::Warning && p.message.starts_with(&begins));
        assert_eq!(found, said, "{value}: {:#?}", report.problems);
        assert!(report.settings.is_some());
    }
}

#[test]
fn thousands_of_topics_and_of_problems_are_read_in_no_time() {
    let topics: Vec<String> = (0..10_000).map(|number| format!("team.topic-{number}")).collect();
    let flow = flow(&format!("topics={}", topics.join(",\\\n  ")));
    assert!(flow.topics.matches("team.topic-9999") && !flow.topics.matches("team.topic-10000"));
    let report = load_text(&format!("{ENABLED}{}", "topics=a\n".repeat(50_000)));
    let again = report.problems.iter().filter(|problem| problem.message.contains("is set again in line"));
    assert_eq!(again.count(), 49_999);
}

/// Issues of delivery are never decided by a retry key; `errors.tolerance` is about the content of records alone.
#[test]
fn tolerance_and_codecs_reach_the_flow() {
    use crate::mirror::OnRefused;
    use crate::record::Codec;
    for (lines, refused, oversize) in [
        ("", OnRefused::Stop, OnOversize::Stop),
        ("errors.tolerance=all", OnRefused::Skip, OnOversize::Skip),
        ("A->B.errors.tolerance=ALL\nerrors.retry.timeout=0", OnRefused::Skip, OnOversize::Skip),
        ("errors.tolerance=all\nkmirror.on.oversize=stop", OnRefused::Skip, OnOversize::Stop),
        ("kmirror.on.oversize=skip", OnRefused::Stop, OnOversize::Skip),
    ] {
        let flow = flow(lines);
        assert_eq!((flow.on_refused, flow.on_oversize), (refused, oversize), "{lines}");
    }
    for (lines, codec) in [
        ("compression.type=snappy", None),
        ("A.producer.compression.type=snappy", None),
        ("A->B.producer.compression.type=snappy", None),
        ("B.producer.compression.type=ZSTD", Some(Codec::Zstd)),
        ("B.producer.compression.type=zstd\nA->B.producer.override.compression.type=none", Some(Codec::None)),
    ] {
        assert_eq!(flow(lines).compression, codec, "{lines}");
    }
}

#[test]
fn regex_routers_rename_and_other_transforms_are_refused() {
    let router = "org.apache.kafka.connect.transforms.RegexRouter";
    // As MirrorMaker reads them: the top level may name the chain, its members belong to the flow.
    let chain = format!(
        "A->B.transforms=strip, mark\nA->B.transforms.strip.type={router}\nA->B.transforms.strip.regex=A\\\\.(.*)\n\
         A->B.transforms.strip.replacement=$1\nA->B.transforms.mark.type={router}\nA->B.transforms.mark.regex=(.*)\n\
         A->B.transforms.mark.replacement=$1-copy"
    );
    assert_eq!(flow(&chain).policy.remote_topic("A", "orders"), "orders-copy");
    for (more, message) in [
        ("A->B.transforms.mark.predicate=x", "the transform mark has a predicate, which cannot run here"),
        (
            "A->B.transforms.strip.regex=*",
            "the transform strip: * is no valid regular expression: * repeats nothing",
        ),
        (
            "A->B.transforms.strip.replacement=$3",
            "the transform strip: its replacement $3: there is no group 3",
        ),
        ("A->B.transforms=strip,mark,gone", "transforms.gone.type is missing"),
    ] {
        let report = load_text(&format!("{ENABLED}{chain}\n{more}"));
        let errors: Vec<&str> = report
            .problems
            .iter()
            .filter(|p| p.severity == Severity::Error)
            .map(|p| p.message.as_str())
            .collect();
        assert_eq!(errors, [message]);
    }
}

#[test]
fn custom_policies_are_told_what_to_write_instead() {
    for (class, help) in [
        ("com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy", "IdentityReplicationPolicy"),
        ("com.kafka.mirror.PrefixlessReplicationPolicy", "IdentityReplicationPolicy"),
        ("x.TopicRemappingPolicy", "RegexRouter"),
        ("x.SuffixReplicationPolicy", "kmirror.replication.policy.format = {topic}.{source}"),
        ("x.Mine", "kmirror.replication.policy.format = {source}_prod_v2.{topic}"),
    ] {
        let report = load_text(&format!("{ENABLED}replication.policy.class={class}"));
        let problem = report.problems.iter().find(|problem| problem.severity == Severity::Error).unwrap();
        assert!(problem.help.as_ref().unwrap().contains(help), "{problem:?}");
        let with_format = format!(
            "replication.policy.class={class}\nkmirror.replication.policy.format={{source}}_v2.{{topic}}"
        );
        assert_eq!(flow(&with_format).policy.remote_topic("A", "t"), "A_v2.t");
    }
}

#[test]
fn groups_and_principals_are_renamed_by_formats() {
    let flow = flow(
        "kmirror.group.format={group}@{source}\nA->B.kmirror.acl.principal.map=User:CN=a,O=b -> User:a; User:{name} -> User:{target}-{name}",
    );
    assert_eq!(flow.remote_group("app"), "app@A");
    assert_eq!(
        (flow.remote_principal("User:CN=a,O=b"), flow.remote_principal("User:x")),
        ("User:a".to_owned(), "User:B-x".to_owned())
    );
    assert_eq!(self::flow("").remote_group("app"), "app");
    for (line, message) in [
        ("kmirror.group.format={source}", "kmirror.group.format: {source} has no {group}"),
        ("kmirror.acl.principal.map=x", "kmirror.acl.principal.map: \"x\" is no rule, as User:a -> User:b"),
        (
            "kmirror.replication.policy.format={source}{topic}",
            "kmirror.replication.policy.format: {source}{topic} is ambiguous: a text must stand between {source} and what is next to it",
        ),
        (
            "kmirror.replication.policy.format={source}/{topic}",
            "kmirror.replication.policy.format: '/' cannot stand in a topic's name",
        ),
    ] {
        let report = load_text(&format!("{ENABLED}{line}"));
        assert_eq!(report.problems[0].message, message);
        assert_eq!(report.problems[0].severity, Severity::Error);
    }
}

/// Lines of published tutorials, and what MirrorMaker makes of them.
#[test]
fn files_as_people_write_them_are_honoured_and_strict_says_what_mirrormaker_does() {
    let file = "\u{feff}clusters ＝ \"A， B\"# both\nA.bootstrap.servers = a:9092# x\nB.bootstrap.servers：b:9092\nA－>B.enable = true # on\n\
                A->B.topics = orders， payments  ＃ two\nA->B.sync.topic.configs = true\nemit.heartbeats = false\n\
                ＃ a comment\nB.zookeeper.connect = z:2181\nA->B.sync.topic.acls.interval.seconds = '5'\n";
    let report = load_text(file);
    assert_eq!(report.count(Severity::Error), 0, "{:#?}", report.problems);
    let flow = &report.settings.as_ref().unwrap().process.flows[0];
    assert_eq!((&*flow.source, &*flow.target), ("A", "B"));
    assert_eq!(flow.topics.patterns(), ["orders", "payments"]);
    let strict = report.strict();
    assert!(strict.settings.is_none() && strict.count(Severity::Warning) == 0);
    let said: Vec<String> = strict
        .problems
        .iter()
        .filter_map(|p| p.help.clone())
        .filter(|help| help.starts_with("MirrorMaker "))
        .collect();
    for expected in [
        "takes \"B\\\"# both\" for an alias",
        "does not start: \"a:9092# x\" is no address",
        "ignores A->B.enable, and A->B.enabled keeps its default",
        "takes \"payments  # two\" for an item of the list",
        "ignores A->B.sync.topic.configs, and A->B.sync.topic.configs.enabled keeps its default",
        "ignores emit.heartbeats, and emit.heartbeats.enabled keeps its default",
        "takes them for a part of the value",
    ] {
        assert!(said.iter().any(|help| help.contains(expected)), "{expected}: {said:#?}");
    }
    let clean = load_text(ENABLED).strict();
    assert!(clean.settings.is_some());
}

#[test]
fn files_for_other_programs_are_told_so() {
    for (text, message) in [
        (
            "bootstrap.servers=a:1\ngroup.id=g\nenable.auto.commit=true",
            "the key clusters is missing: this is a consumer's file, as MirrorMaker 1 takes one",
        ),
        (
            "bootstrap.servers=a:1\nacks=all\nretries=3",
            "the key clusters is missing: this is a producer's file, as MirrorMaker 1 takes one",
        ),
        (
            "bootstrap.servers=a:1\nconnector.class=x",
            "the key clusters is missing: this is a Connect worker's or connector's file",
        ),
        ("A.bootstrap.servers=a:1\nA->B.enabled=true", "the key clusters is missing"),
    ] {
        assert_eq!(load_text(text).problems[0].message, message);
    }
}

#[test]
fn circles_are_found_however_long_they_are() {
    let file = |lines: &str| {
        let text = format!(
            "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nC.bootstrap.servers=c:1\n\
             A->B.enabled=true\nB->C.enabled=true\nC->A.enabled=true\n{lines}"
        );
        let report = load_text(&text);
        let circle =
            report.problems.iter().find(|p| p.message.contains("C->A") && p.message.contains("of their"));
        circle.map(|problem| problem.severity)
    };
    let identity = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy";
    let strip: String = ["A->B", "B->C", "C->A"]
        .map(|flow| {
            let member = format!("{flow}.transforms.s");
            format!(
                "{member}.type=org.apache.kafka.connect.transforms.RegexRouter\n{member}.regex=\\\\w\\\\.(.*)\n\
                 {member}.replacement=$1\n"
            )
        })
        .concat();
    assert_eq!(file(""), None);
    assert_eq!(file(identity), Some(Severity::Error));
    assert_eq!(file("kmirror.replication.policy.format=dr-{topic}"), Some(Severity::Error));
    assert_eq!(file("kmirror.replication.policy.format={topic}.{source}"), None);
    assert_eq!(file(&format!("transforms=s\n{strip}")), Some(Severity::Error));
    assert_eq!(
        file(&format!("{identity}\nA->B.topics=a\nB->C.topics=b\nC->A.topics=c")),
        Some(Severity::Warning)
    );
    assert_eq!(file(&format!("{identity}\nC->A.enabled=false")), None);
    let mixed = identity.replace("replication", "A->B.replication");
    assert_eq!(file(&mixed), Some(Severity::Error));
    assert_eq!(file(&format!("{mixed}\nA->B.topics=orders")), Some(Severity::Warning));
}

#[test]
fn clusters_of_the_command_line_choose_the_targets() {
    let text = format!("{ENABLED}B->A.enabled=true");
    let load_into =
        |targets: &[String]| load("f", text.as_bytes(), &Options { clusters: targets, ..Options::default() });
    let flows = load_into(&["A".to_owned()]).settings.unwrap().process.flows;
    assert_eq!(flows.len(), 1);
    assert_eq!(&*flows[0].target, "A");
    let report = load_into(&["C".to_owned()]);
    let said: Vec<&str> = report.problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(said, ["--clusters names C, which is not in clusters"]);
    let one_way = format!("{ENABLED}A->B.topics = t");
    let targets = ["A".to_owned()];
    let report = load("f", one_way.as_bytes(), &Options { clusters: &targets, ..Options::default() });
    let problem = &report.problems[0];
    assert_eq!(problem.message, "no flow that is enabled goes into the clusters of --clusters");
    assert_eq!(problem.help.as_deref(), Some("--clusters names targets; flows go into: B"));
}

#[test]
fn every_setting_says_where_it_comes_from() {
    let report = load_text(&format!("{ENABLED}topics=a\nB.offset.flush.interval.ms=9\n"));
    let origin = |title: &str, key: &str| {
        let section = report.resolved.iter().find(|section| section.title == title).unwrap();
        let setting = section.settings.iter().find(|setting| setting.key == key).unwrap();
        (setting.value.clone(), setting.origin.clone())
    };
    let file = |key: &str, line| Origin::File { key: key.to_owned(), line };
    assert_eq!(origin("flow A->B", "topics"), ("a".to_owned(), file("topics", 5)));
    assert_eq!(
        origin("flow A->B", "offset.flush.interval.ms"),
        ("9".to_owned(), file("B.offset.flush.interval.ms", 6))
    );
    assert_eq!(origin("flow A->B", "replication.factor"), ("2".to_owned(), Origin::Default));
    assert_eq!(
        origin("flow A->B", "source.consumer.fetch.max.bytes"),
        ("16777216".to_owned(), Origin::KmirrorDefault)
    );
    assert_eq!(
        origin("cluster A", "bootstrap.servers"),
        ("a:9092".to_owned(), file("A.bootstrap.servers", 2))
    );
}

#[test]
fn the_examples_load_without_a_word() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "properties") {
            continue;
        }
        let report = load_text(&std::fs::read_to_string(&path).unwrap());
        assert_eq!(report.problems, [], "{}", path.display());
        assert!(!report.settings.unwrap().process.flows.is_empty());
        count += 1;
    }
    assert!(count >= 3);
}

proptest::proptest! {
    #[test]
    fn no_file_panics(lines in proptest::collection::vec("(clusters|A|B|A->B|topics|enabled|bootstrap.servers|consumer|config.providers|[=.:#\\\\ ,]|\\$\\{env:S\\}|true|security.protocol|[a-z*(]{0,3}){0,8}", 0..12)) {
        let report = load_text(&lines.join("\n"));
        for problem in report.problems {
            if let Some(span) = problem.span {
                proptest::prop_assert!(span.start <= span.end && report.source.text.get(span.start..span.end).is_some());
            }
        }
    }
}

/// A process that runs one of two flows is half of a circle all the same.
#[test]
fn a_circle_is_found_whichever_of_its_flows_this_process_runs() {
    let identity = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n";
    let check = |targets: &[&str], more: &str| {
        let text = format!(
            "clusters=A,B,C\nA.bootstrap.servers=a:9092\nB.bootstrap.servers=b:9092\nC.bootstrap.servers=c:9092\n\
             A->B.enabled=true\nB->A.enabled=true\nA->C.enabled=true\n{identity}{more}"
        );
        let clusters: Vec<String> = targets.iter().map(|&target| target.to_owned()).collect();
        let options = Options { clusters: &clusters, ..Options::default() };
        let report = load("mm2.properties", text.as_bytes(), &options);
        report.problems.iter().any(|problem| problem.message.contains("go round without end"))
    };
    for targets in [&[][..], &["A"], &["B"], &["A", "C"]] {
        assert!(check(targets, ""), "{targets:?}");
    }
    assert!(!check(&["C"], ""), "the circle is of others");
    for (topics, exclude, goes_round) in [
        (["a", "b"], "", false),
        (["a.*", "[ab].*"], "", true),
        (["a.+", ".*"], "a.*", false),
        ([".*", "orders-.*"], "", true),
        (["(a|b).*", "(a|b).*"], "", true),
    ] {
        let [there, back] = topics;
        let more = format!("A->B.topics={there}\nB->A.topics={back}\nB->A.topics.exclude={exclude}\n");
        assert_eq!(check(&["B"], &more), goes_round, "{topics:?} {exclude}");
    }
}

/// MirrorMaker finds out when it creates its topics.
#[test]
fn an_alias_that_no_topic_can_be_named_after_is_refused() {
    let check = |alias: &str| {
        let text = format!(
            "clusters={alias},B\n{alias}.bootstrap.servers=a:9092\nB.bootstrap.servers=b:9092\n{alias}->B.enabled=true\n"
        );
        let problems = load_text(&text).problems;
        let errors = problems.into_iter().filter(|problem| problem.severity == Severity::Error);
        errors.map(|problem| problem.message).next()
    };
    for fine in ["A", "us-east_1.prod", &"a".repeat(223)] {
        assert_eq!(check(fine), None, "{fine}");
    }
    assert_eq!(check("A/1").unwrap(), "the alias \"A/1\" has '/', which cannot stand in a topic's name");
    assert!(check(&"a".repeat(224)).unwrap().contains("has 224 bytes, 223 are allowed"));
}
