//! Calls against a cluster of the test, on the simulated network.

use std::collections::BTreeMap;

use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, CreateTopicsRequest, InitProducerIdRequest, ListGroupsRequest};
use kafka_protocol::messages::{InitProducerIdResponse, ListGroupsResponse};

use super::super::test_cluster::{Asked, Reply, TestCluster};
use super::*;
use crate::seam::Link;

/// ListGroups answered with these codes, one after the other, then with success.
fn codes(codes: &'static [i16]) -> impl FnMut(&Asked) -> Reply + Send + 'static {
    let mut codes = codes.iter().copied();
    move |asked| match asked.api {
        ApiKey::ListGroups => {
            asked.reply(&ListGroupsResponse::default().with_error_code(codes.next().unwrap_or(0)))
        }
        _ => Reply::Silence,
    }
}

async fn list_groups(test: &TestCluster, node: Node) -> Result<BrokerAddress, Error> {
    test.cluster.call(node, &ListGroupsRequest::default()).await.map(|answer| answer.broker)
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_knows_itself_before_long() {
    let test = TestCluster::start(3, &[("t", &[(1, 4), (2, 4)])], codes(&[])).await;
    assert_eq!(test.cluster.view().generation, 0);
    let mut watch = test.cluster.watch();
    watch.changed().await.unwrap();
    let view = test.cluster.view();
    assert_eq!((view.generation, view.brokers.len(), view.controller_id), (1, 3, Some(3)));
    assert_eq!(view.leader("t", 1), Some((2, 4)));
}

#[tokio::test(start_paused = true)]
async fn dead_bootstrap_servers_are_skipped_at_once() {
    let test = TestCluster::start(3, &[], codes(&[])).await;
    for broker in [1, 2] {
        let address = test.world.lock().unwrap().addresses[&broker];
        test.simulation.set_link("default", address, Link::Refused);
    }
    let began = Instant::now();
    let broker = list_groups(&test, Node::Any).await.unwrap();
    assert_eq!(broker.host, "10.0.0.3");
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn each_node_is_found() {
    let test = TestCluster::start(3, &[("t", &[(1, 0), (2, 0)])], codes(&[])).await;
    test.cluster.refresh(Topics::All).await.unwrap();
    for (node, host) in [
        (Node::Controller, "10.0.0.3"),
        (Node::Broker(1), "10.0.0.1"),
        (Node::Leader("t".into(), 1), "10.0.0.2"),
    ] {
        assert_eq!(list_groups(&test, node.clone()).await.unwrap().host, host, "{node:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn coordinators_are_looked_up_in_old_and_new_versions() {
    for cap in [3, 5] {
        let test = TestCluster::start(2, &[], |asked| match asked.api {
            ApiKey::FindCoordinator => {
                let request: FindCoordinatorRequest = asked.decode();
                assert_eq!(request.key_type, 1);
                let response = FindCoordinatorResponse::default();
                asked.reply(&if asked.version < 4 {
                    response.with_node_id(BrokerId(2))
                } else {
                    let one = Coordinator::default().with_key(request.coordinator_keys[0].clone());
                    response.with_coordinators(vec![one.with_node_id(BrokerId(2))])
                })
            }
            _ => asked.reply(&InitProducerIdResponse::default()),
        })
        .await;
        test.change(|world| world.caps = BTreeMap::from([(ApiKey::FindCoordinator as i16, cap)]));
        test.cluster.refresh(Topics::All).await.unwrap();
        let node = Node::Coordinator(CoordinatorKind::Transaction, "id".into());
        let answer = test.cluster.call(node, &InitProducerIdRequest::default()).await.unwrap();
        assert_eq!(answer.broker.host, "10.0.0.2");
    }
}

#[tokio::test(start_paused = true)]
async fn retriable_codes_are_retried_and_others_are_errors_at_once() {
    let test = TestCluster::start(1, &[], codes(&[14, 15, 7, 41, 30])).await;
    let error = list_groups(&test, Node::Any).await.unwrap_err();
    assert_eq!(
        error.chain(),
        "cluster A, broker 10.0.0.1:9092: ListGroups for the cluster answered GROUP_AUTHORIZATION_FAILED (30); \
         DESCRIBE on the group is needed (kmirror acls prints all)"
    );
    assert_eq!(test.asked(ApiKey::ListGroups).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_with_its_time_and_tells_the_last_error() {
    let test = TestCluster::start(1, &[], codes(&[14; 1_000])).await;
    let began = Instant::now();
    let error = list_groups(&test, Node::Any).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { api: ApiKey::ListGroups, .. }), "{error:?}");
    assert_eq!(error.code(), Some(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
    assert!((58..=60).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let calls = test.asked(ApiKey::ListGroups).len();
    assert!((55..90).contains(&calls), "backed off to a second: {calls} calls");
}

#[tokio::test(start_paused = true)]
async fn a_call_survives_brokers_that_close_or_vanish() {
    let mut first = true;
    let test = TestCluster::start(2, &[], move |asked| {
        if std::mem::take(&mut first) { Reply::Close } else { asked.reply(&ListGroupsResponse::default()) }
    })
    .await;
    list_groups(&test, Node::Any).await.unwrap();
    assert_eq!(test.asked(ApiKey::ListGroups).len(), 2);
}

/// A leader that moved is found through fresh metadata.
#[tokio::test(start_paused = true)]
async fn a_moved_leader_is_found() {
    let test = TestCluster::start(2, &[("t", &[(1, 1)])], |asked| {
        let code = if asked.broker == 1 { 6 } else { 0 };
        asked.reply(&ListGroupsResponse::default().with_error_code(code))
    })
    .await;
    test.cluster.refresh(Topics::All).await.unwrap();
    test.change(|world| {
        world.topics.insert("t".to_owned(), vec![(2, 2)]);
    });
    let began = Instant::now();
    assert_eq!(list_groups(&test, Node::Leader("t".into(), 0)).await.unwrap().host, "10.0.0.2");
    assert!(began.elapsed() < Duration::from_millis(20));
    assert_eq!(test.asked(ApiKey::ListGroups), [1, 2]);
}

/// Case 25: a broker that is not the controller any more.
#[tokio::test(start_paused = true)]
async fn not_controller_leads_to_the_controller() {
    let test = TestCluster::start(2, &[], |asked| {
        let code = if asked.broker == 2 { 41 } else { 0 };
        let topic = kafka_protocol::messages::create_topics_response::CreatableTopicResult::default();
        let response = kafka_protocol::messages::CreateTopicsResponse::default();
        asked.reply(&response.with_topics(vec![topic.with_error_code(code)]))
    })
    .await;
    test.cluster.refresh(Topics::All).await.unwrap();
    test.change(|world| world.controller = 1);
    let answer = test.cluster.call(Node::Controller, &CreateTopicsRequest::default()).await.unwrap();
    assert_eq!(answer.broker.host, "10.0.0.1");
    assert_eq!(test.asked(ApiKey::CreateTopics), [2, 1]);
}

/// A leader that is not ready right after CreateTopics is asked again after 5 to 20 ms.
#[tokio::test(start_paused = true)]
async fn a_partition_without_leader_is_asked_for_again_soon() {
    let test = TestCluster::start(1, &[("t", &[(-1, 0)])], codes(&[])).await;
    test.cluster.refresh(Topics::All).await.unwrap();
    let call = list_groups(&test, Node::Leader("t".into(), 0));
    let elect = async {
        tokio::time::sleep(Duration::from_millis(12)).await;
        test.change(|world| {
            world.topics.insert("t".to_owned(), vec![(1, 1)]);
        });
    };
    let began = Instant::now();
    let (answer, ()) = tokio::join!(call, elect);
    answer.unwrap();
    assert!(began.elapsed() < Duration::from_millis(40), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_topic_or_broker_is_named() {
    let test = TestCluster::start(1, &[("t", &[(1, 0)])], codes(&[])).await;
    let error = list_groups(&test, Node::Leader("u".into(), 0)).await.unwrap_err();
    assert_eq!(error.to_string(), "cluster A: partition u-0 does not exist");
    let error = list_groups(&test, Node::Broker(9)).await.unwrap_err();
    assert!(error.chain().ends_with("cluster A: there is no broker 9"), "{}", error.chain());
}

#[tokio::test(start_paused = true)]
async fn an_api_that_the_broker_does_not_know_is_an_error_at_once() {
    let test = TestCluster::start(1, &[], codes(&[])).await;
    test.change(|world| world.caps = BTreeMap::from([(ApiKey::ListGroups as i16, -1)]));
    let error = list_groups(&test, Node::Any).await.unwrap_err();
    assert_eq!(
        error.chain(),
        "cluster A: 10.0.0.1:9092: ListGroups is needed in a version from 0 to 5, the broker does not know it"
    );
}

#[tokio::test(start_paused = true)]
async fn metadata_is_asked_for_again_at_its_max_age() {
    let test = TestCluster::start(1, &[], codes(&[])).await;
    test.cluster.refresh(Topics::All).await.unwrap();
    let before = test.asked(ApiKey::Metadata).len();
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(test.asked(ApiKey::Metadata).len(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn many_wishes_are_one_request() {
    let test = TestCluster::start(1, &[], codes(&[])).await;
    test.cluster.refresh(Topics::All).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let before = test.asked(ApiKey::Metadata).len();
    for _ in 0..100 {
        test.cluster.request_refresh();
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(test.asked(ApiKey::Metadata).len() <= before + 2);
}

/// Case 23, whole: the topic is gone once a second answer says so, which is asked for before long.
#[tokio::test(start_paused = true)]
async fn a_deleted_topic_is_gone_after_a_second_look() {
    let test = TestCluster::start(1, &[("t", &[(1, 0)])], codes(&[])).await;
    test.cluster.refresh(Topics::All).await.unwrap();
    test.change(|world| world.topics.clear());
    assert!(test.cluster.refresh(Topics::All).await.unwrap().topic("t").is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(test.cluster.view().topic("t").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_down_says_so_and_is_found_when_it_is_back() {
    let test = TestCluster::start(2, &[], codes(&[])).await;
    test.cluster.refresh(Topics::All).await.unwrap();
    test.change(|world| world.dead = vec![1, 2]);
    let error = list_groups(&test, Node::Any).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(test.cluster.trouble().is_some());
    test.change(|world| world.dead.clear());
    list_groups(&test, Node::Any).await.unwrap();
    test.cluster.refresh(Topics::All).await.unwrap();
    assert!(test.cluster.trouble().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_closes_the_connections() {
    let test = TestCluster::start(1, &[], codes(&[])).await;
    test.cluster.refresh(Topics::All).await.unwrap();
    let mut watch = test.cluster.watch();
    drop(test);
    let ended = async { while watch.changed().await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(1), ended).await.expect("the owner ends");
}
