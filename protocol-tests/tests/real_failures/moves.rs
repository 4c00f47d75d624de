//! Brokers die and come back, leaders move, topics and partitions appear, all under traffic.

use crate::{PARTITIONS, Scene, check_equal, pair, spread, wait_arrived};
use protocol_tests::Result;
use protocol_tests::traffic::Traffic;
use std::time::Duration;

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
fn leaders_move_on_both_sides_and_topics_grow() -> Result<()> {
    let Some((pair, _turn)) = pair()? else { return Ok(()) };
    let mut scene = Scene::open(pair, "moved")?;
    for (partition, replicas) in (0..).zip(spread()) {
        let [first, second, third] = replicas[..] else { continue };
        pair.source().move_leader(scene.topic, partition, &[second, third, first])?;
        pair.target().move_leader(&scene.remote, partition, &[third, first, second])?;
    }
    scene.wait_progress("the moves")?;
    // A second topic, with one partition to begin with; the others come while it flows.
    let topic = "moved.later";
    pair.source().create_topic(topic, 1, &[])?;
    pair.source().create_partitions(topic, PARTITIONS)?;
    let pause = Duration::from_millis(20);
    let traffic = Traffic::start(pair.java(), &pair.a.bootstrap(), topic, PARTITIONS, 10, pause);
    scene.wait_progress("a second topic")?;
    let (sent, remote) = (traffic.stop()?, scene.flow.remote(topic));
    wait_arrived(pair, &mut scene.mirror, &remote, sent)?;
    check_equal(pair, topic, &remote, sent)?;
    scene.close()
}
