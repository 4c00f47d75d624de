//! Classic groups (a lease stands on them) and the transaction coordinator, with requests that no stock client sends.

use crate::produce::{now_ms, produce, ready_topic};
use crate::{assert_observed, on_both};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::describe_transactions_response::TopicData;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest, GroupId,
    HeartbeatRequest, InitProducerIdRequest, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    ListTransactionsRequest, OffsetCommitRequest, ProducerId, SyncGroupRequest, TopicName, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use protocol_tests::Result;
use protocol_tests::batch::CraftedBatch;
use protocol_tests::embedded::TestCluster;
use protocol_tests::raw::RawConnection;
use protocol_tests::wait::{Look, wait_for};
use std::time::Duration;

on_both!(groups, super::check_groups);
on_both!(fencing, super::check_fencing);

/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: a real cluster's first answers.
const NOT_YET: [i16; 3] = [14, 15, 16];

/// CONCURRENT_TRANSACTIONS: the markers of the last transaction are not all written.
const CONCURRENT_TRANSACTIONS: i16 = 51;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn group() -> GroupId {
    GroupId(text("lease"))
}

/// Waits until the coordinator of a key has loaded.
fn find(connection: &mut RawConnection, key: &str, key_type: i8) -> Result<()> {
    wait_for("the coordinator", Duration::from_secs(20), || {
        let request = FindCoordinatorRequest::default().with_key(text(key)).with_key_type(key_type);
        let code = connection.call(3, &request)?.error_code;
        Ok(if code == 0 { Look::Done(()) } else { Look::Pending(format!("error {code}")) })
    })
}

fn join(connection: &mut RawConnection, member: &str, protocol: &str) -> Result<JoinGroupResponse> {
    let protocol =
        JoinGroupRequestProtocol::default().with_name(text(protocol)).with_metadata(bytes::Bytes::new());
    let request = JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(6_000)
        .with_rebalance_timeout_ms(6_000)
        .with_member_id(text(member))
        .with_protocol_type(text("lease-type"))
        .with_protocols(vec![protocol]);
    connection.call(5, &request)
}

fn sync(connection: &mut RawConnection, member: &str, generation: i32) -> Result<(i16, String)> {
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(text(member))
        .with_assignment(bytes::Bytes::from_static(b"yours"));
    let request = SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(text(member))
        .with_assignments(vec![assignment]);
    let reply = connection.call(3, &request)?;
    Ok((reply.error_code, String::from_utf8_lossy(&reply.assignment).into_owned()))
}

fn heartbeat(connection: &mut RawConnection, member: &str, generation: i32) -> Result<i16> {
    let request = HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(generation)
        .with_member_id(text(member));
    Ok(connection.call(3, &request)?.error_code)
}

fn commit(connection: &mut RawConnection, member: &str, generation: i32) -> Result<i16> {
    let partition = OffsetCommitRequestPartition::default().with_committed_offset(7);
    let topic = OffsetCommitRequestTopic::default()
        .with_name(TopicName(text("leased")))
        .with_partitions(vec![partition]);
    let request = OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(text(member))
        .with_topics(vec![topic]);
    Ok(connection.call(7, &request)?.topics[0].partitions[0].error_code)
}

fn leave(connection: &mut RawConnection, member: &str) -> Result<i16> {
    let request = LeaveGroupRequest::default()
        .with_group_id(group())
        .with_members(vec![MemberIdentity::default().with_member_id(text(member))]);
    let reply = connection.call(3, &request)?;
    Ok(if reply.error_code != 0 { reply.error_code } else { reply.members[0].error_code })
}

fn check_groups(cluster: &TestCluster) -> Result<()> {
    let connection = &mut RawConnection::open(&cluster.bootstrap())?;
    ready_topic(connection, "leased", &[])?;
    find(connection, "lease", 0)?;
    wait_for("the group coordinator", Duration::from_secs(20), || {
        let code = heartbeat(connection, "nobody", 1)?;
        Ok(if NOT_YET.contains(&code) { Look::Pending(format!("error {code}")) } else { Look::Done(()) })
    })?;
    let mut observed = Vec::new();
    let mut see = |words: &str, what: String| observed.push(format!("{words}: {what}"));
    let first = join(connection, "", "p")?;
    see("join without a member id", format!("{} named {}", first.error_code, !first.member_id.is_empty()));
    let member = first.member_id.to_string();
    let joined = join(connection, &member, "p")?;
    see(
        "join with it",
        format!(
            "{} generation {} leads {}",
            joined.error_code,
            joined.generation_id,
            joined.leader == joined.member_id
        ),
    );
    see("sync of another generation", format!("{}", sync(connection, &member, 9)?.0));
    see("sync", format!("{:?}", sync(connection, &member, 1)?));
    see("sync again", format!("{:?}", sync(connection, &member, 1)?));
    see("heartbeat", format!("{}", heartbeat(connection, &member, 1)?));
    see("heartbeat of another generation", format!("{}", heartbeat(connection, &member, 2)?));
    see("heartbeat of a stranger", format!("{}", heartbeat(connection, "stranger", 1)?));
    see("join of a stranger", format!("{}", join(connection, "stranger", "p")?.error_code));
    see("join with another protocol", format!("{}", join(connection, "", "q")?.error_code));
    see("commit", format!("{}", commit(connection, &member, 1)?));
    see("commit of another generation", format!("{}", commit(connection, &member, 2)?));
    see("commit of a stranger", format!("{}", commit(connection, "stranger", 1)?));
    see("commit without a member", format!("{}", commit(connection, "", -1)?));
    // A second member starts a rebalance, which the first hears of by its heartbeat.
    let other = &mut RawConnection::open(&cluster.bootstrap())?;
    let second = join(other, "", "p")?.member_id.to_string();
    let waiting = std::thread::spawn({
        let bootstrap = cluster.bootstrap();
        let second = second.clone();
        move || join(&mut RawConnection::open(&bootstrap)?, &second, "p")
    });
    let code = wait_for("the rebalance", Duration::from_secs(10), || {
        let code = heartbeat(connection, &member, 1)?;
        Ok(if code == 0 { Look::Pending("a stable group".to_owned()) } else { Look::Done(code) })
    })?;
    see("heartbeat during a rebalance", format!("{code}"));
    see("commit during a rebalance", format!("{}", commit(connection, &member, 1)?));
    let rejoined = join(connection, &member, "p")?;
    see(
        "join again",
        format!(
            "{} generation {} members {}",
            rejoined.error_code,
            rejoined.generation_id,
            rejoined.members.len()
        ),
    );
    let waited = waiting.join().expect("the second join ends")?;
    see(
        "the second",
        format!("{} generation {} members {}", waited.error_code, waited.generation_id, waited.members.len()),
    );
    see("heartbeat before the sync", format!("{}", heartbeat(connection, &member, 2)?));
    see("leave", format!("{}", leave(other, &second)?));
    see("leave again", format!("{}", leave(other, &second)?));
    see("leave of the first", format!("{}", leave(connection, &member)?));
    see("heartbeat after the leave", format!("{}", heartbeat(connection, &member, 2)?));
    see("commit without a member to an empty group", format!("{}", commit(connection, "", -1)?));
    assert_observed(cluster, &observed, EXPECTED_GROUPS);
    Ok(())
}

const EXPECTED_GROUPS: &str = "
join without a member id: 79 named true
join with it: 0 generation 1 leads true
sync of another generation: 22
sync: (0, \"yours\")
sync again: (0, \"yours\")
heartbeat: 0
heartbeat of another generation: 22
heartbeat of a stranger: 25
join of a stranger: 25
join with another protocol: 23
commit: 0
commit of another generation: 22
commit of a stranger: 25
commit without a member: 25
heartbeat during a rebalance: 27
commit during a rebalance: 0
join again: 0 generation 2 members 2
the second: 0 generation 2 members 0
heartbeat before the sync: 0
leave: 0
leave again: 25
leave of the first: 0
heartbeat after the leave: 25
commit without a member to an empty group: 0
";

const ID: &str = "fence";

fn id() -> TransactionalId {
    TransactionalId(text(ID))
}

/// Error code, producer id and epoch.
fn init(connection: &mut RawConnection) -> Result<(i16, i64, i16)> {
    wait_for("the producer id", Duration::from_secs(20), || {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(id()))
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let reply = connection.call(4, &request)?;
        Ok(match reply.error_code {
            CONCURRENT_TRANSACTIONS => Look::Pending("concurrent transactions".to_owned()),
            code if NOT_YET.contains(&code) => Look::Pending(format!("error {code}")),
            code => Look::Done((code, reply.producer_id.0, reply.producer_epoch)),
        })
    })
}

fn add_partitions(connection: &mut RawConnection, producer: i64, epoch: i16) -> Result<i16> {
    wait_for("the partitions", Duration::from_secs(20), || {
        let topic =
            AddPartitionsToTxnTopic::default().with_name(TopicName(text("fenced"))).with_partitions(vec![0]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(id())
            .with_v3_and_below_producer_id(ProducerId(producer))
            .with_v3_and_below_producer_epoch(epoch)
            .with_v3_and_below_topics(vec![topic]);
        let reply = connection.call(3, &request)?;
        let code = reply.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code;
        Ok(if code == CONCURRENT_TRANSACTIONS {
            Look::Pending("concurrent transactions".to_owned())
        } else {
            Look::Done(code)
        })
    })
}

/// How a transactional id is described, and whether it is listed with that state.
fn described(connection: &mut RawConnection, name: &str) -> Result<String> {
    let request =
        DescribeTransactionsRequest::default().with_transactional_ids(vec![TransactionalId(text(name))]);
    let reply = connection.call(0, &request)?;
    let one = &reply.transaction_states[0];
    if one.error_code != 0 {
        return Ok(one.error_code.to_string());
    }
    let listed = connection.call(0, &ListTransactionsRequest::default())?.transaction_states;
    let listed = listed.iter().find(|listed| listed.transactional_id.0.as_str() == name);
    let partitions = |topic: &TopicData| format!("{}{:?}", topic.topic.0, topic.partitions);
    Ok(format!(
        "{} epoch {} of {:?}, listed {}",
        one.transaction_state,
        one.producer_epoch,
        one.topics.iter().map(partitions).collect::<Vec<_>>(),
        listed.is_some_and(|listed| listed.transaction_state == one.transaction_state)
    ))
}

/// Repeats the request until all markers are written, as the fencing recipe does; gives the first answer.
fn end(connection: &mut RawConnection, producer: i64, epoch: i16, committed: bool) -> Result<i16> {
    let request = EndTxnRequest::default()
        .with_transactional_id(id())
        .with_producer_id(ProducerId(producer))
        .with_producer_epoch(epoch)
        .with_committed(committed);
    let first = connection.call(4, &request)?.error_code;
    wait_for("the markers", Duration::from_secs(20), || {
        let code = connection.call(4, &request)?.error_code;
        Ok(if code == CONCURRENT_TRANSACTIONS {
            Look::Pending("concurrent transactions".to_owned())
        } else {
            Look::Done(())
        })
    })?;
    Ok(first)
}

/// The recipe that fences an older self: its plain batches are taken until the abort marker is written.
fn check_fencing(cluster: &TestCluster) -> Result<()> {
    let connection = &mut RawConnection::open(&cluster.bootstrap())?;
    ready_topic(connection, "fenced", &[])?;
    find(connection, ID, 1)?;
    let mut observed = Vec::new();
    let mut see = |words: &str, what: String| observed.push(format!("{words}: {what}"));
    let batch =
        |producer, epoch, sequence| CraftedBatch::new(1, now_ms()).by(producer, epoch, sequence).bytes();
    let (code, producer, epoch) = init(connection)?;
    see("init", format!("{code} epoch {epoch}"));
    see("a plain batch", format!("{:?}", produce(connection, "fenced", 0, &batch(producer, epoch, 0))?));
    let (code, same, next) = init(connection)?;
    see("init again", format!("{code} same {} epoch {next}", same == producer));
    see("the older self", format!("{:?}", produce(connection, "fenced", 0, &batch(producer, epoch, 1))?));
    see("the older self adds partitions", format!("{}", add_partitions(connection, producer, epoch)?));
    see("the older self ends", format!("{}", end(connection, producer, epoch, false)?));
    see("ending without a transaction", format!("{}", end(connection, producer, next, false)?));
    see("an id without a transaction", described(connection, ID)?);
    see("add partitions", format!("{}", add_partitions(connection, producer, next)?));
    see("its transaction", described(connection, ID)?);
    see("an unknown id", described(connection, "unknown")?);
    see(
        "the older self still",
        format!("{:?}", produce(connection, "fenced", 0, &batch(producer, epoch, 2))?),
    );
    see("abort", format!("{}", end(connection, producer, next, false)?));
    see("aborted", described(connection, ID)?);
    see(
        "the older self after the marker",
        format!("{:?}", produce(connection, "fenced", 0, &batch(producer, epoch, 3))?),
    );
    see(
        "the successor from sequence 4",
        format!("{:?}", produce(connection, "fenced", 0, &batch(producer, next, 4))?),
    );
    see(
        "the successor from sequence 0",
        format!("{:?}", produce(connection, "fenced", 0, &batch(producer, next, 0))?),
    );
    see(
        "an id never allocated",
        format!("{:?}", produce(connection, "fenced", 0, &batch(987_654_321, 3, 17))?),
    );
    assert_observed(cluster, &observed, EXPECTED_FENCING);
    Ok(())
}

const EXPECTED_FENCING: &str = "
init: 0 epoch 0
a plain batch: (0, 1)
init again: 0 same true epoch 1
the older self: (0, 2)
the older self adds partitions: 90
the older self ends: 90
ending without a transaction: 48
an id without a transaction: Empty epoch 1 of [], listed true
add partitions: 0
its transaction: Ongoing epoch 1 of [\"fenced[0]\"], listed true
an unknown id: 105
the older self still: (0, 3)
abort: 0
aborted: CompleteAbort epoch 1 of [], listed true
the older self after the marker: (47, -1)
the successor from sequence 4: (45, -1)
the successor from sequence 0: (0, 5)
an id never allocated: (0, 6)
";
