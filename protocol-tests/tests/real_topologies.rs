//! Topologies of three real clusters, each from one file: two ways, active/active of three sites, and a ring. Topics come and
//! go while records flow; no loop, no foreign copy, each record once at each site.
//!
//! A minute here; `KMIRROR_LONG=1` goes on for ten. What each topology must hold is what `embedded_topologies` asserts; here
//! it is asserted of Kafka's own brokers, with groups of aliases that are each topology's own.

use protocol_tests::Result;
use protocol_tests::kafka::{Admin, Client, ClusterSpec, Isolation, Kafka, real_kafka};
use protocol_tests::mirror::Kmirror;
use protocol_tests::traffic::{Traffic, check_numbers};
use protocol_tests::wait::{Look, wait_for};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);
const SMALL_JVM: [&str; 4] = ["-Xms128m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
const PARTITIONS: i32 = 2;

/// Three sites, which the topologies use one after the other: each has sites and topics of its own names.
struct World {
    java: &'static Client,
    kafkas: Vec<Kafka>,
}

impl World {
    fn admin(&self, site: usize) -> Admin<'static> {
        self.java.admin(&self.kafkas[site].bootstrap())
    }

    /// Topics of a site that are nobody's own: not of Kafka, MirrorMaker or kmirror.
    fn topics(&self, site: usize) -> Result<BTreeSet<String>> {
        let is_own = |name: &String| {
            name.starts_with("__") || name.ends_with("internal") || name.ends_with("heartbeats")
        };
        Ok(self.admin(site).topics()?.into_iter().filter(|name| !is_own(name)).collect())
    }
}

/// One topology: `aliases[i]` names site `i`; flows are pairs of sites; a copy at a site is the path that it came, the
/// origin last, such as `[1, 0]` for `B.A.topic`.
struct Topology<'a> {
    name: &'a str,
    /// Which topics its flows take.
    topics: &'a str,
    aliases: [&'a str; 3],
    flows: &'a [(usize, usize)],
    copies: [&'a [&'a [usize]]; 3],
}

impl Topology<'_> {
    fn file(&self, world: &World) -> String {
        let mut file = format!("clusters = {}\ntopics = {}\n", self.aliases.join(", "), self.topics);
        for (alias, kafka) in self.aliases.iter().zip(&world.kafkas) {
            file += &format!("{alias}.bootstrap.servers = {}\n", kafka.bootstrap());
            file += &format!("{alias}.offset.flush.interval.ms = 1000\n");
        }
        for (from, to) in self.flows {
            file += &format!("{}->{}.enabled = true\n", self.aliases[*from], self.aliases[*to]);
        }
        file + "refresh.topics.interval.seconds = 1\nemit.checkpoints.interval.seconds = 2\nreplication.factor = 1\n\
                topics.exclude = .*[.]internal, .*heartbeats\n"
    }

    /// What a topic of site `origin` is called where it came by a path of sites, the last sender first.
    fn copy(&self, path: &[usize], topic: &str) -> String {
        path.iter().map(|&site| format!("{}.", self.aliases[site])).collect::<String>() + topic
    }

    fn own(&self, site: usize, kind: &str) -> String {
        format!("{}.{kind}-of-{}", self.name, self.aliases[site])
    }

    /// The names at a site of what each site calls `kind`.
    fn held(&self, site: usize, kind: &str, origins: &[usize]) -> BTreeSet<String> {
        let copies = self.copies[site].iter().filter(|path| origins.contains(&path[path.len() - 1]));
        let mut held: BTreeSet<String> =
            copies.map(|path| self.copy(path, &self.own(path[path.len() - 1], kind))).collect();
        if origins.contains(&site) {
            held.insert(self.own(site, kind));
        }
        held
    }

    /// The sites that are part of it.
    fn sites(&self) -> Vec<usize> {
        let ends: BTreeSet<usize> = self.flows.iter().flat_map(|&(from, to)| [from, to]).collect();
        ends.into_iter().collect()
    }

    fn run(&self, world: &World, duration: Duration) -> Result<()> {
        let sites = self.sites();
        let mut before = Vec::new();
        for site in 0..3 {
            before.push(world.topics(site)?);
        }
        for &site in &sites {
            world.admin(site).create_topic(&self.own(site, "steady"), PARTITIONS, &[])?;
        }
        let pause = Duration::from_millis(100);
        let traffic: Vec<Traffic> = sites
            .iter()
            .map(|&site| {
                let bootstrap = world.kafkas[site].bootstrap();
                Traffic::start(world.java, &bootstrap, &self.own(site, "steady"), PARTITIONS, 3, pause)
            })
            .collect();
        let mut mirror = Kmirror::start(&["run"], &self.file(world))?;
        let mut wanted: Vec<BTreeSet<String>> =
            (0..3).map(|site| self.held(site, "steady", &sites)).collect();
        let started = Instant::now();
        let mut round = 0;
        loop {
            // A topic comes, is copied everywhere, and goes at its origin; its copies stay, and nothing brings it back.
            let origin = sites[round % sites.len()];
            let (kind, own) = (format!("late{round}"), self.own(origin, &format!("late{round}")));
            world.admin(origin).create_topic(&own, 1, &[])?;
            let records: Vec<_> = (0..5).map(|number| protocol_tests::traffic::numbered(0, number)).collect();
            world.java.produce(&world.kafkas[origin].bootstrap(), &own, &records)?;
            for (site, wanted) in wanted.iter_mut().enumerate() {
                wanted.extend(self.held(site, &kind, &[origin]));
            }
            self.settle(world, &mut mirror, &before, &wanted)?;
            for &site in &sites {
                for copy in self.held(site, &kind, &[origin]) {
                    self.wait_numbers(world, &mut mirror, site, &copy, 1, 5)?;
                }
            }
            world.admin(origin).delete_topic(&own)?;
            wanted[origin].remove(&own);
            round += 1;
            if started.elapsed() >= duration && round > 1 {
                break;
            }
        }
        let mut sent = Vec::new();
        for traffic in traffic {
            sent.push(traffic.stop()?);
        }
        for &site in &sites {
            for (&origin, &count) in sites.iter().zip(&sent) {
                for copy in self.held(site, "steady", &[origin]) {
                    self.wait_numbers(world, &mut mirror, site, &copy, PARTITIONS, count)?;
                }
            }
        }
        // Several rounds of every flow in which nothing more may come.
        std::thread::sleep(Duration::from_secs(3));
        self.settle(world, &mut mirror, &before, &wanted)?;
        for &site in &sites {
            for (&origin, &count) in sites.iter().zip(&sent) {
                for copy in self.held(site, "steady", &[origin]) {
                    self.wait_numbers(world, &mut mirror, site, &copy, PARTITIONS, count)?;
                }
            }
        }
        assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
        println!("{}: {round} topics came and went, {sent:?} records per partition and site", self.name);
        Ok(())
    }

    /// Waits until each site has the topics that it should, and no other.
    fn settle(
        &self,
        world: &World,
        mirror: &mut Kmirror,
        before: &[BTreeSet<String>],
        wanted: &[BTreeSet<String>],
    ) -> Result<()> {
        wait_for(&format!("the topics of {}", self.name), TIMEOUT, || {
            mirror.expect_running()?;
            for site in 0..3 {
                let found: BTreeSet<String> = &world.topics(site)? - &before[site];
                if found != wanted[site] {
                    let wanted = &wanted[site];
                    return Ok(Look::Pending(format!(
                        "site {site}: {found:?}, wanted {wanted:?}\n{}",
                        mirror.output()
                    )));
                }
            }
            Ok(Look::Done(()))
        })
    }

    /// Waits until a copy holds each number once.
    fn wait_numbers(
        &self,
        world: &World,
        mirror: &mut Kmirror,
        site: usize,
        topic: &str,
        partitions: i32,
        count: i64,
    ) -> Result<()> {
        wait_for(&format!("{topic} at {}", self.aliases[site]), TIMEOUT, || {
            mirror.expect_running()?;
            let bootstrap = world.kafkas[site].bootstrap();
            let records = world.java.read(&bootstrap, topic, Isolation::ReadUncommitted)?;
            Ok(match check_numbers(&records, partitions, count) {
                Ok(0) => Look::Done(()),
                Ok(repeated) => panic!("{topic}: {repeated} records twice\n{}", mirror.output()),
                Err(text) => Look::Pending(format!("{text}\n{}", mirror.output())),
            })
        })
    }
}

#[test]
fn records_reach_each_site_once_while_topics_come_and_go() -> Result<()> {
    let Some(real) = real_kafka()? else { return Ok(()) };
    let start = |name: &str| Kafka::start(ClusterSpec::new(name).jvm_options(&SMALL_JVM));
    let kafkas = std::thread::scope(|scope| {
        let starts: Vec<_> = ["one", "two", "three"].map(|name| scope.spawn(move || start(name))).into();
        starts.into_iter().map(|start| start.join().unwrap()).collect::<Result<Vec<_>>>()
    })?;
    let world = World { java: &real.java, kafkas };
    let seconds = if std::env::var_os("KMIRROR_LONG").is_some() { 200 } else { 8 };
    for topology in [
        Topology {
            name: "pair",
            topics: ".*pair[.].*",
            aliases: ["P", "Q", "R"],
            flows: &[(0, 1), (1, 0)],
            copies: [&[&[1]], &[&[0]], &[]],
        },
        Topology {
            name: "mesh",
            topics: "mesh[.].*",
            aliases: ["X", "Y", "Z"],
            flows: &[(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)],
            copies: [&[&[1], &[2]], &[&[0], &[2]], &[&[0], &[1]]],
        },
        Topology {
            name: "ring",
            topics: ".*ring[.].*",
            aliases: ["F", "G", "H"],
            flows: &[(0, 1), (1, 2), (2, 0)],
            copies: [&[&[2], &[2, 1]], &[&[0], &[0, 2]], &[&[1], &[1, 0]]],
        },
    ] {
        topology.run(&world, Duration::from_secs(seconds))?;
    }
    Ok(())
}
