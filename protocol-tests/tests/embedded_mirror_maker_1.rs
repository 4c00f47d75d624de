//! Members of a consumer group that copy its topics, between embedded clusters in the simulated network.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kmirror::broker::{EmbeddedCluster, log};
use kmirror::client::{Cluster, CommittedOffset, GroupOffsets, HostPort, Settings};
use kmirror::mirror::member::{MemberSettings, Strategy};
use kmirror::mirror::status::{FlowState, MembershipStatus};
use kmirror::mirror::{
    FlowSettings, OffsetReset, PatternList, PolicyKind, ProcessSettings, ReplicationFactor, Replicator,
    TopicRewrites,
};
use kmirror::record::{Codec, OpenBatch, partition_for_key};
use kmirror::seam::{Link, Seam, Simulation};
use protocol_tests::inside;
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(300);

struct World {
    simulation: Simulation,
    a: EmbeddedCluster,
    b: EmbeddedCluster,
}

impl World {
    async fn new() -> World {
        let simulation = Simulation::new(1);
        let seam = Seam::Simulated(simulation.clone());
        let (a, b) =
            (inside::cluster(&seam, 1, "10.0.0.1").await, inside::cluster(&seam, 2, "10.0.0.2").await);
        World { simulation, a, b }
    }

    fn settings(alias: &str, cluster: &EmbeddedCluster) -> Settings {
        let servers: Vec<HostPort> = cluster.bootstrap().split(',').map(|one| one.parse().unwrap()).collect();
        Settings::new(alias, servers)
    }

    fn client(&self) -> Cluster {
        Cluster::new(Seam::Simulated(self.simulation.named("test")), World::settings("A", &self.a))
    }

    /// One more process of the group.
    fn process(&self, name: &str, flow: FlowSettings) -> Replicator {
        let clusters = [("A", &self.a), ("B", &self.b)];
        let clusters =
            clusters.into_iter().map(|(alias, cluster)| (Arc::from(alias), World::settings(alias, cluster)));
        let settings = ProcessSettings {
            memory_budget_bytes: 64 << 20,
            clusters: clusters.collect(),
            flows: vec![flow],
            heartbeats: Vec::new(),
            takeover_timeout: Duration::ZERO,
        };
        Replicator::start(Seam::Simulated(self.simulation.named(name)), settings)
    }

    fn cut(&self, name: &str, link: Link) {
        for cluster in [&self.a, &self.b] {
            for broker in 1..=3 {
                self.simulation.set_link(name, cluster.address(broker).unwrap(), link);
            }
        }
    }

    async fn committed(&self, group: &str) -> BTreeMap<(String, i32), i64> {
        let group: Arc<str> = Arc::from(group);
        let mut each = self.client().fetch_group_offsets(std::slice::from_ref(&group)).await;
        let offsets = each.remove(&group).unwrap().unwrap();
        offsets.into_iter().map(|((topic, index), at)| ((topic.to_string(), index), at.offset)).collect()
    }
}

fn flow(strategies: &[Strategy]) -> FlowSettings {
    let mut flow = FlowSettings::new("A", "B");
    flow.topics = PatternList::new(&["t.*"]).unwrap();
    flow.topics_exclude = PatternList::default();
    flow.policy.kind = PolicyKind::Same;
    flow.replication_factor = ReplicationFactor::Named(-1);
    flow.translation.offset_syncs = None;
    flow.translation.emit_checkpoints_interval = None;
    (flow.sync_topic_configs_interval, flow.sync_topic_acls_interval) = (None, None);
    flow.refresh_topics_interval = Some(Duration::from_secs(1));
    flow.offset_flush_interval = Duration::from_millis(500);
    let mut group = MemberSettings::new("g");
    group.strategies = strategies.to_vec();
    group.session_timeout = Duration::from_secs(10);
    group.heartbeat_interval = Duration::from_secs(1);
    flow.group = Some(group);
    flow
}

fn create(cluster: &EmbeddedCluster, topic: &str, partitions: i32) {
    cluster.create_topic(topic, partitions as u32, 3, &[]).unwrap();
}

fn append(cluster: &EmbeddedCluster, topic: &str, partition: i32, first: u32, count: u32) {
    let batch = inside::numbered(first, count, Codec::None);
    let origin = log::Origin::Client(log::Verification::Missing);
    cluster.log(topic, partition, |log| log.append(0, 0, &batch, origin).unwrap()).unwrap();
}

/// The keys of a target partition, in order.
fn keys(cluster: &EmbeddedCluster, topic: &str, partition: i32) -> Vec<u32> {
    let mut keys = Vec::new();
    for batch in cluster.batches(topic, partition).unwrap_or_default() {
        for record in OpenBatch::open(&batch, 1 << 20).unwrap().records() {
            let key = record.unwrap().key.unwrap().to_vec();
            keys.push(String::from_utf8(key).unwrap().parse().unwrap());
        }
    }
    keys
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Which partitions a process copies.
async fn copies(replicator: &Replicator) -> BTreeSet<i32> {
    let status = replicator.status().await;
    status.flows[0].partitions.keys().map(|(_, index)| *index).collect()
}

async fn until_shared(processes: &[&Replicator], partitions: i32) {
    let started = Instant::now();
    loop {
        let mut all = Vec::new();
        for process in processes {
            all.push(copies(process).await);
        }
        let sum: usize = all.iter().map(BTreeSet::len).sum();
        let union: BTreeSet<i32> = all.iter().flatten().copied().collect();
        if sum == partitions as usize && union.len() == sum && all.iter().all(|one| !one.is_empty()) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{all:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

const PARTITIONS: i32 = 4;

async fn share(strategies: &[Strategy]) {
    let world = World::new().await;
    create(&world.a, "t", PARTITIONS);
    let mut sent = 0;
    let mut send = |count: u32| {
        (0..PARTITIONS).for_each(|partition| append(&world.a, "t", partition, sent, count));
        sent += count;
        sent
    };
    let whole =
        |sent: u32| (0..PARTITIONS).all(|at| keys(&world.b, "t", at) == (0..sent).collect::<Vec<_>>());
    let one = world.process("one", flow(strategies));
    let now = send(100);
    until("one copies all", || whole(now)).await;
    let two = world.process("two", flow(strategies));
    until_shared(&[&one, &two], PARTITIONS).await;
    let now = send(100);
    until("both copy", || whole(now)).await;
    let three = world.process("three", flow(strategies));
    until_shared(&[&one, &two, &three], PARTITIONS).await;
    let now = send(100);
    until("three copy", || whole(now)).await;
    one.stop().await;
    until_shared(&[&two, &three], PARTITIONS).await;
    let now = send(100);
    until("two are left", || whole(now)).await;
    // Positions are the group's offsets, and nothing else was made on the target.
    let ends: BTreeMap<(String, i32), i64> =
        (0..PARTITIONS).map(|index| (("t".to_owned(), index), i64::from(now))).collect();
    let started = Instant::now();
    while world.committed("g").await != ends {
        assert!(started.elapsed() < PATIENCE, "{:?}", world.committed("g").await);
        sleep(Duration::from_millis(100)).await;
    }
    let names: Vec<String> = world.b.topics().iter().map(|(name, _)| name.to_string()).collect();
    assert!(names.iter().all(|name| name == "t" || name.starts_with("__")), "{names:?}");
    two.stop().await;
    three.stop().await;
    assert!(whole(now), "nothing comes twice when processes come and go in order");
}

#[tokio::test(start_paused = true)]
async fn partitions_are_shared_under_each_strategy() {
    for strategies in [
        &[Strategy::Range, Strategy::CooperativeSticky][..],
        &[Strategy::RoundRobin],
        &[Strategy::Sticky],
        &[Strategy::CooperativeSticky],
    ] {
        share(strategies).await;
    }
}

/// A process that is cut off loses its partitions after its session; another one goes on, and nothing is missing.
#[tokio::test(start_paused = true)]
async fn what_a_lost_process_had_goes_on_elsewhere() {
    let world = World::new().await;
    create(&world.a, "t", PARTITIONS);
    let one = world.process("one", flow(&[Strategy::Range]));
    let two = world.process("two", flow(&[Strategy::Range]));
    until_shared(&[&one, &two], PARTITIONS).await;
    (0..PARTITIONS).for_each(|partition| append(&world.a, "t", partition, 0, 50));
    world.cut("one", Link::Silent);
    (0..PARTITIONS).for_each(|partition| append(&world.a, "t", partition, 50, 50));
    let wanted: BTreeSet<u32> = (0..100).collect();
    until("all is there", || {
        (0..PARTITIONS).all(|at| keys(&world.b, "t", at).into_iter().collect::<BTreeSet<u32>>() == wanted)
    })
    .await;
    assert_eq!(copies(&one).await, BTreeSet::new(), "it gave up what it had by itself");
    world.cut("one", Link::Up(Duration::from_micros(100)));
    until_shared(&[&one, &two], PARTITIONS).await;
    (0..PARTITIONS).for_each(|partition| append(&world.a, "t", partition, 100, 50));
    until("it is back", || (0..PARTITIONS).all(|at| keys(&world.b, "t", at).last() == Some(&149))).await;
    for at in 0..PARTITIONS {
        let keys = keys(&world.b, "t", at);
        let mut highest = 0;
        for pair in keys.windows(2) {
            assert!(pair[1] <= pair[0] + 1, "partition {at} skips from {} to {}", pair[0], pair[1]);
            highest = highest.max(pair[1]);
        }
        assert_eq!(highest, 149);
    }
}

/// What the group has committed is where a partition starts; where it has committed nothing, `auto.offset.reset`, but for a
/// partition that is younger than its topic's first.
#[tokio::test(start_paused = true)]
async fn partitions_start_at_the_groups_offsets() {
    let world = World::new().await;
    create(&world.a, "t", 2);
    create(&world.a, "tt", 1);
    (0..2).for_each(|partition| append(&world.a, "t", partition, 0, 10));
    append(&world.a, "tt", 0, 0, 10);
    let offsets = GroupOffsets::from([(
        (Arc::from("t"), 0),
        CommittedOffset { offset: 7, metadata: Arc::from("as a consumer has it") },
    )]);
    world.client().commit_group_offsets(&Arc::from("g"), &offsets).await.unwrap();
    let latest = FlowSettings { auto_offset_reset: OffsetReset::Latest, ..flow(&[Strategy::Range]) };
    let one = world.process("one", latest);
    until("it has begun", || keys(&world.b, "t", 0).len() == 3).await;
    until("younger partitions begin at their start", || keys(&world.b, "t", 1).len() == 10).await;
    // The start at the end is on record before anything is copied.
    let started = Instant::now();
    while world.committed("g").await.get(&("tt".to_owned(), 0)) != Some(&10) {
        assert!(started.elapsed() < PATIENCE, "{:?}", world.committed("g").await);
        sleep(Duration::from_millis(100)).await;
    }
    append(&world.a, "tt", 0, 10, 5);
    until("the end goes on", || keys(&world.b, "tt", 0) == [10, 11, 12, 13, 14]).await;
    assert_eq!(keys(&world.b, "t", 0), [7, 8, 9]);
    one.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_topics_that_are_named_so_go_into_one() {
    let world = World::new().await;
    for topic in ["t-eu", "t-us", "t-own"] {
        create(&world.a, topic, 1);
    }
    append(&world.a, "t-eu", 0, 0, 10);
    append(&world.a, "t-us", 0, 100, 10);
    append(&world.a, "t-own", 0, 200, 10);
    let mut flow = flow(&[Strategy::Range]);
    flow.policy.rewrites = TopicRewrites::new("t-eu:all,t-us:all,t-(o.*):$1").unwrap();
    let one = world.process("one", flow);
    until("both are in one", || keys(&world.b, "all", 0).len() == 20).await;
    let all = keys(&world.b, "all", 0);
    let of = |range: std::ops::Range<u32>| {
        all.iter().copied().filter(|key| range.contains(key)).collect::<Vec<_>>()
    };
    assert_eq!(of(0..10), (0..10).collect::<Vec<_>>());
    assert_eq!(of(100..110), (100..110).collect::<Vec<_>>());
    until("a pattern renames", || keys(&world.b, "own", 0).len() == 10).await;
    one.stop().await;
}

async fn membership(replicator: &Replicator) -> MembershipStatus {
    replicator.status().await.flows[0].membership.clone().unwrap()
}

/// What `/status` says of a member, and that one with an instance id comes back within its session without a rebalance (KIP-345):
/// the others keep copying, in the same generation.
#[tokio::test(start_paused = true)]
async fn a_process_with_an_instance_id_comes_back_to_what_it_had() {
    let world = World::new().await;
    create(&world.a, "t", PARTITIONS);
    let named = |id: &str| {
        let mut flow = flow(&[Strategy::Range]);
        flow.group.as_mut().unwrap().group_instance_id = Some(Arc::from(id));
        flow
    };
    let (one, two) = (world.process("one", named("i-1")), world.process("two", named("i-2")));
    until_shared(&[&one, &two], PARTITIONS).await;
    let (had, before) = (copies(&one).await, membership(&two).await);
    assert_eq!((&*before.group, before.protocol, before.state), ("g", "classic", "stable"));
    assert_eq!(before.instance.as_deref(), Some("i-2"));
    assert_eq!(before.assigned, BTreeMap::from([(Arc::from("t"), copies(&two).await)]));
    one.stop().await;
    (0..PARTITIONS).for_each(|partition| append(&world.a, "t", partition, 0, 50));
    let again = world.process("one", named("i-1"));
    let whole = || (0..PARTITIONS).all(|at| keys(&world.b, "t", at) == (0..50).collect::<Vec<_>>());
    until("all is copied", whole).await;
    assert_eq!(copies(&again).await, had);
    assert_eq!(membership(&two).await, before, "nobody else has noticed");
    assert_eq!(membership(&again).await.partitioning, BTreeMap::from([("t".into(), "preserve".to_owned())]));
    again.stop().await;
    two.stop().await;
}

/// Who comes later has the id; the other one ends with the reason, and does not take it back.
#[tokio::test(start_paused = true)]
async fn two_processes_with_one_instance_id_do_not_fight() {
    let world = World::new().await;
    create(&world.a, "t", PARTITIONS);
    let named = || {
        let mut flow = flow(&[Strategy::Range]);
        flow.group.as_mut().unwrap().group_instance_id = Some(Arc::from("same"));
        flow
    };
    let one = world.process("one", named());
    until_shared(&[&one], PARTITIONS).await;
    let two = world.process("two", named());
    let started = Instant::now();
    loop {
        let state = one.status().await.flows[0].state.clone();
        if matches!(&state, FlowState::Failed(why) if why.contains("group.instance.id = same")) {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{state:?}");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(membership(&one).await.state, "refused");
    until_shared(&[&two], PARTITIONS).await;
    let before = membership(&two).await;
    (0..PARTITIONS).for_each(|partition| append(&world.a, "t", partition, 0, 50));
    until("the later one copies", || (0..PARTITIONS).all(|at| keys(&world.b, "t", at).len() == 50)).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(membership(&two).await, before);
    one.stop().await;
    two.stop().await;
}

const DEALT: i32 = 5;

/// Each key is in its partition, once, and those of one source partition are in order.
fn dealt(world: &World, sent: u32) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for at in 0..DEALT {
        let keys = keys(&world.b, "t", at);
        for key in &keys {
            let wanted = partition_for_key(key.to_string().as_bytes(), DEALT);
            assert_eq!(wanted, at, "{key}");
            assert!(seen.insert(*key), "{key} twice");
        }
        for source in 0..2 {
            let of: Vec<u32> = keys.iter().copied().filter(|key| key % 2_000 / 1_000 == source).collect();
            assert!(of.is_sorted(), "partition {at}: {of:?}");
        }
    }
    if seen.len() as u32 == 2 * sent { Ok(()) } else { Err(format!("{} of {}", seen.len(), 2 * sent)) }
}

/// Where the target has another number of partitions, records go where Java's producer would put them. A process that goes
/// on keeps to it; a target that has grown stops the topic.
#[tokio::test(start_paused = true)]
async fn records_are_dealt_out_by_key_where_the_counts_differ() {
    let world = World::new().await;
    create(&world.a, "t", 2);
    create(&world.b, "t", DEALT);
    let mut sent = 0;
    let mut send = |count: u32| {
        (0..2).for_each(|at| append(&world.a, "t", at as i32, at * 1_000 + sent, count));
        sent += count;
        sent
    };
    let one = world.process("one", flow(&[Strategy::Range]));
    let now = send(100);
    until("all are dealt out", || dealt(&world, now).is_ok()).await;
    for _ in 0..20 {
        send(5);
    }
    let now = send(5);
    until("more are dealt out", || dealt(&world, now).is_ok()).await;
    one.stop().await;
    let two = world.process("two", flow(&[Strategy::Range]));
    let now = send(100);
    until("another process goes on", || dealt(&world, now).is_ok()).await;
    let status = two.status().await;
    let copied: u64 = status.flows[0].partitions.values().map(|one| one.counters.records).sum();
    assert_eq!(copied, 200, "{:#?}", status.flows[0].partitions);
    two.stop().await;
    dealt(&world, now).unwrap();
    let target =
        Cluster::new(Seam::Simulated(world.simulation.named("test")), World::settings("B", &world.b));
    for grown in
        target.create_partitions(&BTreeMap::from([(Arc::from("t"), DEALT + 3)])).await.unwrap().into_values()
    {
        grown.unwrap();
    }
    let three = world.process("three", flow(&[Strategy::Range]));
    let started = Instant::now();
    loop {
        let failed = three.status().await.flows[0].failed_topics.clone();
        if failed.values().any(|reason| reason.contains("dealt out by key over 5 partitions")) {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{failed:?}");
        sleep(Duration::from_millis(100)).await;
    }
    three.stop().await;
}

/// A broker of the target that takes nothing for a while holds up what goes there, and nothing is lost or comes twice.
#[tokio::test(start_paused = true)]
async fn what_is_dealt_out_survives_a_broker_that_is_away() {
    let world = World::new().await;
    create(&world.a, "t", 2);
    create(&world.b, "t", DEALT);
    let one = world.process("one", flow(&[Strategy::Range]));
    let mut sent = 0;
    let mut send = |count: u32| {
        (0..2).for_each(|at| append(&world.a, "t", at as i32, at * 1_000 + sent, count));
        sent += count;
        sent
    };
    let now = send(50);
    until("it runs", || dealt(&world, now).is_ok()).await;
    for broker in [2, 3] {
        world.simulation.set_link("one", world.b.address(broker).unwrap(), Link::Silent);
        for _ in 0..10 {
            send(10);
            sleep(Duration::from_millis(300)).await;
        }
        world.simulation.set_link(
            "one",
            world.b.address(broker).unwrap(),
            Link::Up(Duration::from_micros(100)),
        );
    }
    let now = send(10);
    until("all is there", || dealt(&world, now).is_ok()).await;
    one.stop().await;
}

/// Processes come and go in order at any time, also in the middle of what a generation begins with, while records are written:
/// each comes once, in order.
async fn come_and_go(seed: u64, strategies: &[Strategy]) {
    let world = World::new().await;
    create(&world.a, "t", PARTITIONS);
    let mut random = Random(seed);
    let mut flow = flow(strategies);
    if let Some(group) = &mut flow.group {
        group.heartbeat_interval = Duration::from_millis(100);
    }
    let mut running: Vec<Replicator> = Vec::new();
    let mut sent = 0;
    for step in 0..24 {
        if running.len() < 2 || (running.len() < 4 && random.below(2) == 0) {
            let name = format!("process-{step}");
            world.cut(&name, Link::Up(Duration::from_micros(100 + random.below(40_000))));
            running.push(world.process(&name, flow.clone()));
        } else {
            let leaving = running.remove(random.below(running.len() as u64) as usize);
            tokio::spawn(leaving.stop());
        }
        for _ in 0..random.below(8) {
            (0..PARTITIONS).for_each(|partition| append(&world.a, "t", partition, sent, 10));
            sent += 10;
            sleep(Duration::from_millis(random.below(120))).await;
        }
    }
    let wanted: Vec<u32> = (0..sent).collect();
    let all = || (0..PARTITIONS).all(|at| keys(&world.b, "t", at).len() >= wanted.len());
    until("all is copied", all).await;
    for process in running {
        process.stop().await;
    }
    for partition in 0..PARTITIONS {
        let found = keys(&world.b, "t", partition);
        let differs = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        assert_eq!(
            (differs, found.len()),
            (None, wanted.len()),
            "{strategies:?}, seed {seed}, partition {partition}"
        );
    }
}

/// Numbers by a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[tokio::test(start_paused = true)]
async fn generations_that_follow_fast_lose_and_repeat_nothing() {
    // SEEDS=N runs more of them.
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        come_and_go(seed, &[Strategy::Range]).await;
        come_and_go(seed, &[Strategy::CooperativeSticky]).await;
    }
}
