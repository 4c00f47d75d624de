//! `kmirror run` between two real clusters of three nodes each, of which nodes are killed, frozen and brought back and
//! leaders are moved while traffic flows: nothing is lost, order is kept, nothing comes twice while the process lives.

mod down;
mod moves;

use protocol_tests::Result;
use protocol_tests::flow::FlowFile;
use protocol_tests::kafka::{Admin, ClusterSpec, Isolation};
use protocol_tests::mirror::Kmirror;
use protocol_tests::pair::{Pair, PairCell};
use protocol_tests::process::tail;
use protocol_tests::traffic::{Traffic, check_numbers};
use protocol_tests::wait::{Look, wait_for};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Far above what any step takes; a busy machine must not fail a test.
const TIMEOUT: Duration = Duration::from_secs(120);
const PARTITIONS: i32 = 6;

/// The clusters of this binary, and the right to break them: one test at a time, each of which leaves them whole.
fn pair() -> Result<Option<(&'static Pair, MutexGuard<'static, ()>)>> {
    static PAIR: PairCell = PairCell::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::get(&PAIR, ClusterSpec::new("a").nodes(3), ClusterSpec::new("b").nodes(3))?;
    if let Some(pair) = pair {
        for cluster in [&pair.a, &pair.b] {
            // What an earlier test that failed has left.
            for node in cluster.node_ids() {
                cluster.signal(node, protocol_tests::process::Signal::Continue)?;
                cluster.restart(node)?;
            }
        }
    }
    Ok(pair.map(|pair| (pair, turn)))
}

/// Replicas of each partition: partition `p` is led by node `p % 3 + 1`.
fn spread() -> Vec<Vec<i32>> {
    (0..PARTITIONS).map(|partition| (0..3).map(|i| (partition + i) % 3 + 1).collect()).collect()
}

/// With three replicas: of two, the cluster's `min.insync.replicas` lets none be away.
fn flow(pair: &Pair, topic: &str) -> FlowFile {
    let flow = pair.flow(&format!("F{}", topic.replace('-', ""))).topics(&format!("{topic}([.].*)?"));
    flow.set("replication.factor", "3")
}

/// The end of each partition of a topic, asked for until a busy machine answers.
fn ends(admin: &Admin, topic: &str, partitions: &[i32]) -> Result<Vec<i64>> {
    wait_for(&format!("ends of {topic}"), TIMEOUT, || {
        Ok(match admin.end_offsets(topic, partitions) {
            Ok(ends) => Look::Done(ends.into_values().collect()),
            Err(error) => Look::Pending(error.to_string()),
        })
    })
}

/// A mirror under traffic.
struct Scene {
    pair: &'static Pair,
    flow: FlowFile,
    topic: &'static str,
    remote: String,
    traffic: Traffic,
    mirror: Kmirror,
}

impl Scene {
    fn open(pair: &'static Pair, topic: &'static str) -> Result<Scene> {
        pair.source().create_topic_on(topic, &spread(), &[])?;
        let flow = flow(pair, topic);
        let pause = Duration::from_millis(20);
        let traffic = Traffic::start(pair.java(), &pair.a.bootstrap(), topic, PARTITIONS, 10, pause);
        let mirror = Kmirror::start(&["run"], flow.text())?;
        let remote = flow.remote(topic);
        let mut scene = Scene { pair, flow, topic, remote, traffic, mirror };
        scene.wait_progress("the start")?;
        Ok(scene)
    }

    /// Waits until every partition of the remote topic has gained records.
    fn wait_progress(&mut self, when: &str) -> Result<()> {
        let all: Vec<i32> = (0..PARTITIONS).collect();
        let mut before = None;
        wait_for(&format!("progress of every partition after {when}"), TIMEOUT, || {
            self.mirror.expect_running()?;
            let ends = ends(&self.pair.target(), &self.remote, &all)?;
            let before = before.get_or_insert_with(|| ends.clone());
            let done = ends.iter().zip(&*before).all(|(end, start)| *end > start + 30);
            let seen = || format!("{before:?} -> {ends:?}\n{}", tail(&self.mirror.output(), 40));
            Ok(if done { Look::Done(()) } else { Look::Pending(seen()) })
        })
    }

    /// Ends the traffic and checks that everything arrived once and in order.
    fn close(mut self) -> Result<()> {
        let sent = self.traffic.stop()?;
        wait_arrived(self.pair, &mut self.mirror, &self.remote, sent)?;
        check_equal(self.pair, self.topic, &self.remote, sent)?;
        assert_eq!(self.mirror.stop(TIMEOUT)?, 0, "{}", self.mirror.output());
        Ok(())
    }
}

/// Waits until every partition of the remote topic holds as many records.
fn wait_arrived(pair: &Pair, mirror: &mut Kmirror, remote: &str, sent: i64) -> Result<()> {
    let all: Vec<i32> = (0..PARTITIONS).collect();
    wait_for("everything to arrive", TIMEOUT, || {
        mirror.expect_running()?;
        let ends = ends(&pair.target(), remote, &all)?;
        let done = ends.iter().all(|end| *end >= sent);
        let seen = || format!("{ends:?} of {sent}\n{}", tail(&mirror.output(), 40));
        Ok(if done { Look::Done(()) } else { Look::Pending(seen()) })
    })
}

/// Both topics hold the numbers of the traffic, each once and in order.
fn check_equal(pair: &Pair, topic: &str, remote: &str, sent: i64) -> Result<()> {
    let java = pair.java();
    let source = java.read(&pair.a.bootstrap(), topic, Isolation::ReadUncommitted)?;
    assert_eq!(check_numbers(&source, PARTITIONS, sent), Ok(0), "the source itself");
    let target = java.read(&pair.b.bootstrap(), remote, Isolation::ReadUncommitted)?;
    assert_eq!(check_numbers(&target, PARTITIONS, sent), Ok(0), "{remote}");
    Ok(())
}
