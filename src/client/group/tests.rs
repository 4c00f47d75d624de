//! Members against embedded brokers, on the simulated network.

use super::super::super::{GroupDescription, HostPort, Settings};
use super::super::{Rejoin, Role};
use super::*;
use crate::broker::{self, Effect, EmbeddedCluster, FaultRule, When};
use crate::client::LostReason;
use crate::seam::{Link, Seam, Simulation};
use kafka_protocol::messages::ApiKey;

struct World {
    simulation: Simulation,
    embedded: EmbeddedCluster,
}

async fn world() -> World {
    let simulation = Simulation::new(1);
    let settings = broker::Settings {
        brokers: 3,
        group_initial_rebalance_delay_ms: 0,
        group_min_session_timeout_ms: 1,
        ..broker::Settings::default()
    };
    let embedded = EmbeddedCluster::start(Seam::Simulated(simulation.clone()), settings).await.unwrap();
    World { simulation, embedded }
}

impl World {
    fn cluster(&self, name: &str) -> Cluster {
        let servers = self.embedded.bootstrap();
        let servers: Vec<HostPort> = servers.split(',').map(|server| server.parse().unwrap()).collect();
        Cluster::new(Seam::Simulated(self.simulation.named(name)), Settings::new(name, servers))
    }

    fn fault(&self, key: ApiKey, effect: Effect) {
        self.embedded.fault(FaultRule {
            key: Some(key),
            broker: None,
            when: When::After(0),
            times: 1,
            effect,
        });
    }

    /// Cuts or heals every link of a dialler.
    fn link(&self, dialler: &str, link: Link) {
        for broker in 1..=3 {
            self.simulation.set_link(dialler, self.embedded.address(broker).unwrap(), link);
        }
    }
}

const SESSION: Duration = Duration::from_secs(10);

fn settings(protocol_type: &str) -> GroupSettings {
    GroupSettings {
        group_id: "g".into(),
        protocol_type: protocol_type.into(),
        group_instance_id: None,
        protocols: vec!["p".into()],
        session_timeout: SESSION,
        rebalance_timeout: SESSION,
        heartbeat_interval: Duration::from_secs(3),
        rejoin: Rejoin::AtOnce,
    }
}

/// Tells every member who has come, by their metadata.
fn everybody() -> Assign {
    Box::new(|election| {
        let members = election.members;
        let names: Vec<&[u8]> = members.iter().map(|(_, metadata)| &metadata[..]).collect();
        let mut names =
            names.into_iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>();
        names.sort();
        let all = Bytes::from(names.join("+"));
        members.iter().map(|(id, _)| (id.clone(), all.clone())).collect()
    })
}

fn join(cluster: &Cluster, name: &'static str) -> Membership {
    Membership::join(cluster, settings("kmirror"), vec![Bytes::from_static(name.as_bytes())], everybody())
}

/// The next event; a member always beats, or tells why it cannot.
async fn next(member: &mut Membership) -> GroupEvent {
    let event = timeout(Duration::from_secs(120), member.next()).await;
    event.expect("nothing happens any more").expect("the member is gone")
}

/// The next generation: its number, our role, and who is in it.
async fn joined(member: &mut Membership) -> (i32, Role, String) {
    loop {
        match next(member).await {
            GroupEvent::Joined { generation, role, assignment, .. } => {
                return (generation, role, String::from_utf8(assignment.to_vec()).unwrap());
            }
            GroupEvent::Heard { .. } | GroupEvent::Rebalancing | GroupEvent::Trouble(_) => {}
            other @ GroupEvent::Lost { .. } => panic!("{other:?}"),
        }
    }
}

/// A generation of exactly these, which must come before long.
async fn until(member: &mut Membership, names: &str) {
    let found = async { while joined(member).await.2 != names {} };
    timeout(Duration::from_secs(120), found).await.expect(names);
}

async fn lost(member: &mut Membership) -> LostReason {
    let found = async {
        loop {
            if let GroupEvent::Lost { reason } = next(member).await {
                return reason;
            }
        }
    };
    timeout(Duration::from_secs(120), found).await.expect("a loss")
}

async fn describe(cluster: &Cluster) -> GroupDescription {
    cluster.describe_group(&"g".into()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn members_come_and_leave() {
    let world = world().await;
    let (a, b) = (world.cluster("a"), world.cluster("b"));
    let mut first = join(&a, "a");
    assert_eq!(joined(&mut first).await, (1, Role::Leader, "a".to_owned()));
    let mut second = join(&b, "b");
    let (one, two) = tokio::join!(joined(&mut first), joined(&mut second));
    assert_eq!(one, (2, Role::Leader, "a+b".to_owned()));
    assert_eq!(two, (2, Role::Follower, "a+b".to_owned()));
    let group = describe(&a).await;
    assert_eq!((group.state.as_str(), group.protocol_type.as_str()), ("Stable", "kmirror"));
    assert_eq!(group.members.len(), 2);
    first.leave().await;
    assert_eq!(joined(&mut second).await, (3, Role::Leader, "b".to_owned()));
    second.leave().await;
    assert_eq!(describe(&a).await.members.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_a_member_and_tell_when_they_were_sent() {
    let world = world().await;
    let a = world.cluster("a");
    let mut member = join(&a, "a");
    joined(&mut member).await;
    let began = Instant::now();
    for beat in 1..=20_u64 {
        match next(&mut member).await {
            GroupEvent::Heard { sent } => {
                let at = (sent - began).as_secs_f64();
                assert!((at - 3.0 * beat as f64).abs() < 0.1, "heartbeat {beat} at {at}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_is_cut_off_is_given_up_and_joins_anew() {
    let world = world().await;
    let (a, b) = (world.cluster("a"), world.cluster("b"));
    let (mut first, mut second) = (join(&a, "a"), join(&b, "b"));
    until(&mut first, "a+b").await;
    until(&mut second, "a+b").await;
    world.link("a", Link::Silent);
    let began = Instant::now();
    until(&mut second, "b").await;
    assert!(began.elapsed() <= SESSION * 2 + Duration::from_secs(1), "{:?}", began.elapsed());
    world.link("a", Link::Up(Duration::from_micros(100)));
    assert_eq!(lost(&mut first).await, LostReason::GivenUp);
    until(&mut first, "a+b").await;
}

/// A coordinator that dies or moves costs no membership.
#[tokio::test(start_paused = true)]
async fn a_coordinator_that_moves_keeps_its_members() {
    let world = world().await;
    let a = world.cluster("a");
    let mut member = join(&a, "a");
    let (generation, ..) = joined(&mut member).await;
    let coordinator = a.find_coordinator(CoordinatorKind::Group, &"g".into()).await.unwrap();
    world.embedded.stop_broker(coordinator).await.unwrap();
    let moved = Instant::now();
    loop {
        match next(&mut member).await {
            GroupEvent::Heard { sent } if sent > moved + SESSION => break,
            GroupEvent::Heard { .. } | GroupEvent::Trouble(_) => {}
            // A coordinator may ask its members to come again; nothing is lost by it.
            GroupEvent::Joined { generation: new, .. } => assert!(new > generation),
            GroupEvent::Rebalancing => {}
            other @ GroupEvent::Lost { .. } => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn faults_of_every_step_are_overcome() {
    for (key, effect) in [
        (ApiKey::FindCoordinator, Effect::Error(15)),
        (ApiKey::FindCoordinator, Effect::Close),
        (ApiKey::JoinGroup, Effect::Error(14)),
        (ApiKey::JoinGroup, Effect::Error(16)),
        (ApiKey::JoinGroup, Effect::Error(25)),
        (ApiKey::JoinGroup, Effect::Close),
        (ApiKey::SyncGroup, Effect::Error(27)),
        (ApiKey::SyncGroup, Effect::Error(15)),
        (ApiKey::SyncGroup, Effect::Close),
        (ApiKey::SyncGroup, Effect::ReplyLostAfterEffect),
    ] {
        let world = world().await;
        world.fault(key, effect);
        let a = world.cluster("a");
        let mut member = join(&a, "a");
        let (_, role, names) = joined(&mut member).await;
        assert_eq!((role, names.as_str()), (Role::Leader, "a"), "{key:?} {effect:?}");
    }
}

/// Case 49: a zombie learns that it was overtaken.
#[tokio::test(start_paused = true)]
async fn heartbeats_tell_what_was_lost() {
    for (code, reason) in [(25, LostReason::GivenUp), (22, LostReason::Overtaken), (82, LostReason::Fenced)] {
        let world = world().await;
        let a = world.cluster("a");
        let mut member = join(&a, "a");
        joined(&mut member).await;
        world.fault(ApiKey::Heartbeat, Effect::Error(code));
        assert_eq!(lost(&mut member).await, reason);
        let old_is_given_up = tokio::time::timeout(SESSION * 3, joined(&mut member)).await;
        assert!(old_is_given_up.is_ok(), "joined anew after {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_protocol_type_keeps_us_out_and_it_is_told() {
    let world = world().await;
    let (a, b) = (world.cluster("a"), world.cluster("b"));
    let mut other = Membership::join(&a, settings("connect"), vec![Bytes::new()], everybody());
    joined(&mut other).await;
    let mut member = join(&b, "b");
    let event = next(&mut member).await;
    let GroupEvent::Trouble(error) = event else { panic!("{event:?}") };
    assert_eq!(error.code(), Some(ErrorCode::INCONSISTENT_GROUP_PROTOCOL));
    assert!(error.to_string().contains("JoinGroup for group g answered"), "{error}");
    other.leave().await;
    loop {
        match next(&mut member).await {
            GroupEvent::Joined { .. } => break,
            GroupEvent::Trouble(_) => {}
            event => panic!("{event:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn new_metadata_counts_from_the_next_join() {
    let world = world().await;
    let (a, b) = (world.cluster("a"), world.cluster("b"));
    let mut first = join(&a, "a");
    joined(&mut first).await;
    first.set_metadata(vec![Bytes::from_static(b"holder")]);
    let _second = join(&b, "b");
    until(&mut first, "b+holder").await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_member_is_gone_after_its_session() {
    let world = world().await;
    let a = world.cluster("a");
    let mut member = join(&a, "a");
    joined(&mut member).await;
    drop(member);
    tokio::time::sleep(SESSION + Duration::from_secs(1)).await;
    assert_eq!(describe(&a).await.members.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_joins_when_told_keeps_its_place_until_then() {
    let world = world().await;
    let (a, b) = (world.cluster("a"), world.cluster("b"));
    let slow = GroupSettings {
        rejoin: Rejoin::WhenTold,
        rebalance_timeout: Duration::from_secs(60),
        ..settings("kmirror")
    };
    let words = |text: &'static str| vec![Bytes::from_static(text.as_bytes())];
    let mut first = Membership::join(&a, slow, words("a"), everybody());
    joined(&mut first).await;
    let mut second = join(&b, "b");
    loop {
        match next(&mut first).await {
            GroupEvent::Rebalancing => break,
            GroupEvent::Heard { .. } => {}
            event => panic!("{event:?}"),
        }
    }
    // Longer than a session: its heartbeats keep it.
    let asked = Instant::now();
    while asked.elapsed() < SESSION * 2 {
        let event = next(&mut first).await;
        assert!(matches!(event, GroupEvent::Heard { .. }), "{event:?}");
    }
    first.rejoin(words("c"));
    until(&mut first, "b+c").await;
    until(&mut second, "b+c").await;
}
