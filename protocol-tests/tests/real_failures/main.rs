//! `kmirror run` between two real clusters of three nodes each, of which nodes are killed, frozen and brought back
//! while traffic flows: nothing is lost, order is kept, nothing comes twice while the process lives.

use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{Admin, ClusterSpec, Isolation};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::Signal;
use protocol_tests::traffic::{Traffic, check_numbers};
use protocol_tests::wait::{Look, wait_for};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(90);
const PARTITIONS: i32 = 6;
/// `KMIRROR_LONG=1` keeps a broker down for a minute.
const DOWN_SHORT: Duration = Duration::from_secs(8);
const DOWN_LONG: Duration = Duration::from_secs(60);

/// The clusters of this binary, and the right to break them.
fn pair() -> Result<Option<(&'static Pair, MutexGuard<'static, ()>)>> {
    static PAIR: PairCell = PairCell::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::get(&PAIR, ClusterSpec::new("a").nodes(3), ClusterSpec::new("b").nodes(3))?;
    Ok(pair.map(|pair| (pair, turn)))
}

/// Replicas of each partition: leaders in turn.
fn spread() -> Vec<Vec<i32>> {
    (0..PARTITIONS).map(|partition| (0..3).map(|i| (partition + i) % 3 + 1).collect()).collect()
}

/// A mirror under traffic.
struct Scene {
    pair: &'static Pair,
    topic: &'static str,
    remote: String,
    traffic: Traffic,
    mirror: Kmirror,
}

impl Scene {
    fn open(pair: &'static Pair, topic: &'static str) -> Result<Scene> {
        pair.source().create_topic_on(topic, &spread(), &[])?;
        let flow = flow(pair, topic);
        let traffic = Traffic::start(
            pair.java(),
            &pair.a.bootstrap(),
            topic,
            PARTITIONS,
            10,
            Duration::from_millis(20),
        );
        let mirror = Kmirror::start(&["run"], flow.text())?;
        let mut scene = Scene { pair, topic, remote: flow.remote(topic), traffic, mirror };
        scene.wait_progress("the start")?;
        Ok(scene)
    }

    fn ends(&self) -> Result<Vec<i64>> {
        ends(&self.pair.target(), &self.remote)
    }

    /// Waits until every partition of the remote topic has gained records.
    fn wait_progress(&mut self, when: &str) -> Result<()> {
        let before = self.ends().unwrap_or_else(|_| vec![0; PARTITIONS as usize]);
        wait_for(&format!("progress of every partition after {when}"), TIMEOUT, || {
            self.mirror.expect_running()?;
            let ends = self.ends().unwrap_or_default();
            let done =
                ends.len() == before.len() && ends.iter().zip(&before).all(|(end, start)| *end > start + 30);
            Ok(if done {
                Look::Done(())
            } else {
                Look::Pending(format!("{ends:?}, {}", self.mirror.output()))
            })
        })
    }

    /// Ends the traffic and checks that everything arrived once and in order.
    fn close(mut self) -> Result<()> {
        let sent = self.traffic.stop()?;
        wait_for("everything to arrive", TIMEOUT, || {
            self.mirror.expect_running()?;
            let ends = ends(&self.pair.target(), &self.remote)?;
            let done = ends.iter().all(|end| *end >= sent);
            Ok(if done { Look::Done(()) } else { Look::Pending(format!("{ends:?} of {sent}")) })
        })?;
        let read = |bootstrap: &str, topic: &str| {
            self.pair.java().read(bootstrap, topic, Isolation::ReadUncommitted)
        };
        let source = read(&self.pair.a.bootstrap(), self.topic)?;
        assert_eq!(check_numbers(&source, PARTITIONS, sent), Ok(0), "the source itself");
        let target = read(&self.pair.b.bootstrap(), &self.remote)?;
        assert_eq!(check_numbers(&target, PARTITIONS, sent), Ok(0), "{}", self.mirror.output());
        assert_eq!(self.mirror.stop(TIMEOUT)?, 0, "{}", self.mirror.output());
        Ok(())
    }
}

fn flow(pair: &Pair, topic: &str) -> FlowFile {
    pair.flow(&format!("F{}", topic.replace('-', ""))).topics(topic)
}

fn ends(admin: &Admin, topic: &str) -> Result<Vec<i64>> {
    Ok(admin.offsets(topic, Isolation::ReadUncommitted)?.values().map(|offsets| offsets.latest).collect())
}

/// Case 53.
#[test]
fn a_source_broker_is_killed_and_comes_back() -> Result<()> {
    let Some((pair, _turn)) = pair()? else { return Ok(()) };
    let mut scene = Scene::open(pair, "source-killed")?;
    pair.a.kill(2)?;
    scene.wait_progress("the kill of a source broker")?;
    pair.a.restart(2)?;
    scene.wait_progress("its return")?;
    scene.close()
}

#[test]
fn a_target_broker_is_killed_and_comes_back() -> Result<()> {
    let Some((pair, _turn)) = pair()? else { return Ok(()) };
    let mut scene = Scene::open(pair, "target-killed")?;
    pair.b.kill(3)?;
    scene.wait_progress("the kill of a target broker")?;
    pair.b.restart(3)?;
    scene.wait_progress("its return")?;
    scene.close()
}

#[test]
fn leaders_move_on_both_sides() -> Result<()> {
    let Some((pair, _turn)) = pair()? else { return Ok(()) };
    let mut scene = Scene::open(pair, "moved")?;
    for (partition, replicas) in (0..).zip(spread()) {
        let [first, second, third] = replicas[..] else { continue };
        pair.source().move_leader(scene.topic, partition, &[second, third, first])?;
        pair.target().move_leader(&scene.remote, partition, &[third, first, second])?;
    }
    scene.wait_progress("the moves")?;
    scene.close()
}

#[test]
fn a_frozen_target_broker_holds_up_only_its_own_partitions() -> Result<()> {
    let Some((pair, _turn)) = pair()? else { return Ok(()) };
    let down = if std::env::var_os("KMIRROR_LONG").is_some() { DOWN_LONG } else { DOWN_SHORT };
    let (topic, flow) = ("frozen", flow(pair, "frozen"));
    pair.source().create_topic_on(topic, &spread(), &[])?;
    // One replica each: the partitions of the frozen broker have nowhere to go.
    let alone: Vec<Vec<i32>> = spread().iter().map(|replicas| vec![replicas[0]]).collect();
    let remote = flow.remote(topic);
    pair.target().create_topic_on(&remote, &alone, &[("min.insync.replicas", "1")])?;
    let pause = Duration::from_millis(5);
    let traffic = Traffic::start(pair.java(), &pair.a.bootstrap(), topic, PARTITIONS, 50, pause);
    let mut mirror = Kmirror::start(&["run"], flow.text())?;
    wait_for("the start", TIMEOUT, || {
        let ends = ends(&pair.target(), &remote)?;
        let done = ends.iter().all(|end| *end > 200);
        Ok(if done { Look::Done(()) } else { Look::Pending(format!("{ends:?} {}", mirror.output())) })
    })?;
    // Node 3 leads partitions 2 and 5.
    let bootstrap: Vec<String> = pair.b.bootstrap().split(',').take(2).map(str::to_owned).collect();
    let reachable = pair.java().admin(&bootstrap.join(","));
    let (sent_before, memory_before) = (traffic.sent(), mirror.usage()?.resident_bytes);
    let arrived_before = live_end(&reachable, &remote)?;
    pair.b.signal(3, Signal::Stop)?;
    std::thread::sleep(down);
    let sent_meanwhile = traffic.sent() - sent_before;
    let (arrived, memory) = (live_end(&reachable, &remote)?, mirror.usage()?.resident_bytes);
    pair.b.signal(3, Signal::Continue)?;
    let share = (arrived - arrived_before) as f64 / sent_meanwhile as f64;
    println!(
        "{sent_meanwhile} sent, {:.0} % arrived; {memory_before} -> {memory} bytes resident",
        share * 100.0
    );
    assert!(share >= 0.9, "{:.0} % of {sent_meanwhile} records arrived", share * 100.0);
    assert!(memory < (128 << 20) + (64 << 20), "{memory} bytes resident");
    let sent = traffic.stop()?;
    wait_for("everything to arrive", TIMEOUT, || {
        let ends = ends(&pair.target(), &remote)?;
        let done = ends.iter().all(|end| *end >= sent);
        Ok(if done { Look::Done(()) } else { Look::Pending(format!("{ends:?} of {sent}")) })
    })?;
    let target = pair.java().read(&pair.b.bootstrap(), &remote, Isolation::ReadUncommitted)?;
    assert_eq!(check_numbers(&target, PARTITIONS, sent), Ok(0));
    assert_eq!(mirror.stop(TIMEOUT)?, 0, "{}", mirror.output());
    Ok(())
}

/// The lowest end of the partitions that the frozen broker does not lead.
fn live_end(admin: &Admin, topic: &str) -> Result<i64> {
    let live: Vec<i32> = (0..PARTITIONS).filter(|partition| partition % 3 != 2).collect();
    Ok(admin.end_offsets(topic, &live)?.into_values().min().unwrap_or_default())
}
