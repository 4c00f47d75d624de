//! The classic group protocol and committed offsets.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    DescribeGroupsRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
};

use super::*;

const JOIN: i16 = 7;
const SYNC: i16 = 5;

fn group() -> GroupId {
    GroupId(text("g"))
}

fn join(member: &str) -> JoinGroupRequest {
    let protocol =
        JoinGroupRequestProtocol::default().with_name(text("range")).with_metadata(Bytes::from_static(b"m"));
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(60_000)
        .with_member_id(text(member))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol])
}

fn sync(member: &str, generation: i32, assignments: &[(&str, &'static str)]) -> SyncGroupRequest {
    let assignments = assignments.iter().map(|(member, what)| {
        SyncGroupRequestAssignment::default().with_member_id(text(member)).with_assignment(Bytes::from(*what))
    });
    SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_assignments(assignments.collect())
}

fn heartbeat(bench: &mut Bench, member: &str, generation: i32) -> i16 {
    let request = HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(text(member));
    bench.ask(1, 4, &request).error_code
}

/// Gets a member id as KIP-394 has it.
fn new_id(bench: &mut Bench) -> String {
    let reply = bench.ask(1, JOIN, &join(""));
    assert_eq!(reply.error_code, ResponseError::MemberIdRequired.code());
    reply.member_id.to_string()
}

/// A stable group of one member; gives its id.
fn of_one(bench: &mut Bench) -> String {
    let id = new_id(bench);
    let joined: JoinGroupResponse = bench.ask(1, JOIN, &join(&id));
    assert_eq!((joined.error_code, joined.leader.as_str(), joined.members.len()), (0, id.as_str(), 1));
    let synced = bench.ask(1, SYNC, &sync(&id, joined.generation_id, &[(&id, "all")]));
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &b"all"[..]));
    id
}

#[test]
fn a_second_member_rebalances_the_group() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let first = of_one(&mut bench);
    let second = new_id(&mut bench);
    let waits = bench.wait(1, JOIN, &join(&second));
    assert_eq!(heartbeat(&mut bench, &first, 1), ResponseError::RebalanceInProgress.code());
    let leader: JoinGroupResponse = bench.ask(1, JOIN, &join(&first));
    assert_eq!((leader.generation_id, leader.members.len()), (2, 2));
    assert!(bench.state.take_woken().contains(&waits));
    let follower = bench.resumed::<JoinGroupRequest>(JOIN, waits);
    assert_eq!((follower.generation_id, follower.leader.as_str()), (2, first.as_str()));
    assert!(follower.members.is_empty());
    let waits = bench.wait(1, SYNC, &sync(&second, 2, &[]));
    bench.ask(1, SYNC, &sync(&first, 2, &[(&first, "a"), (&second, "b")]));
    assert_eq!(&bench.resumed::<SyncGroupRequest>(SYNC, waits).assignment[..], b"b");
    assert_eq!(heartbeat(&mut bench, &second, 2), 0);
    assert_eq!(heartbeat(&mut bench, &second, 1), ResponseError::IllegalGeneration.code());
    assert_eq!(heartbeat(&mut bench, "stranger", 2), ResponseError::UnknownMemberId.code());
}

#[test]
fn a_silent_member_is_dropped_after_its_session_timeout() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let id = of_one(&mut bench);
    assert_eq!(bench.state.next_timer_ms(), Some(START_MS + 10_000));
    bench.now_ms += 9_000;
    assert_eq!(heartbeat(&mut bench, &id, 1), 0);
    bench.now_ms += 9_999;
    bench.state.tick(bench.now_ms);
    assert_eq!(bench.state.next_timer_ms(), Some(bench.now_ms + 1));
    bench.now_ms += 1;
    bench.state.tick(bench.now_ms);
    assert_eq!(bench.state.next_timer_ms(), None);
    let described = bench.ask(1, 5, &DescribeGroupsRequest::default().with_groups(vec![group()]));
    assert_eq!(described.groups[0].group_state.as_str(), "Empty");
    assert_eq!(heartbeat(&mut bench, &id, 1), ResponseError::UnknownMemberId.code());
}

#[test]
fn who_does_not_join_in_time_is_left_behind() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let first = of_one(&mut bench);
    let second = new_id(&mut bench);
    let waits = bench.wait(1, JOIN, &join(&second));
    for _ in 0..7 {
        bench.now_ms += 9_000;
        heartbeat(&mut bench, &first, 1);
        bench.state.tick(bench.now_ms);
    }
    let joined = bench.resumed::<JoinGroupRequest>(JOIN, waits);
    assert_eq!((joined.generation_id, joined.leader.as_str(), joined.members.len()), (2, second.as_str(), 1));
}

#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let fixed = || join("").with_group_instance_id(Some(text("i1")));
    let first: JoinGroupResponse = bench.ask(1, 9, &fixed());
    let old = first.member_id.to_string();
    let named = |member: &str, assignments: &[(&str, &'static str)]| {
        sync(member, 1, assignments).with_group_instance_id(Some(text("i1")))
    };
    bench.ask(1, SYNC, &named(&old, &[(&old, "all")]));
    let back: JoinGroupResponse = bench.ask(1, 9, &fixed());
    assert_eq!((back.error_code, back.generation_id, back.skip_assignment), (0, 1, true));
    let new = back.member_id.to_string();
    assert_ne!(new, old);
    assert_eq!(&bench.ask(1, SYNC, &named(&new, &[])).assignment[..], b"all");
    let fenced = bench.ask(1, SYNC, &named(&old, &[]));
    assert_eq!(fenced.error_code, ResponseError::FencedInstanceId.code());
}

#[test]
fn the_last_one_leaves_an_empty_group() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let id = of_one(&mut bench);
    let leave = |member: &str| {
        let member = MemberIdentity::default().with_member_id(text(member));
        LeaveGroupRequest::default().with_group_id(group()).with_members(vec![member])
    };
    assert_eq!(bench.ask(1, 4, &leave(&id)).members[0].error_code, 0);
    assert_eq!(bench.ask(1, 4, &leave(&id)).members[0].error_code, ResponseError::UnknownMemberId.code());
    assert_eq!(bench.state.next_timer_ms(), None);
}

#[test]
fn other_protocols_and_wrong_timeouts_are_refused() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    of_one(&mut bench);
    let mut check = |request: &JoinGroupRequest, expected: ResponseError| {
        assert_eq!(bench.ask(1, JOIN, request).error_code, expected.code());
    };
    check(&join("").with_protocol_type(text("connect")), ResponseError::InconsistentGroupProtocol);
    check(&join("").with_session_timeout_ms(10), ResponseError::InvalidSessionTimeout);
    check(&join("").with_group_id(GroupId(text(""))), ResponseError::InvalidGroupId);
    check(&join("stranger"), ResponseError::UnknownMemberId);
}

fn commit(member: &str, generation: i32, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_committed_offset(offset)
        .with_committed_metadata(Some(text("meta")));
    let topic = OffsetCommitRequestTopic::default().with_name(name("t")).with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(member))
        .with_topics(vec![topic])
}

#[test]
fn offsets_are_kept_for_the_present_generation_only() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let check = |bench: &mut Bench, request: &OffsetCommitRequest, code: i16| {
        assert_eq!(bench.ask(1, 8, request).topics[0].partitions[0].error_code, code);
    };
    // A group that only keeps offsets has neither members nor generations.
    check(&mut bench, &commit("", -1, 5), 0);
    let id = of_one(&mut bench);
    check(&mut bench, &commit("", -1, 6), ResponseError::UnknownMemberId.code());
    check(&mut bench, &commit(&id, 0, 7), ResponseError::IllegalGeneration.code());
    check(&mut bench, &commit(&id, 1, 8), 0);
    let mut elsewhere = commit(&id, 1, 9);
    elsewhere.topics[0].name = name("none");
    check(&mut bench, &elsewhere, ResponseError::UnknownTopicOrPartition.code());
    assert_eq!(bench.state.committed("g"), [("t".to_owned(), 0, 8, "meta".to_owned())]);
    let all = OffsetFetchRequestGroup::default().with_group_id(group()).with_topics(None);
    let fetched = bench.ask(1, 8, &OffsetFetchRequest::default().with_groups(vec![all]));
    assert_eq!(fetched.groups[0].topics[0].partitions[0].committed_offset, 8);
    bench.state.delete_topic_named("t").unwrap();
    assert_eq!(bench.state.committed("g"), []);
}

#[test]
fn only_the_coordinator_answers() {
    let mut bench = Bench::with_topic(3, 1, 1, &[]);
    let codes = (1..=3).map(|broker| bench.ask(broker, JOIN, &join("")).error_code).collect::<Vec<_>>();
    let refused = codes.iter().filter(|&&code| code == ResponseError::NotCoordinator.code()).count();
    assert_eq!(refused, 2, "{codes:?}");
}
