//! Topologies from one file between embedded clusters: no loop, no foreign copy, each record once at each site, while topics
//! come and go.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use kmirror::broker::log::Isolation;
use kmirror::broker::{self, EmbeddedCluster};
use kmirror::config;
use kmirror::mirror::Replicator;
use kmirror::mirror::status::FlowState;
use kmirror::record::{BatchBuilder, BatchOptions, Codec, RecordData};
use kmirror::seam::{Seam, Simulation};
use protocol_tests::inside::replicator;
use tokio::time::{Instant, sleep};

/// Nothing here takes nearly so long, in the time of the simulation.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long nothing more may come once all is there: many rounds of each flow.
const QUIET: Duration = Duration::from_secs(30);

type Contents = BTreeMap<String, Vec<String>>;

struct World {
    seam: Seam,
    sites: BTreeMap<String, EmbeddedCluster>,
}

impl World {
    async fn new(names: &[&str]) -> World {
        let seam = Seam::Simulated(Simulation::new(7));
        let mut sites = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let settings = broker::Settings {
                cluster_id: format!("cluster-{name}"),
                seed: index as u64 + 1,
                address: format!("10.0.0.{}", index + 1).parse().unwrap(),
                ..broker::Settings::default()
            };
            let cluster = EmbeddedCluster::start(seam.clone(), settings).await.unwrap();
            sites.insert((*name).to_owned(), cluster);
        }
        World { seam, sites }
    }

    fn site(&self, name: &str) -> &EmbeddedCluster {
        &self.sites[name]
    }

    /// A topic of a site's own, with records that name the site.
    fn produce(&self, site: &str, topic: &str, from: usize, to: usize) {
        let cluster = self.site(site);
        if !cluster.topics().iter().any(|(name, _)| name == topic) {
            cluster.create_topic(topic, 1, 1, &[]).unwrap();
        }
        let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
        for number in from..to {
            let value = Some(Bytes::from(format!("{site}-{topic}-{number}")));
            builder.push(&RecordData { timestamp: 1, value, ..RecordData::default() }).unwrap();
        }
        cluster.append(topic, 0, &builder.build().unwrap()).unwrap();
    }

    fn file(&self, flows: &[&str], more: &str) -> String {
        let names: Vec<&str> = self.sites.keys().map(String::as_str).collect();
        let mut file =
            format!("clusters = {}\nrefresh.topics.interval.seconds = 1\n{more}\n", names.join(", "));
        for (name, cluster) in &self.sites {
            file += &format!("{name}.bootstrap.servers = {}\n", cluster.bootstrap());
        }
        for flow in flows {
            file += &format!("{flow}.enabled = true\n");
        }
        file
    }

    fn start(&self, flows: &[&str], more: &str) -> Replicator {
        replicator(&self.seam, &self.file(flows, more))
    }

    /// A process with `--clusters`.
    fn start_into(&self, file: &str, clusters: &[&str]) -> Replicator {
        let clusters: Vec<String> = clusters.iter().map(|&alias| alias.to_owned()).collect();
        let options = config::Options { clusters: &clusters, ..config::Options::default() };
        let report = config::load("test.properties", file.as_bytes(), &options);
        let settings = report.settings.unwrap_or_else(|| panic!("{:#?}", report.problems));
        Replicator::start(self.seam.clone(), settings.process)
    }

    /// What a site holds, but for the topics of Kafka, MirrorMaker and kmirror.
    fn contents(&self, site: &str) -> Contents {
        let cluster = self.site(site);
        let is_own =
            |name: &str| name.starts_with("__") || name.ends_with("internal") || name.ends_with("heartbeats");
        let topics = cluster.topics().into_iter().filter(|(name, _)| !is_own(name));
        topics
            .map(|(name, _)| {
                let records = cluster.read_all(&name, 0, Isolation::ReadUncommitted).unwrap();
                let text = |value: Option<Bytes>| String::from_utf8(value.unwrap().to_vec()).unwrap();
                (name, records.into_iter().map(|logged| text(logged.record.value)).collect())
            })
            .collect()
    }

    /// Waits until each site holds what it should, and sees to it that nothing more comes.
    async fn settle(&self, wanted: &BTreeMap<String, Contents>) {
        let started = Instant::now();
        let found =
            || self.sites.keys().map(|site| (site.clone(), self.contents(site))).collect::<BTreeMap<_, _>>();
        while found() != *wanted {
            assert!(started.elapsed() < PATIENCE, "{:#?} instead of {wanted:#?}", found());
            sleep(Duration::from_millis(100)).await;
        }
        sleep(QUIET).await;
        assert_eq!(found(), *wanted, "nothing more may come");
    }
}

/// Topics by site: what it holds, and whose topic that is.
type Holdings<'a> = &'a [(&'a str, &'a [(&'a str, &'a str)])];

/// Each site has `orders`; `holdings` says under which names it holds those of others. Later `late` comes at the first site,
/// and is held wherever its `orders` are, under the like name.
async fn check(flows: &[&str], more: &str, holdings: Holdings<'_>) {
    let names: Vec<&str> = holdings.iter().map(|(site, _)| *site).collect();
    let world = World::new(&names).await;
    names.iter().for_each(|site| world.produce(site, "orders", 0, 5));
    let wanted = |orders: usize, late: usize| -> BTreeMap<String, Contents> {
        let records = |site: &str, topic: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{site}-{topic}-{number}")).collect()
        };
        holdings
            .iter()
            .map(|(site, held)| {
                let mut contents = Contents::new();
                for (name, origin) in held.iter().copied().chain([("orders", *site)]) {
                    contents.insert(name.to_owned(), records(origin, "orders", orders));
                    if late > 0 && origin == names[0] {
                        contents.insert(name.replace("orders", "late"), records(origin, "late", late));
                    }
                }
                ((*site).to_owned(), contents)
            })
            .collect()
    };
    let replicator = world.start(flows, more);
    world.settle(&wanted(5, 0)).await;
    names.iter().for_each(|site| world.produce(site, "orders", 5, 8));
    world.produce(names[0], "late", 0, 3);
    world.settle(&wanted(8, 3)).await;
    // What is gone at its source stays where it was copied, and is not copied back.
    world.site(names[0]).delete_topic("late").unwrap();
    let mut gone = wanted(8, 3);
    gone.get_mut(names[0]).unwrap().remove("late");
    world.settle(&gone).await;
    replicator.stop().await;
    for cluster in world.sites.values() {
        assert!(cluster.violations().is_empty(), "{:?}", cluster.violations());
    }
}

/// Three sites, each with a process of its own that writes to it alone (`--clusters`), all with the same file. One of them is
/// away for a while; the others go on, and it catches up.
#[tokio::test(start_paused = true)]
async fn active_active_of_three_with_a_process_at_each_site() {
    let sites = ["A", "B", "C"];
    let world = World::new(&sites).await;
    let flows = ["A->B", "A->C", "B->A", "B->C", "C->A", "C->B"];
    let file = world.file(&flows, "topics = orders");
    let produce = |from, to| sites.iter().for_each(|site| world.produce(site, "orders", from, to));
    let wanted = |counts: [usize; 3]| -> BTreeMap<String, Contents> {
        let records = |site: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{site}-orders-{number}")).collect()
        };
        let of = |site: &str, count: usize| {
            let others = sites.iter().filter(|other| **other != site);
            let contents = others.map(|other| (format!("{other}.orders"), records(other, count)));
            contents
                .chain([("orders".to_owned(), records(site, counts[0].max(counts[1]).max(counts[2])))])
                .collect()
        };
        sites.iter().zip(counts).map(|(site, count)| ((*site).to_owned(), of(site, count))).collect()
    };
    produce(0, 5);
    let start = |site: &str| world.start_into(&file, &[site]);
    let (a, b, c) = (start("A"), start("B"), start("C"));
    world.settle(&wanted([5, 5, 5])).await;
    c.stop().await;
    produce(5, 9);
    world.settle(&wanted([9, 9, 5])).await;
    let c = start("C");
    world.settle(&wanted([9, 9, 9])).await;
    // Heartbeats of each pair come from the one process that writes to its target.
    for site in sites {
        let beats = world.site(site).read_all("heartbeats", 0, Isolation::ReadUncommitted).unwrap();
        let keys: BTreeSet<Bytes> = beats.into_iter().filter_map(|logged| logged.record.key).collect();
        assert_eq!(keys.len(), 2, "{site}: {keys:?}");
    }
    for process in [a, b, c] {
        process.stop().await;
    }
    for cluster in world.sites.values() {
        assert!(cluster.violations().is_empty(), "{:?}", cluster.violations());
    }
}

/// Several files, one process each, share a flow; none treads on another's positions, and one that takes all of it later
/// goes on where they stopped.
#[tokio::test(start_paused = true)]
async fn one_flow_in_several_files() {
    let world = World::new(&["A", "B"]).await;
    let produce = |from: usize, to: usize| {
        for topic in ["busy", "orders", "payments"] {
            world.produce("A", topic, from, to);
        }
    };
    let wanted = |count: usize| {
        let records =
            |topic: &str| (0..count).map(|number| format!("A-{topic}-{number}")).collect::<Vec<_>>();
        let site = |prefix: &str| -> Contents {
            let topics = ["busy", "orders", "payments"];
            topics.iter().map(|topic| (format!("{prefix}{topic}"), records(topic))).collect()
        };
        BTreeMap::from([("A".to_owned(), site("")), ("B".to_owned(), site("A."))])
    };
    produce(0, 5);
    let busy = world.start(&["A->B"], "A->B.topics = busy");
    let rest = world.start(&["A->B"], "A->B.topics = orders, payments");
    world.settle(&wanted(5)).await;
    produce(5, 9);
    world.settle(&wanted(9)).await;
    busy.stop().await;
    produce(9, 12);
    let all = world.start(&["A->B"], "");
    sleep(QUIET).await;
    rest.stop().await;
    world.settle(&wanted(12)).await;
    all.stop().await;
    assert!(world.site("B").violations().is_empty(), "{:?}", world.site("B").violations());
}

#[tokio::test(start_paused = true)]
async fn one_way() {
    check(&["A->B"], "", &[("A", &[]), ("B", &[("A.orders", "A")])]).await;
}

#[tokio::test(start_paused = true)]
async fn two_ways() {
    check(&["A->B", "B->A"], "", &[("A", &[("B.orders", "B")]), ("B", &[("A.orders", "A")])]).await;
}

#[tokio::test(start_paused = true)]
async fn two_ways_under_a_format_and_another_separator() {
    check(
        &["A->B", "B->A"],
        "kmirror.replication.policy.format = {source}_prod_v2.{topic}\nreplication.policy.separator = _",
        &[("A", &[("B_prod_v2.orders", "B")]), ("B", &[("A_prod_v2.orders", "A")])],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn active_active_of_three() {
    let flows = ["A->B", "A->C", "B->A", "B->C", "C->A", "C->B"];
    check(
        &flows,
        "topics = orders, late",
        &[
            ("A", &[("B.orders", "B"), ("C.orders", "C")]),
            ("B", &[("A.orders", "A"), ("C.orders", "C")]),
            ("C", &[("A.orders", "A"), ("B.orders", "B")]),
        ],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn fan_in_and_fan_out() {
    check(&["A->C", "B->C"], "", &[("A", &[]), ("B", &[]), ("C", &[("A.orders", "A"), ("B.orders", "B")])])
        .await;
    check(
        &["A->B", "A->C"],
        "kmirror.compat = 3.9",
        &[("A", &[]), ("B", &[("A.orders", "A")]), ("C", &[("A.orders", "A")])],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_chain() {
    check(
        &["A->B", "B->C"],
        "kmirror.compat = 4.4",
        &[("A", &[]), ("B", &[("A.orders", "A")]), ("C", &[("B.orders", "B"), ("B.A.orders", "A")])],
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_ring() {
    check(
        &["A->B", "B->C", "C->A"],
        "",
        &[
            ("A", &[("C.orders", "C"), ("C.B.orders", "B")]),
            ("B", &[("A.orders", "A"), ("A.C.orders", "C")]),
            ("C", &[("B.orders", "B"), ("B.A.orders", "A")]),
        ],
    )
    .await;
}

/// A chain of `RegexRouter`s takes the alias away, so that the topic keeps its name, one way.
#[tokio::test(start_paused = true)]
async fn renamed_by_a_regex_router() {
    let world = World::new(&["A", "B"]).await;
    world.produce("A", "orders", 0, 5);
    let router = "A->B.transforms = strip\n\
        A->B.transforms.strip.type = org.apache.kafka.connect.transforms.RegexRouter\n\
        A->B.transforms.strip.regex = A\\\\.(orders)\nA->B.transforms.strip.replacement = $1-copy\n";
    let replicator = world.start(&["A->B"], router);
    let orders: Vec<String> = (0..5).map(|number| format!("A-orders-{number}")).collect();
    let contents = |name: &str| Contents::from([(name.to_owned(), orders.clone())]);
    world
        .settle(&BTreeMap::from([
            ("A".to_owned(), contents("orders")),
            ("B".to_owned(), contents("orders-copy")),
        ]))
        .await;
    replicator.stop().await;
}

/// Two aliases of one cluster would copy without end; the cluster's id tells.
#[tokio::test(start_paused = true)]
async fn two_names_of_one_cluster_are_refused() {
    let world = World::new(&["A"]).await;
    world.produce("A", "orders", 0, 5);
    let servers = world.site("A").bootstrap();
    let file = format!(
        "clusters = A, B\nA.bootstrap.servers = {servers}\nB.bootstrap.servers = {servers}\nA->B.enabled = true\n"
    );
    let report = config::load("test.properties", file.as_bytes(), &config::Options::default());
    let replicator = Replicator::start(world.seam.clone(), report.settings.unwrap().process);
    let started = Instant::now();
    let reason = loop {
        let status = replicator.status().await;
        if let FlowState::Failed(reason) = &status.flows[0].state {
            break reason.clone();
        }
        assert!(started.elapsed() < PATIENCE, "{status:#?}");
        sleep(Duration::from_millis(100)).await;
    };
    assert!(reason.contains("A and B are two names of one cluster (cluster-A)"), "{reason}");
    replicator.stop().await;
    let topics: Vec<String> = world.site("A").topics().into_iter().map(|(name, _)| name).collect();
    let made: Vec<&String> = topics.iter().filter(|name| !name.starts_with("__")).collect();
    assert_eq!(made, ["orders"], "nothing was made there");
}

/// Two files name the same two clusters differently, and each copies one way. Nothing in a name tells that what came from A
/// came from X; the clusters' ids do, so nothing goes round, heartbeats neither.
#[tokio::test(start_paused = true)]
async fn two_files_with_other_names_for_the_same_clusters_make_no_loop() {
    let world = World::new(&["A", "B"]).await;
    let renamed = |file: &str| file.replace("A.boot", "X.boot").replace("B.boot", "Y.boot");
    let there = world.file(&["A->B"], "topics.exclude = mm2.*");
    let back = renamed(&world.file(&["Y->X"], "topics.exclude = mm2.*")).replace("= A, B", "= X, Y");
    world.produce("A", "orders", 0, 5);
    let first = world.start_into(&there, &[]);
    let wanted = |count: usize, back: usize| {
        let records = |site: &str, topic: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{site}-{topic}-{number}")).collect()
        };
        let orders = records("A", "orders", count);
        let mut contents = BTreeMap::from([
            ("A".to_owned(), Contents::from([("orders".to_owned(), orders.clone())])),
            ("B".to_owned(), Contents::from([("A.orders".to_owned(), orders)])),
        ]);
        if back > 0 {
            let answers = records("B", "answers", back);
            contents.get_mut("A").unwrap().insert("Y.answers".to_owned(), answers.clone());
            contents.get_mut("B").unwrap().insert("answers".to_owned(), answers);
        }
        contents
    };
    world.settle(&wanted(5, 0)).await;
    world.produce("B", "answers", 0, 4);
    let second = world.start_into(&back, &[]);
    world.settle(&wanted(5, 4)).await;
    world.produce("A", "orders", 5, 9);
    world.settle(&wanted(9, 4)).await;
    let heartbeats = |site: &str| -> Vec<String> {
        let names = world.site(site).topics().into_iter().map(|(name, _)| name);
        names.filter(|name| name.ends_with("heartbeats")).collect()
    };
    assert_eq!(heartbeats("A"), ["Y.heartbeats", "heartbeats"]);
    assert_eq!(heartbeats("B"), ["A.heartbeats", "heartbeats"]);
    first.stop().await;
    second.stop().await;
}

/// As above with names that are kept: the clusters' ids do not help, since no name tells where a record came from. The later
/// one leaves alone what the earlier one would bring back, and copies the rest.
#[tokio::test(start_paused = true)]
async fn two_files_that_keep_the_same_names_both_ways_make_no_loop() {
    const IDENTITY: &str =
        "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy";
    let renamed = |file: &str| file.replace("A.boot", "X.boot").replace("B.boot", "Y.boot");
    let files = |world: &World| {
        let there = world.file(&["A->B"], &format!("topics = orders.*\n{IDENTITY}"));
        let back = renamed(&world.file(&["Y->X"], IDENTITY)).replace("= A, B", "= X, Y");
        (there, back)
    };
    let records = |site: &str, topic: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{site}-{topic}-{number}")).collect()
    };
    let world = World::new(&["A", "B"]).await;
    let (there, back) = files(&world);
    world.produce("A", "orders", 0, 5);
    let first = world.start_into(&there, &[]);
    let all = |count: usize| Contents::from([("orders".to_owned(), records("A", "orders", count))]);
    world.settle(&BTreeMap::from([("A".to_owned(), all(5)), ("B".to_owned(), all(5))])).await;
    world.produce("B", "answers", 0, 4);
    let second = world.start_into(&back, &[]);
    world.produce("A", "orders", 5, 9);
    let mut wanted = all(9);
    wanted.insert("answers".to_owned(), records("B", "answers", 4));
    world.settle(&BTreeMap::from([("A".to_owned(), wanted.clone()), ("B".to_owned(), wanted)])).await;
    first.stop().await;
    second.stop().await;

    // At the same moment, each may leave it to the other.
    let world = World::new(&["A", "B"]).await;
    let (there, back) = files(&world);
    world.produce("A", "orders", 0, 5);
    let (first, second) = (world.start_into(&there, &[]), world.start_into(&back, &[]));
    sleep(QUIET).await;
    assert_eq!(world.contents("A"), all(5));
    assert!(world.contents("B").values().all(|orders| *orders == records("A", "orders", 5)));
    let heartbeats =
        |site: &str, name: &str| world.site(site).topics().iter().any(|(topic, _)| topic == name);
    assert!(heartbeats("A", "Y.heartbeats") && heartbeats("B", "A.heartbeats"));
    first.stop().await;
    second.stop().await;
}

/// Names that tell where a topic came from are enough, also when both files begin for the first time at the same moment.
#[tokio::test(start_paused = true)]
async fn two_files_with_other_names_that_begin_at_the_same_moment_copy_both_ways() {
    let world = World::new(&["A", "B"]).await;
    let renamed = |file: &str| file.replace("A.boot", "X.boot").replace("B.boot", "Y.boot");
    let there = world.file(&["A->B"], "");
    let back = renamed(&world.file(&["Y->X"], "")).replace("= A, B", "= X, Y");
    world.produce("A", "orders", 0, 5);
    world.produce("B", "answers", 0, 4);
    let (first, second) = (world.start_into(&there, &[]), world.start_into(&back, &[]));
    let records = |site: &str, topic: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{site}-{topic}-{number}")).collect()
    };
    let (orders, answers) = (records("A", "orders", 5), records("B", "answers", 4));
    let wanted = [("A", ["orders", "Y.answers"]), ("B", ["A.orders", "answers"])].map(|(site, topics)| {
        let [o, a] = topics.map(str::to_owned);
        (site.to_owned(), Contents::from([(o, orders.clone()), (a, answers.clone())]))
    });
    world.settle(&BTreeMap::from(wanted)).await;
    first.stop().await;
    second.stop().await;
}
