//! Settings and ACLs of topics follow the source, and `plan` says beforehand what will be done, and changes nothing.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use kmirror::broker::{self, Authorizer, Effect, EmbeddedCluster, FaultRule, When};
use kmirror::client::{
    AclOperation, AclPattern, AclPermission, Cluster, ConfigChange, ConfigSource, TopicAcl,
};
use kmirror::config::{self, Settings};
use kmirror::mirror::Replicator;
use kmirror::mirror::dry_run::{FlowPlan, TopicChange, plan_flow, plan_heartbeats};
use kmirror::mirror::status::{FlowStatus, ReplicatorStatus, SyncStatus};
use kmirror::record::{BatchBuilder, BatchOptions, Codec, RecordData};
use kmirror::seam::{Seam, Simulation};
use protocol_tests::inside;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    seam: Seam,
    source: EmbeddedCluster,
    target: EmbeddedCluster,
    settings: Settings,
    clients: [Cluster; 2],
}

impl World {
    async fn new(authorizer: Authorizer, more: &str) -> World {
        let seam = Seam::Simulated(Simulation::new(9));
        let cluster = |id: u64| {
            let settings = broker::Settings {
                seed: id,
                address: format!("10.0.0.{id}").parse().unwrap(),
                authorizer,
                ..broker::Settings::default()
            };
            EmbeddedCluster::start(seam.clone(), settings)
        };
        let (source, target) = (cluster(1).await.unwrap(), cluster(2).await.unwrap());
        let file = format!(
            "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
             emit.heartbeats.enabled = false\nemit.checkpoints.enabled = false\nemit.offset-syncs.enabled = false\n\
             topics.exclude = tmp.*, mm2.*\\\\.internal\nrefresh.topics.interval.seconds = 1\n\
             sync.topic.configs.interval.seconds = 5\nsync.topic.acls.interval.seconds = 5\n{more}\n",
            source.bootstrap(),
            target.bootstrap()
        );
        let report = config::load("test.properties", file.as_bytes(), &config::Options::default());
        let settings = report.settings.unwrap_or_else(|| panic!("{:#?}", report.problems));
        let clients =
            ["A", "B"].map(|alias| Cluster::new(seam.clone(), settings.process.clusters[alias].clone()));
        World { seam, source, target, settings, clients }
    }

    async fn plan(&self) -> FlowPlan {
        let flow = Arc::new(self.settings.process.flows[0].clone());
        let heartbeats = &self.settings.process.heartbeats;
        plan_flow(&flow, heartbeats, &self.clients[0], &self.clients[1]).await.unwrap()
    }

    /// What all flows and heartbeats of the file would create, by alias and topic.
    async fn planned(&self) -> BTreeSet<(String, String)> {
        let client = |alias: &str| &self.clients[usize::from(alias == "B")];
        let process = &self.settings.process;
        let mut plans = Vec::new();
        for flow in &process.flows {
            let (source, target) = (client(&flow.source), client(&flow.target));
            plans
                .push(plan_flow(&Arc::new(flow.clone()), &process.heartbeats, source, target).await.unwrap());
        }
        for pair in &process.heartbeats {
            plans.push(plan_heartbeats(pair, client(&pair.target)).await.unwrap());
        }
        let mut found = BTreeSet::new();
        for plan in plans {
            let created =
                plan.topics.iter().filter(|topic| matches!(topic.change, TopicChange::Create { .. }));
            found.extend(created.map(|topic| (plan.target.to_string(), topic.remote.to_string())));
            let internal = plan.internal_topics.iter().filter(|topic| !topic.is_there);
            found.extend(internal.map(|topic| (topic.cluster.to_string(), topic.name.clone())));
        }
        found
    }

    fn topics(&self) -> BTreeSet<(String, String)> {
        let of = |alias: &str, cluster: &EmbeddedCluster| {
            let names =
                cluster.topics().into_iter().map(|(name, _)| name).filter(|name| !name.starts_with("__"));
            names.map(|name| (alias.to_owned(), name)).collect::<Vec<_>>()
        };
        of("A", &self.source).into_iter().chain(of("B", &self.target)).collect()
    }

    fn start(&self) -> Replicator {
        Replicator::start(self.seam.clone(), self.settings.process.clone())
    }

    /// What is set for a topic of the target.
    async fn set(&self, topic: &str) -> BTreeMap<String, String> {
        let described = self.clients[1].describe_topic_configs(&[Arc::from(topic)]).await.unwrap();
        let entries = described.into_values().next().unwrap().unwrap();
        let set = entries.into_iter().filter(|entry| entry.source == ConfigSource::Topic);
        set.map(|entry| (entry.name, entry.value.unwrap())).collect()
    }
}

async fn until(replicator: &Replicator, what: &str, condition: impl Fn(&FlowStatus) -> bool) {
    let flow = |status: &ReplicatorStatus| condition(&status.flows[0]);
    inside::until(replicator, what, flow, ReplicatorStatus::clone).await;
}

fn acl(topic: &str, principal: &str, operation: AclOperation) -> TopicAcl {
    TopicAcl {
        topic: Arc::from(topic),
        pattern: AclPattern::Literal,
        principal: principal.to_owned(),
        host: "*".to_owned(),
        operation,
        permission: AclPermission::Allow,
    }
}

#[tokio::test(start_paused = true)]
async fn a_plan_says_what_a_run_does_and_then_that_nothing_is_left() {
    let world = World::new(Authorizer::Kept, "").await;
    let (source, target) = (&world.source, &world.target);
    let long = "x".repeat(248);
    source.create_topic("new", 3, 1, &[("retention.ms", "5000"), ("min.insync.replicas", "1")]).unwrap();
    source.create_topic("grown", 4, 1, &[("cleanup.policy", "compact")]).unwrap();
    source.create_topic("a.b", 1, 1, &[]).unwrap();
    source.create_topic("tmp.x", 1, 1, &[]).unwrap();
    source.create_topic("B.there", 1, 1, &[]).unwrap();
    source.create_topic("mm2-configs.C.internal", 1, 1, &[]).unwrap();
    source.create_topic(&long, 1, 1, &[]).unwrap();
    target.create_topic("A.grown", 2, 1, &[("segment.bytes", "1048576")]).unwrap();
    target.create_topic("A.a_b", 1, 1, &[]).unwrap();
    let acls = [acl("new", "User:a", AclOperation::ALL), acl("new", "User:b", AclOperation::WRITE)];
    assert_eq!(world.clients[0].create_topic_acls(&acls).await.unwrap().len(), 0);
    let before = target.topics();

    let plan = world.plan().await;
    assert!(plan.has_changes());
    let found: Vec<(&str, &TopicChange)> =
        plan.topics.iter().map(|topic| (&*topic.remote, &topic.change)).collect();
    let create = TopicChange::Create {
        replication_factor: 1,
        configs: BTreeMap::from([("retention.ms".to_owned(), "5000".to_owned())]),
    };
    assert_eq!(found, [("A.grown", &TopicChange::Grow { from: 2 }), ("A.new", &create)]);
    assert_eq!(
        plan.topics[0].configs,
        [
            ConfigChange::Set("cleanup.policy".to_owned(), "compact".to_owned()),
            ConfigChange::Delete("segment.bytes".to_owned())
        ]
    );
    assert_eq!(plan.acls, [acl("A.new", "User:a", AclOperation::READ)]);
    let left_out: Vec<(&str, &str)> =
        plan.left_out.iter().map(|(topic, rule)| (&**topic, rule.as_str())).collect();
    assert_eq!(
        left_out,
        [
            ("B.there", "a cycle: it came from B"),
            ("mm2-configs.C.internal", "it is internal"),
            ("tmp.x", "topics.exclude names it"),
        ]
    );
    assert_eq!(plan.refused.len(), 2, "{:?}", plan.refused);
    assert!(plan.refused["a.b"].contains("differs from that of a topic there only in '.' and '_'"));
    assert!(plan.refused[long.as_str()].contains("would have 250 bytes"));
    assert!(plan.internal_topics.iter().all(|topic| !topic.is_there));
    assert_eq!(target.topics(), before, "a plan changes nothing");

    let replicator = world.start();
    until(&replicator, "settings and ACLs have followed", |flow| {
        let changed = |status: &Option<SyncStatus>| status.is_some();
        flow.discovered && changed(&flow.topic_configs) && changed(&flow.topic_acls)
    })
    .await;
    assert_eq!(
        world.set("A.grown").await,
        BTreeMap::from([("cleanup.policy".to_owned(), "compact".to_owned())])
    );
    let there = world.clients[1].describe_topic_acls().await.unwrap().unwrap();
    assert_eq!(there, [acl("A.new", "User:a", AclOperation::READ)]);
    let plan = world.plan().await;
    assert!(!plan.has_changes(), "{plan:#?}");

    // Later changes follow at the interval.
    let change = |change| BTreeMap::from([(Arc::from("new"), vec![change])]);
    let set = ConfigChange::Set("max.message.bytes".to_owned(), "2000000".to_owned());
    world.clients[0].incremental_alter_configs(&change(set)).await.unwrap()["new"].as_ref().unwrap();
    world.clients[0]
        .incremental_alter_configs(&change(ConfigChange::Delete("retention.ms".to_owned())))
        .await
        .unwrap();
    assert!(world.plan().await.has_changes());
    let started = Instant::now();
    let wanted = BTreeMap::from([("max.message.bytes".to_owned(), "2000000".to_owned())]);
    while world.set("A.new").await != wanted {
        assert!(started.elapsed() < PATIENCE, "{:?}", world.set("A.new").await);
        sleep(Duration::from_millis(100)).await;
    }
    replicator.stop().await;
}

/// Case 28: a target that refuses the settings of a topic as a whole gets them one by one.
#[tokio::test(start_paused = true)]
async fn what_a_target_refuses_stops_no_other_setting() {
    let world = World::new(Authorizer::None, "").await;
    let configs = [("retention.ms", "5000"), ("segment.bytes", "1048576"), ("cleanup.policy", "compact")];
    world.source.create_topic("t", 1, 1, &configs).unwrap();
    world.target.create_topic("A.t", 1, 1, &[]).unwrap();
    // INVALID_CONFIG for all three together, and for the first of them alone.
    let rule = FaultRule {
        key: Some(ApiKey::IncrementalAlterConfigs),
        broker: None,
        when: When::After(0),
        times: 2,
        effect: Effect::Error(40),
    };
    world.target.fault(rule);
    let replicator = world.start();
    until(&replicator, "two of three are set", |flow| {
        flow.topic_configs.as_ref().is_some_and(|status| status.changed == 2 && status.refused.len() == 1)
    })
    .await;
    assert_eq!(world.set("A.t").await.len(), 2);
    // A cluster without an authorizer has no ACLs to follow, which is no fault.
    until(&replicator, "ACLs were looked at", |flow| flow.topic_acls.is_some()).await;
    assert_eq!(replicator.status().await.flows[0].topic_acls.as_ref().unwrap().error, None);
    until(&replicator, "the next round repairs it", |flow| {
        flow.topic_configs.as_ref().is_some_and(|status| status.refused.is_empty())
    })
    .await;
    assert_eq!(world.set("A.t").await.len(), 3);
    replicator.stop().await;
}

/// Each topic that a run makes on either side stands in the plan, `heartbeats` and what becomes of them too, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_plan_lists_every_topic_that_a_run_makes() {
    let all = "emit.heartbeats.enabled = true\nemit.checkpoints.enabled = true\nemit.offset-syncs.enabled = true\n\
        emit.checkpoints.interval.seconds = 2\n";
    for more in [
        "",
        "offset-syncs.topic.location = target",
        "B->A.enabled = true",
        "B->A.emit.heartbeats.enabled = false",
        "heartbeats.replication.enabled = false\nA->B.topics = t",
        "kmirror.replication.policy.format = {source}-{topic}\nreplication.policy.separator = _",
        "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    ] {
        let world = World::new(Authorizer::None, &format!("{all}{more}")).await;
        world.source.create_topic("t", 1, 1, &[]).unwrap();
        let record = RecordData { timestamp: 1, ..RecordData::default() };
        let mut batch = BatchBuilder::new(BatchOptions::new(Codec::None));
        batch.push(&record).unwrap();
        // Without a record there are no offset syncs, and no topic for them.
        world.source.append("t", 0, &batch.build().unwrap()).unwrap();
        let before = world.topics();
        let planned = world.planned().await;
        assert_eq!(world.topics(), before, "a plan changes nothing");
        let replicator = world.start();
        let started = Instant::now();
        let made = || world.topics().difference(&before).cloned().collect::<BTreeSet<_>>();
        while !made().is_superset(&planned) {
            assert!(started.elapsed() < PATIENCE, "{more}: {:?} instead of {planned:?}", made());
            sleep(Duration::from_millis(100)).await;
        }
        // Rounds enough for whatever else might come.
        sleep(Duration::from_secs(20)).await;
        assert_eq!(made(), planned, "{more}");
        assert_eq!(world.planned().await, BTreeSet::new(), "{more}");
        replicator.stop().await;
    }
}
