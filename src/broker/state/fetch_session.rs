//! Incremental fetch sessions (KIP-227; `FetchSession.java`).
//!
//! A session remembers what a client fetches, so that the client names only changes and the broker answers only what
//! changed. Partitions stand in the order in which they are served: one that gave data goes to the end, so that a small
//! limit does not starve the others.
//!
//! Invariant: `order` and `partitions` hold the same partitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use kafka_protocol::ResponseError;
use uuid::Uuid;

use crate::broker::wire::BrokerId;

/// `max.incremental.fetch.session.cache.slots`, per broker.
const SESSIONS_MAX: usize = 1_000;

/// Epoch of the request that opens a session.
pub(super) const INITIAL_EPOCH: i32 = 0;
/// Epoch of a request outside any session.
pub(super) const FINAL_EPOCH: i32 = -1;

/// A partition as a Fetch names it; versions below 13 leave the id nil, later ones the name empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FetchKey {
    pub(super) topic: Arc<str>,
    pub(super) topic_id: Uuid,
    pub(super) partition: i32,
}

/// From where and how much of a partition is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FetchFrom {
    pub(super) fetch_offset: i64,
    pub(super) current_leader_epoch: i32,
    pub(super) last_fetched_epoch: i32,
    pub(super) bytes_max: i32,
}

/// What was last answered for a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) high_watermark: i64,
    pub(super) log_start_offset: i64,
}

#[derive(Clone, Debug)]
struct Cached {
    from: FetchFrom,
    answered: Option<Answered>,
    order: u64,
}

/// What one client fetches from one broker.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: i32,
    pub(super) uses_topic_ids: bool,
    epoch: i32,
    used: u64,
    next_order: u64,
    order: BTreeMap<u64, FetchKey>,
    partitions: BTreeMap<FetchKey, Cached>,
}

impl Session {
    /// The partitions in the order in which they are to be served.
    pub(super) fn partitions(&self) -> impl Iterator<Item = (&FetchKey, FetchFrom)> {
        self.order.values().filter_map(|key| self.partitions.get(key).map(|cached| (key, cached.from)))
    }

    pub(super) fn holds(&self, key: &FetchKey) -> bool {
        self.partitions.contains_key(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    fn put(&mut self, key: FetchKey, from: FetchFrom) {
        if let Some(cached) = self.partitions.get_mut(&key) {
            cached.from = from;
            return;
        }
        self.order.insert(self.next_order, key.clone());
        self.partitions.insert(key, Cached { from, answered: None, order: self.next_order });
        self.next_order += 1;
    }

    fn forget(&mut self, key: &FetchKey) {
        if let Some(cached) = self.partitions.remove(key) {
            self.order.remove(&cached.order);
        }
    }

    /// Whether this answer says anything new; `None` stands for an error, which is always told, and told again.
    pub(super) fn is_news(&self, key: &FetchKey, answer: Option<Answered>) -> bool {
        answer.is_none() || self.partitions.get(key).is_none_or(|cached| cached.answered != answer)
    }

    /// Notes what was answered; a partition that gave data goes to the end.
    pub(super) fn note(&mut self, key: &FetchKey, answer: Option<Answered>, has_data: bool) {
        let Some(cached) = self.partitions.get_mut(key) else { return };
        cached.answered = answer;
        if has_data {
            self.order.remove(&cached.order);
            cached.order = self.next_order;
            self.order.insert(self.next_order, key.clone());
            self.next_order += 1;
        }
    }
}

/// All sessions of a cluster: a session belongs to a broker.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: BTreeMap<(BrokerId, i32), Session>,
    clock: u64,
}

impl Sessions {
    pub(super) fn get(&self, broker: BrokerId, id: i32) -> Option<&Session> {
        self.sessions.get(&(broker, id))
    }

    pub(super) fn get_mut(&mut self, broker: BrokerId, id: i32) -> Option<&mut Session> {
        self.sessions.get_mut(&(broker, id))
    }

    pub(super) fn close(&mut self, broker: BrokerId, id: i32) {
        self.sessions.remove(&(broker, id));
    }

    /// Ends all sessions of a broker, as its crash does.
    pub(super) fn close_all(&mut self, broker: BrokerId) {
        self.sessions.retain(|(of, _), _| *of != broker);
    }

    /// Opens a session; the one that was used longest ago makes room.
    pub(super) fn open(
        &mut self,
        broker: BrokerId,
        id: i32,
        uses_topic_ids: bool,
        partitions: impl IntoIterator<Item = (FetchKey, FetchFrom)>,
    ) {
        let of_broker = || self.sessions.range((broker, i32::MIN)..=(broker, i32::MAX));
        if of_broker().count() >= SESSIONS_MAX
            && let Some(&oldest) = of_broker().min_by_key(|(_, session)| session.used).map(|(key, _)| key)
        {
            self.sessions.remove(&oldest);
        }
        self.clock += 1;
        let mut session = Session {
            id,
            uses_topic_ids,
            epoch: 1,
            used: self.clock,
            next_order: 0,
            order: BTreeMap::new(),
            partitions: BTreeMap::new(),
        };
        for (key, from) in partitions {
            session.put(key, from);
        }
        self.sessions.insert((broker, id), session);
    }

    /// Carries a session on to its next request: checks the epoch, takes over the changes.
    pub(super) fn advance(
        &mut self,
        broker: BrokerId,
        id: i32,
        epoch: i32,
        uses_topic_ids: bool,
        changes: impl IntoIterator<Item = (FetchKey, FetchFrom)>,
        forgotten: impl IntoIterator<Item = FetchKey>,
    ) -> Result<&mut Session, ResponseError> {
        self.clock += 1;
        let session = self.sessions.get_mut(&(broker, id)).ok_or(ResponseError::FetchSessionIdNotFound)?;
        if session.epoch != epoch {
            return Err(ResponseError::InvalidFetchSessionEpoch);
        }
        if session.uses_topic_ids != uses_topic_ids {
            return Err(ResponseError::FetchSessionTopicIdError);
        }
        session.epoch = if epoch == i32::MAX { 1 } else { epoch + 1 };
        session.used = self.clock;
        for (key, from) in changes {
            session.put(key, from);
        }
        for key in forgotten {
            session.forget(&key);
        }
        Ok(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKER: BrokerId = BrokerId(1);

    fn key(partition: i32) -> FetchKey {
        FetchKey { topic: Arc::from("t"), topic_id: Uuid::nil(), partition }
    }

    fn from(fetch_offset: i64) -> FetchFrom {
        FetchFrom { fetch_offset, current_leader_epoch: -1, last_fetched_epoch: -1, bytes_max: 1 }
    }

    fn order(session: &Session) -> Vec<i32> {
        session.partitions().map(|(key, _)| key.partition).collect()
    }

    #[test]
    fn epochs_must_follow_each_other() {
        let mut sessions = Sessions::default();
        sessions.open(BROKER, 7, true, [(key(0), from(0))]);
        let advance = |sessions: &mut Sessions, id, epoch, ids| {
            sessions.advance(BROKER, id, epoch, ids, [], []).map(|session| session.epoch)
        };
        assert_eq!(advance(&mut sessions, 8, 1, true), Err(ResponseError::FetchSessionIdNotFound));
        assert_eq!(advance(&mut sessions, 7, 2, true), Err(ResponseError::InvalidFetchSessionEpoch));
        assert_eq!(advance(&mut sessions, 7, 1, false), Err(ResponseError::FetchSessionTopicIdError));
        assert_eq!(advance(&mut sessions, 7, 1, true), Ok(2));
        sessions.close_all(BROKER);
        assert_eq!(advance(&mut sessions, 7, 2, true), Err(ResponseError::FetchSessionIdNotFound));
    }

    #[test]
    fn a_partition_that_gave_data_goes_to_the_end_and_news_are_told_once() {
        let mut sessions = Sessions::default();
        sessions.open(BROKER, 7, true, (0..3).map(|index| (key(index), from(0))));
        let session = sessions.advance(BROKER, 7, 1, true, [(key(1), from(5))], [key(2)]).unwrap();
        assert_eq!(order(session), [0, 1]);
        let answer = Some(Answered { high_watermark: 5, log_start_offset: 0 });
        assert!(session.is_news(&key(0), answer));
        session.note(&key(0), answer, true);
        assert_eq!(order(session), [1, 0]);
        assert!(!session.is_news(&key(0), answer));
        session.note(&key(0), None, false);
        assert!(session.is_news(&key(0), answer));
    }
}
