//! Where each partition starts, and what is remembered of it.

use super::*;

#[tokio::test(start_paused = true)]
async fn positions_outlive_the_process() {
    let world = World::new(3).await;
    world.source.create_topic("t1", 2, 1, &[]).unwrap();
    world.produce("t1", 0, 10).await;
    let latest = || FlowSettings { auto_offset_reset: OffsetReset::Latest, ..settings() };
    let mut owner = world.owner("kmirror", latest());
    let store = owner.granted().await.store;
    let ready = owner.ready("t1").await;
    assert_eq!(starts(&ready), ["0 at 10", "1 at 0"]);
    // A target that does not answer only delays a save.
    let lost = FaultRule {
        key: Some(ApiKey::Produce),
        broker: None,
        when: When::After(0),
        times: 3,
        effect: Effect::ReplyLostAfterEffect,
    };
    world.target.fault(lost);
    store.save(vec![moved(&ready, 1, 4, 3)]).await.unwrap();
    owner.stop().await;
    assert!(store.save(vec![moved(&ready, 1, 5, 4)]).await.is_err(), "given up, nothing is stored any more");

    let records = world.read("mm2-offsets.A.internal").await;
    let key = |partition| {
        format!(r#"["MirrorSourceConnector",{{"cluster":"A","partition":{partition},"topic":"t1"}}]"#)
    };
    let newest: BTreeMap<String, String> = records.into_iter().map(|(_, key, value)| (key, value)).collect();
    let expected = [(key(0), r#"{"offset":9}"#.to_owned()), (key(1), r#"{"offset":3}"#.to_owned())];
    assert_eq!(newest, BTreeMap::from(expected));

    world.produce("t1", 0, 5).await;
    world.produce("t1", 1, 10).await;
    let mut owner = world.owner("kmirror", latest());
    owner.granted().await;
    let ready = owner.ready("t1").await;
    // The target has no record of partition 1 though we said that three are there.
    assert_eq!(starts(&ready), ["0 at 10", "1 at 4, gap 1..4"]);
    owner.stop().await;
}

/// Whoever deletes a topic that positions are kept in takes nothing from the flow: what is remembered is stored anew.
#[tokio::test(start_paused = true)]
async fn positions_outlive_the_topics_that_they_are_kept_in() {
    let (offsets, state) = ("mm2-offsets.A.internal", "mm2-kmirror.A.internal");
    for deleted in [&[][..], &[offsets], &[state], &[offsets, state]] {
        let world = World::new(13).await;
        world.source.create_topic("t1", 3, 1, &[]).unwrap();
        world.produce("t1", 0, 10).await;
        let latest = || FlowSettings { auto_offset_reset: OffsetReset::Latest, ..settings() };
        let mut owner = world.owner("kmirror", latest());
        let store = owner.granted().await.store;
        let ready = owner.ready("t1").await;
        assert_eq!(starts(&ready), ["0 at 10", "1 at 0", "2 at 0"]);
        store.save(vec![moved(&ready, 1, 4, 3)]).await.unwrap();
        for topic in deleted {
            world.target.delete_topic(topic).unwrap();
        }
        store.save(vec![moved(&ready, 2, 6, 5)]).await.unwrap();
        owner.stop().await;

        let newest: BTreeMap<String, String> =
            world.read(offsets).await.into_iter().map(|(_, key, value)| (key, value)).collect();
        let values: Vec<&str> = newest.values().map(String::as_str).collect();
        assert_eq!(values, [r#"{"offset":9}"#, r#"{"offset":3}"#, r#"{"offset":5}"#], "{deleted:?}");
        for partition in 0..3 {
            world.produce("t1", partition, 10).await;
        }
        let mut owner = world.owner("kmirror", latest());
        let granted = owner.granted().await;
        assert!(granted.store.has_begun(), "{deleted:?}");
        // The target has no record of what we said is there.
        let wanted = ["0 at 10", "1 at 4, gap 1..4", "2 at 6, gap 1..6"];
        assert_eq!(starts(&owner.ready("t1").await), wanted, "{deleted:?}");
        owner.stop().await;
    }
}

/// Cases 17 and 18.
#[tokio::test(start_paused = true)]
async fn losses_at_the_source_are_on_record() {
    let world = World::new(4).await;
    for topic in ["t-overtaken", "t-recreated", "t-truncated"] {
        world.source.create_topic(topic, 1, 1, &[]).unwrap();
        world.produce(topic, 0, 3).await;
        world.produce(topic, 0, 7).await;
    }
    let mut owner = world.owner("kmirror", settings());
    let store = owner.granted().await.store;
    for topic in ["t-overtaken", "t-recreated", "t-truncated"] {
        let ready = owner.ready(topic).await;
        store.save(vec![moved(&ready, 0, 6, -1)]).await.unwrap();
    }
    owner.stop().await;

    let admin = world.client("admin", &world.source, "A");
    let before = [((Arc::from("t-overtaken"), 0), 8)];
    assert!(admin.delete_records(before).await.values().all(Result::is_ok));
    world.source.recreate_topic("t-recreated").unwrap();
    world.produce("t-recreated", 0, 20).await;
    assert_eq!(world.source.truncate("t-truncated", 0, 3).unwrap(), 3);
    let check = async |rule, expected: [&str; 3]| {
        let mut owner = world.owner("kmirror", FlowSettings { on_source_reset: rule, ..settings() });
        owner.granted().await;
        for (topic, expected) in ["t-overtaken", "t-recreated", "t-truncated"].into_iter().zip(expected) {
            assert_eq!(starts(&owner.ready(topic).await), [expected], "{topic}");
        }
        owner.stop().await;
    };
    check(OnSourceReset::Stop, ["0 at 8, gap 6..8", "0 source_reset", "0 source_reset"]).await;
    // A gap is found once; a new log is appended from its start.
    check(OnSourceReset::Append, ["0 at 8", "0 at 0, gap 6..0", "0 at 3, gap 6..3"]).await;
    check(OnSourceReset::Stop, ["0 at 8", "0 at 0", "0 at 3"]).await;

    let mut owner = world.owner("kmirror", settings());
    let gaps = owner.granted().await.gaps;
    let shown: Vec<String> =
        gaps.iter().map(|(source, gap)| format!("{source} {}..{}", gap.from, gap.to)).collect();
    assert_eq!(shown, ["t-overtaken-0 6..8", "t-recreated-0 6..0", "t-truncated-0 6..3"]);
    owner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_decided_by_how_far_the_owner_is() {
    let world = World::new(5).await;
    world.source.create_topic("t1", 1, 1, &[]).unwrap();
    world.produce("t1", 0, 10).await;
    let append = FlowSettings { on_source_reset: OnSourceReset::Append, ..settings() };
    let mut owner = world.owner("kmirror", append);
    owner.granted().await;
    let first = owner.ready("t1").await;
    assert_eq!(starts(&first), ["0 at 0"]);
    world.source.recreate_topic("t1").unwrap();
    world.produce("t1", 0, 3).await;
    // The control task finds the new topic, and the owner says how far the old one is.
    let anew = owner.ready("t1").await;
    assert_ne!(anew.source.id, first.source.id);
    assert!(anew.starts.is_empty());
    let partition = TopicPartition::new("t1", 0);
    let restart = |upstream| ControlCommand::Restart {
        partition: partition.clone(),
        position: Some(position(&first, upstream, -1)),
    };
    owner.command(restart(7)).await;
    assert_eq!(starts(&owner.ready("t1").await), ["0 at 0, gap 7..0"]);
    owner.stop().await;
}
