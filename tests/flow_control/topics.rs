//! Which topics are replicated: made, grown, followed, and said when they cannot be.

use super::*;

#[tokio::test(start_paused = true)]
async fn remote_topics_are_made_like_the_sources_and_followed() {
    let world = World::new(1).await;
    world
        .source
        .create_topic("t1", 2, 3, &[("cleanup.policy", "compact"), ("min.insync.replicas", "2")])
        .unwrap();
    world.source.create_topic("other", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", settings());
    let granted = owner.granted().await;
    assert_eq!((granted.producer, granted.gaps.len()), (None, 0));
    let ready = owner.ready("t1").await;
    assert_eq!((&*ready.remote.name, ready.remote.partitions), ("A.t1", 2));
    assert_eq!(starts(&ready), ["0 at 0", "1 at 0"]);
    let client = world.client("reader", &world.target, "B");
    let configs = client.describe_topic_configs(&[Arc::from("A.t1")]).await.unwrap();
    let configs = configs[&Arc::from("A.t1")].as_ref().unwrap();
    let value = |name| configs.iter().find(|entry| entry.name == name).and_then(|entry| entry.value.clone());
    assert_eq!(value("cleanup.policy").as_deref(), Some("compact"));
    assert_eq!(value("min.insync.replicas").as_deref(), Some("1"), "case 27: left as the target has it");

    // Case 22: new topics and partitions, within the interval.
    world.source.create_topic("t2", 1, 1, &[]).unwrap();
    assert_eq!(starts(&owner.ready("t2").await), ["0 at 0"]);
    let grown = world.client("admin", &world.source, "A");
    grown.create_partitions(&BTreeMap::from([(Arc::from("t1"), 4)])).await.unwrap();
    let ready = owner.ready("t1").await;
    assert_eq!((ready.source.partitions, ready.remote.partitions), (4, 4));
    assert_eq!(starts(&ready), ["2 at 0", "3 at 0"]);

    // Deleted at the source: the remote topic stays.
    world.source.delete_topic("t2").unwrap();
    owner
        .wait("topic gone", |event| {
            matches!(event, ControlEvent::TopicGone { topic, .. } if &**topic == "t2").then_some(())
        })
        .await;
    let names: Vec<String> = world.target.topics().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["A.t1", "A.t2", "mm2-kmirror.A.internal", "mm2-offsets.A.internal"]);
    owner.stop().await;
}

/// Case 24: a creation that fails is tried again, and other topics go on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_topic_that_cannot_be_created_stops_no_other() {
    let world = World::new(2).await;
    let named = FlowSettings { replication_factor: ReplicationFactor::Named(5), ..settings() };
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    world.source.create_topic("t2", 1, 1, &[]).unwrap();
    world.target.create_topic("A.t2", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", named);
    let failed = |event: &ControlEvent| match event {
        ControlEvent::TopicFailed { topic, reason, retry_ms } if &**topic == "t1" => {
            assert!(retry_ms.is_some());
            Some(reason.clone())
        }
        _ => None,
    };
    assert_eq!(starts(&owner.ready("t2").await), ["0 at 0"]);
    let reason = owner.wait("failed topic", failed).await;
    assert!(reason.contains("INVALID_REPLICATION_FACTOR"), "{reason}");
    owner.wait("another failure", failed).await;
    world.target.create_topic("A.t1", 1, 1, &[]).unwrap();
    assert_eq!(starts(&owner.ready("t1").await), ["0 at 0"]);
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_topics_are_created_a_part_at_a_time() {
    let world = World::new(12).await;
    for number in 0..250 {
        world.source.create_topic(&format!("t{number}"), 3, 1, &[]).unwrap();
    }
    world.source.create_topic("t-large", 2_500, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", settings());
    let (mut topics, mut started) = (0, 0);
    owner
        .wait("whole round", |event| {
            match event {
                ControlEvent::TopicReady(ready) => {
                    (topics, started) = (topics + 1, started + ready.starts.len())
                }
                ControlEvent::Discovered { topics: 251, partitions: 3_250, pending: 0 } => return Some(()),
                _ => {}
            }
            None
        })
        .await;
    assert_eq!((topics, started), (251, 3_250));
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn limits_that_change_are_told() {
    let world = World::new(8).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", settings());
    assert_eq!(owner.ready("t1").await.limits.max_message_bytes, 1_048_588);
    let admin = world.client("admin", &world.target, "B");
    let change = ConfigChange::Set("max.message.bytes".to_owned(), "2000".to_owned());
    let changed = admin.incremental_alter_configs(&BTreeMap::from([(Arc::from("A.t1"), vec![change])])).await;
    assert!(changed.unwrap().values().all(Result::is_ok));
    owner.command(ControlCommand::Discover).await;
    let ready = owner.ready("t1").await;
    assert_eq!((ready.limits.max_message_bytes, ready.starts.len()), (2_000, 0));
    owner.stop().await;
}

/// A load must not take what was deleted in its first moments for copied.
#[tokio::test(start_paused = true)]
async fn a_topic_that_goes_before_it_has_started_was_planned() {
    let world = World::new(12).await;
    for topic in ["t1", "t2"] {
        world.source.create_topic(topic, 3, 1, &[]).unwrap();
    }
    // What is there before the first round: the target takes its time to create it.
    world.target.fault(FaultRule {
        key: Some(ApiKey::CreateTopics),
        broker: None,
        when: When::After(0),
        times: 100,
        effect: Effect::Delay(Duration::from_secs(2)),
    });
    let mut owner = world.owner("kmirror", settings());
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.source.delete_topic("t1").unwrap();
    let gone = |topic: &'static str| {
        move |event: &ControlEvent| match event {
            ControlEvent::TopicGone { topic: gone, planned, .. } if &**gone == topic => Some(planned.clone()),
            _ => None,
        }
    };
    let mut started = Vec::new();
    while started.len() < 3 {
        started.extend(starts(&owner.ready("t2").await));
    }
    assert_eq!(started, ["0 at 0", "1 at 0", "2 at 0"]);
    let planned = owner.wait("t1 gone", gone("t1")).await.unwrap();
    assert_eq!((planned.source.partitions, &*planned.remote), (3, "A.t1"));
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_refresh_the_topics_of_the_first_round_are_all() {
    let world = World::new(9).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    let mut owner = world.owner("kmirror", FlowSettings { refresh_topics_interval: None, ..settings() });
    owner.ready("t1").await;
    world.source.create_topic("t2", 1, 1, &[]).unwrap();
    owner.command(ControlCommand::Discover).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    owner.stop().await;
    assert!(world.target.topics().iter().all(|(name, _)| name != "A.t2"));
}
