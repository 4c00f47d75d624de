//! Incremental fetch sessions (KIP-227).

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::ForgottenTopic;

use super::*;

/// A session that fetches partitions of `t`, as a client drives it.
struct Session {
    bench: Bench,
    id: i32,
    epoch: i32,
    bytes_max: i32,
}

impl Session {
    fn open(bench: Bench, offsets: &[(i32, i64)]) -> Session {
        let mut session = Session { bench, id: 0, epoch: 0, bytes_max: 1 << 20 };
        let reply = session.ask(offsets, &[]);
        session.id = reply.session_id;
        assert_ne!(session.id, 0);
        assert_eq!(reply.responses[0].partitions.len(), offsets.len());
        session
    }

    fn ask(&mut self, changes: &[(i32, i64)], forgotten: &[i32]) -> FetchResponse {
        let request = fetch("t", changes).with_session_id(self.id).with_session_epoch(self.epoch);
        let mut request = request.with_max_bytes(self.bytes_max);
        if changes.is_empty() {
            request.topics.clear();
        }
        if !forgotten.is_empty() {
            let topic = ForgottenTopic::default().with_topic(name("t")).with_partitions(forgotten.to_vec());
            request.forgotten_topics_data = vec![topic];
        }
        self.epoch += 1;
        self.bench.ask(1, 11, &request)
    }

    /// The partitions of a reply with the bytes of their records.
    fn answered(&mut self, changes: &[(i32, i64)], forgotten: &[i32]) -> Vec<(i32, usize)> {
        let reply = self.ask(changes, forgotten);
        assert_eq!((reply.error_code, reply.session_id), (0, self.id));
        let partitions = reply.responses.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|one| (one.partition_index, one.records.as_ref().map_or(0, Bytes::len))).collect()
    }
}

#[test]
fn only_what_changed_is_answered() {
    let mut session = Session::open(Bench::with_topic(1, 3, 1, &[]), &[(0, 0), (1, 0), (2, 0)]);
    assert_eq!(session.answered(&[], &[]), []);
    let one = batch(1, "x");
    session.bench.ask(1, 9, &produce("t", &[(1, &one)]));
    assert_eq!(session.answered(&[], &[]), [(1, one.len())]);
    // Not fetched past it: given again.
    assert_eq!(session.answered(&[], &[]), [(1, one.len())]);
    assert_eq!(session.answered(&[(1, 1)], &[]), []);
    session.bench.ask(1, 9, &produce("t", &[(1, &one), (2, &one)]));
    assert_eq!(session.answered(&[], &[1]), [(2, one.len())]);
}

#[test]
fn a_small_limit_starves_no_partition() {
    let mut session = Session::open(Bench::with_topic(1, 2, 1, &[]), &[(0, 0), (1, 0)]);
    let one = batch(1, "x");
    session.bench.ask(1, 9, &produce("t", &[(0, &one), (1, &one)]));
    session.bytes_max = 1;
    assert_eq!(session.answered(&[], &[]), [(0, one.len()), (1, 0)]);
    assert_eq!(session.answered(&[], &[]), [(1, one.len())]);
    assert_eq!(session.answered(&[], &[]), [(0, one.len())]);
}

#[test]
fn a_wrong_id_or_epoch_is_refused_whole() {
    let mut session = Session::open(Bench::with_topic(1, 1, 1, &[]), &[(0, 0)]);
    session.epoch = 5;
    let reply = session.ask(&[], &[]);
    assert_eq!(reply.error_code, ResponseError::InvalidFetchSessionEpoch.code());
    session.id += 1;
    let reply = session.ask(&[], &[]);
    assert_eq!(reply.error_code, ResponseError::FetchSessionIdNotFound.code());
    assert!(reply.responses.is_empty());
}

#[test]
fn a_crash_or_a_final_epoch_ends_the_session() {
    let mut session = Session::open(Bench::with_topic(1, 1, 1, &[]), &[(0, 0)]);
    let last = fetch("t", &[(0, 0)]).with_session_id(session.id).with_session_epoch(-1);
    assert_eq!(session.bench.ask(1, 11, &last).session_id, 0);
    let reply = session.ask(&[], &[]);
    assert_eq!(reply.error_code, ResponseError::FetchSessionIdNotFound.code());

    let mut session = Session::open(session.bench, &[(0, 0)]);
    session.bench.state.broker_down(1).unwrap();
    session.bench.state.broker_up(1, 9_000).unwrap();
    let reply = session.ask(&[], &[]);
    assert_eq!(reply.error_code, ResponseError::FetchSessionIdNotFound.code());
}

#[test]
fn topic_ids_outlive_no_recreation() {
    let mut bench = Bench::with_topic(1, 1, 1, &[]);
    let id = bench.topic_id("t");
    let mut request = fetch("", &[(0, 0)]).with_session_epoch(0);
    request.topics[0].topic_id = id;
    let opened: FetchResponse = bench.ask(1, 13, &request);
    assert_eq!(opened.responses[0].topic_id, id);
    bench.state.recreate_topic("t").unwrap();
    assert_ne!(bench.topic_id("t"), id);
    let next =
        FetchRequest::default().with_session_id(opened.session_id).with_session_epoch(1).with_max_bytes(1);
    let reply: FetchResponse = bench.ask(1, 13, &next);
    assert_eq!(reply.responses[0].partitions[0].error_code, ResponseError::UnknownTopicId.code());
}
