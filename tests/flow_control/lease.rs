//! Who may write a flow: one process for each share of its topics, and no MirrorMaker beside it.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_process_writes_and_stops_before_the_next_begins() {
    let world = World::new(6).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut first = world.owner("first", settings());
    let store = first.granted().await.store;
    let ready = first.ready("t1").await;
    let mut second = world.owner("second", settings());
    second.state(|state| *state == FlowState::Standby).await;

    // The first is cut off from the target, and nobody tells it.
    world.set_links("first", &world.target, Link::Silent);
    let cut_at = Instant::now();
    let revoked = async {
        first
            .wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then(Instant::now))
            .await
    };
    let granted = async {
        second.granted().await;
        Instant::now()
    };
    let (revoked_at, granted_at) = tokio::join!(revoked, granted);
    assert!(revoked_at < granted_at, "revoked {:?}, granted {:?}", revoked_at - cut_at, granted_at - cut_at);
    assert!(granted_at - cut_at < Duration::from_secs(23), "{:?}", granted_at - cut_at);
    assert!(store.save(vec![moved(&ready, 0, 5, 4)]).await.is_err());

    // Back again, the first stands by; given back, it takes over when it hears of it, with its next heartbeat.
    world.set_links("first", &world.target, Link::Up(Duration::from_millis(1)));
    first.state(|state| *state == FlowState::Standby).await;
    let stopped_at = Instant::now();
    second.stop().await;
    first.granted().await;
    assert!(stopped_at.elapsed() < Duration::from_secs(4), "{:?}", stopped_at.elapsed());
    first.stop().await;
}

/// One process per file, the flow's topics split between them.
#[tokio::test(start_paused = true)]
async fn processes_that_take_other_topics_write_beside_each_other() {
    let world = World::new(12).await;
    for topic in ["busy", "heartbeats", "t1", "t2"] {
        world.source.create_topic(topic, 1, 1, &[]).unwrap();
    }
    let of = |topics: &[&str], exclude: &[&str]| FlowSettings {
        topics: PatternList::new(topics).unwrap(),
        topics_exclude: PatternList::new(exclude).unwrap(),
        ..settings()
    };
    let topics = async |owner: &mut Owner| {
        let mut ready = Vec::new();
        let done = |event: &ControlEvent| match event {
            ControlEvent::TopicReady(topic) => {
                ready.push(topic.source.name.to_string());
                None
            }
            ControlEvent::Discovered { pending: 0, .. } => Some(()),
            _ => None,
        };
        owner.wait("round", done).await;
        ready
    };
    let mut rest = world.owner("rest", of(&["t.*", "busy"], &["busy"]));
    rest.granted().await;
    assert_eq!(topics(&mut rest).await, ["heartbeats", "t1", "t2"]);
    let mut busy = world.owner("busy", of(&["busy"], &[]));
    busy.granted().await;
    assert_eq!(topics(&mut busy).await, ["busy"], "heartbeats are the first's");

    // What it names is all written by others; it takes what they leave when they end.
    let mut all = world.owner("all", of(&["t.*", "busy"], &[]));
    all.granted().await;
    assert!(topics(&mut all).await.is_empty());
    rest.stop().await;
    for (owner, expected) in [(&mut busy, vec!["busy", "heartbeats"]), (&mut all, vec!["t1", "t2"])] {
        owner.wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then_some(())).await;
        owner.granted().await;
        assert_eq!(topics(owner).await, expected);
    }
    busy.stop().await;
    all.granted().await;
    assert_eq!(topics(&mut all).await, ["busy", "heartbeats", "t1", "t2"]);
    all.stop().await;
}

/// Promise F: a broker that is away holds up what it leads, and nothing else.
#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_holds_up_only_what_it_leads() {
    let world = World::new(7).await;
    world.source.create_topic("t1", 3, 1, &[]).unwrap();
    // Nobody tells that it is gone: it still leads, and is silent.
    let Some((Some(away), _)) = world.source.leader("t1", 0) else { panic!("t1-0 has a leader") };
    world.simulation.set_link("kmirror", world.source.address(away).unwrap(), Link::Silent);
    let mut owner = world.owner("kmirror", settings());
    owner.granted().await;
    let asked_at = Instant::now();
    let first = starts(&owner.ready("t1").await);
    assert!(!first.is_empty() && first.len() < 3, "{first:?}");
    assert!(asked_at.elapsed() < Duration::from_secs(60), "{:?}", asked_at.elapsed());
    world.source.create_topic("t2", 3, 1, &[]).unwrap();
    let second = starts(&owner.ready("t2").await);
    assert_eq!(second.len(), first.len());
    world.simulation.set_link("kmirror", world.source.address(away).unwrap(), Link::Up(Duration::ZERO));
    let (mut topics, mut started) = (2, 0);
    while topics > 0 {
        let ready = owner
            .wait("ready topic", |event| match event {
                ControlEvent::TopicReady(ready) => Some(ready.clone()),
                _ => None,
            })
            .await;
        started += ready.starts.len();
        topics -= 1;
    }
    assert_eq!(started + first.len() + second.len(), 6);
    owner.stop().await;
}

/// Promise F: a broker of the target that hangs, whatever it coordinates or was asked, costs the flow no lease. It is missed
/// by its cluster after 9 s, as by a real one.
#[tokio::test(start_paused = true)]
async fn a_broker_that_hangs_costs_no_lease() {
    for hangs in 1..=3 {
        let world = World::new(20 + hangs as u64).await;
        world.source.create_topic("t1", 1, 1, &[]).unwrap();
        let mut owner = world.owner("kmirror", settings());
        owner.granted().await;
        owner.ready("t1").await;
        world.simulation.set_link("kmirror", world.target.address(hangs).unwrap(), Link::Silent);
        tokio::time::sleep(Duration::from_secs(9)).await;
        world.target.stop_broker(hangs).await.unwrap();
        let revoked = async {
            owner
                .wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then_some(()))
                .await;
        };
        let revoked = timeout(Duration::from_secs(60), revoked).await;
        assert!(revoked.is_err(), "broker {hangs} cost the lease");
        // It goes on with what needs the target, too.
        world.source.create_topic("t2", 1, 1, &[]).unwrap();
        assert_eq!(starts(&owner.ready("t2").await), ["0 at 0"]);
        owner.stop().await;
    }
}

/// A member of MirrorMaker's own group.
fn mirror_maker(world: &World) -> Membership {
    let target = world.client("mirror-maker", &world.target, "B");
    let settings = GroupSettings {
        group_id: Arc::from("A-mm2"),
        protocol_type: Arc::from("connect"),
        group_instance_id: None,
        protocols: vec![Arc::from("sessioned")],
        session_timeout: Duration::from_secs(10),
        rebalance_timeout: Duration::from_secs(60),
        heartbeat_interval: Duration::from_secs(3),
        rejoin: Rejoin::AtOnce,
    };
    Membership::join(&target, settings, vec![Bytes::new()], Box::new(|_| Vec::new()))
}

async fn joined(member: &mut Membership) {
    while !matches!(member.next().await, Some(GroupEvent::Joined { .. })) {}
}

#[tokio::test(start_paused = true)]
async fn a_mirror_maker_that_is_killed_is_waited_for_and_one_that_appears_stops_the_flow() {
    let world = World::new(10).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut member = mirror_maker(&world);
    joined(&mut member).await;
    let mut owner = world.owner("kmirror", settings());
    let waiting = owner.state(|state| *state != FlowState::Starting).await;
    assert_eq!(waiting, FlowState::WaitingForMirrorMaker { group: "A-mm2".to_owned(), members: 1 });
    let names = |world: &World| world.target.topics().len();
    assert_eq!(names(&world), 0, "nothing is written while it lives");
    // Killed, it stays a member until its session times out.
    let killed_at = Instant::now();
    drop(member);
    owner.granted().await;
    let waited = killed_at.elapsed();
    assert!((6..=12).contains(&waited.as_secs()), "{waited:?}");
    owner.ready("t1").await;

    let mut member = mirror_maker(&world);
    joined(&mut member).await;
    owner.wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then_some(())).await;
    let failed = owner.state(|state| matches!(state, FlowState::Failed(_))).await;
    assert!(matches!(&failed, FlowState::Failed(why) if why.contains("A-mm2")), "{failed:?}");
    // One that stays is waited for only so long.
    let mut owner = world.owner("kmirror", settings());
    let asked_at = Instant::now();
    owner.state(|state| matches!(state, FlowState::Failed(_))).await;
    assert!((60..65).contains(&asked_at.elapsed().as_secs()), "{:?}", asked_at.elapsed());
}

/// Whoever looks at a start that takes long is told why: cluster, addresses, last error.
#[tokio::test(start_paused = true)]
async fn a_start_says_what_it_waits_for() {
    let world = World::new(13).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let addresses = |cluster: &EmbeddedCluster| cluster.bootstrap().replace(',', ", ");
    let (source, target) = (addresses(&world.source), addresses(&world.target));
    let (source, target) = (format!("cluster A ({source})"), format!("cluster B ({target})"));
    let up = Link::Up(Duration::from_micros(100));

    // The target first: MirrorMaker may be alive on it. One that is found is told of in the same way.
    let mut member = mirror_maker(&world);
    joined(&mut member).await;
    world.set_links("kmirror", &world.target, Link::Refused);
    let mut owner = world.owner("kmirror", settings());
    owner.waits_for(&[&target, "whether MirrorMaker is alive", "group A-mm2", "refused"]).await;
    world.set_links("kmirror", &world.target, up);
    owner.waits_for(&[&target, "MirrorMaker to leave", "group A-mm2", "1 member"]).await;
    member.leave().await;
    owner.granted().await;
    owner.stop().await;

    world.set_links("kmirror", &world.source, Link::Refused);
    let mut owner = world.owner("kmirror", settings());
    owner.waits_for(&[&source, "to answer", "refused"]).await;
    world.set_links("kmirror", &world.source, up);
    owner.waits_no_longer().await;
    owner.granted().await;
    owner.ready("t1").await;

    let mut second = world.owner("second", settings());
    second.waits_for(&["another kmirror", &target]).await;
    owner.stop().await;
    second.waits_no_longer().await;
    second.granted().await;

    // A target that is there, but cannot coordinate groups.
    second.stop().await;
    world.target.fault(FaultRule {
        key: Some(ApiKey::JoinGroup),
        broker: None,
        when: When::After(0),
        times: 1_000_000,
        effect: Effect::Error(15),
    });
    let mut owner = world.owner("kmirror", settings());
    owner.waits_for(&["the lease of this flow", &target, "COORDINATOR_NOT_AVAILABLE"]).await;
    world.target.clear_faults();
    owner.granted().await;
    owner.stop().await;
}

/// A holder that was cut off for a while, but not given up, gets its lease again.
#[tokio::test(start_paused = true)]
async fn a_holder_that_gave_up_too_early_is_granted_again() {
    let world = World::new(11).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", settings());
    owner.granted().await;
    owner.ready("t1").await;
    // The coordinator hears of it in time, but its answers come too late.
    world.set_links("kmirror", &world.target, Link::Up(Duration::from_millis(4_100)));
    owner.wait("revocation", |event| matches!(event, ControlEvent::Revoked { .. }).then_some(())).await;
    world.set_links("kmirror", &world.target, Link::Up(Duration::ZERO));
    owner.granted().await;
    owner.ready("t1").await;
    owner.stop().await;
}

/// When a process held the lease, in virtual time.
#[derive(Debug)]
struct Tenure {
    name: &'static str,
    from: Duration,
    to: Duration,
}

/// Runs processes over a network that fails by a seed; answers with all tenures in the order of their beginnings.
async fn tenures(seed: u64) -> Vec<Tenure> {
    const NAMES: [&str; 3] = ["first", "second", "third"];
    let world = World::new(seed).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let started = Instant::now();
    let mut watchers = Vec::new();
    for name in NAMES {
        let mut owner = world.owner(name, settings());
        watchers.push(tokio::spawn(async move {
            let (mut tenures, mut from) = (Vec::new(), None);
            let mut end = |from: &mut Option<Duration>| {
                tenures.extend(from.take().map(|from| Tenure { name, from, to: started.elapsed() }));
            };
            loop {
                let left = Duration::from_secs(400).saturating_sub(started.elapsed());
                match timeout(left, owner.next()).await {
                    Ok(Some(ControlEvent::Granted(_))) => from = Some(started.elapsed()),
                    Ok(Some(ControlEvent::Revoked { .. })) => end(&mut from),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                }
            }
            end(&mut from);
            tenures
        }));
    }
    let dice = Seam::Simulated(world.simulation.clone());
    while started.elapsed() < Duration::from_secs(300) {
        let name = NAMES[(dice.random() % 3) as usize];
        let broker = 1 + (dice.random() % 3) as i32;
        let link = match dice.random() % 5 {
            0 => Link::Silent,
            1 => Link::Refused,
            2 => Link::Up(Duration::from_millis(dice.random() % 6_000)),
            _ => Link::Up(Duration::from_millis(1)),
        };
        world.simulation.set_link(name, world.target.address(broker).unwrap(), link);
        if dice.random().is_multiple_of(8) {
            let _ = world.target.stop_broker(broker).await;
            tokio::time::sleep(Duration::from_millis(dice.random() % 5_000)).await;
            world.target.start_broker(broker).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(dice.random() % 5_000)).await;
    }
    NAMES.iter().for_each(|name| world.set_links(name, &world.target, Link::Up(Duration::from_millis(1))));
    let mut all = Vec::new();
    for watcher in watchers {
        all.extend(watcher.await.unwrap());
    }
    all.sort_by_key(|tenure| tenure.from);
    all
}

/// Case 49: two that write one flow would copy everything twice.
#[test]
fn no_two_processes_hold_a_flow_at_once_whatever_the_network_does() {
    let mut changes = 0;
    for seed in 0..12 {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let tenures = runtime.block_on(tenures(seed));
        for pair in tenures.windows(2) {
            assert!(
                pair[0].to <= pair[1].from,
                "seed {seed}: {} and {} at once: {tenures:#?}",
                pair[0].name,
                pair[1].name
            );
        }
        assert!(
            tenures.last().is_some_and(|last| last.to > Duration::from_secs(390)),
            "seed {seed}: {tenures:#?}"
        );
        changes += tenures.len();
    }
    assert!(changes > 24, "only {changes} tenures: the network hardly failed");
}
