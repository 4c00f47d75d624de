//! The words of a consumer group: what members say of themselves, and what the leader gives them.
//!
//! Pure. `ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json` of Kafka 4.3, written in version 3 and read
//! in any: fields of later versions stand behind those that are known here (`ConsumerProtocol.java`). The user data of the
//! sticky assignors is in it as well (`StickyAssignor.java`, `CooperativeStickyAssignor.java`). What a peer sends is bounded by its own
//! length; a count that claims more is damage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::mirror::state::TopicPartition;

/// The protocol type of consumers.
pub const PROTOCOL_TYPE: &str = "consumer";

const VERSION: i16 = 3;

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// The topics that it wants.
    pub topics: Vec<Arc<str>>,
    /// What its assignor adds.
    pub user_data: Option<Bytes>,
    /// What it has, as far as it keeps it through the rebalance.
    pub owned: BTreeSet<TopicPartition>,
    /// The generation in which it got that; -1 for none.
    pub generation: i32,
}

impl Subscription {
    /// As bytes of JoinGroup.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_i16(VERSION);
        out.put_i32(self.topics.len() as i32);
        self.topics.iter().for_each(|topic| put_string(&mut out, topic));
        put_bytes(&mut out, self.user_data.as_ref());
        put_partitions(&mut out, &self.owned);
        out.put_i32(self.generation);
        // No rack: batches are read from leaders.
        out.put_i16(-1);
        out.freeze()
    }

    /// Reads what a member sent; `None` when it is damaged.
    pub fn decode(mut bytes: &[u8]) -> Option<Subscription> {
        let version = bytes.try_get_i16().ok()?;
        let topics = get_list(&mut bytes, get_string)?;
        let user_data = get_bytes(&mut bytes)?;
        let owned = if version >= 1 { get_partitions(&mut bytes)? } else { BTreeSet::new() };
        let generation = if version >= 2 { bytes.try_get_i32().ok()? } else { -1 };
        Some(Subscription { topics, user_data, owned, generation })
    }
}

/// An assignment as bytes of SyncGroup.
pub fn encode_assignment(partitions: &BTreeSet<TopicPartition>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(VERSION);
    put_partitions(&mut out, partitions);
    put_bytes(&mut out, None);
    out.freeze()
}

/// Reads what the leader gave; nothing at all is no partitions. `None` when it is damaged.
pub fn decode_assignment(mut bytes: &[u8]) -> Option<BTreeSet<TopicPartition>> {
    if bytes.is_empty() {
        return Some(BTreeSet::new());
    }
    let _version = bytes.try_get_i16().ok()?;
    get_partitions(&mut bytes)
}

/// What the sticky assignor's user data says: the partitions that a member had, and since when (`STICKY_ASSIGNOR_USER_DATA_V1`).
pub fn encode_sticky(partitions: &BTreeSet<TopicPartition>, generation: i32) -> Bytes {
    let mut out = BytesMut::new();
    put_partitions(&mut out, partitions);
    out.put_i32(generation);
    out.freeze()
}

/// Reads it; a generation is only in version 1.
pub fn decode_sticky(mut bytes: &[u8]) -> Option<(BTreeSet<TopicPartition>, i32)> {
    let partitions = get_partitions(&mut bytes)?;
    Some((partitions, bytes.try_get_i32().unwrap_or(-1)))
}

/// The user data of the cooperative one (`COOPERATIVE_STICKY_ASSIGNOR_USER_DATA_V0`).
pub fn encode_cooperative(generation: i32) -> Bytes {
    Bytes::copy_from_slice(&generation.to_be_bytes())
}

/// Reads it; -1 where there is none.
pub fn decode_cooperative(mut bytes: &[u8]) -> i32 {
    bytes.try_get_i32().unwrap_or(-1)
}

fn put_string(out: &mut BytesMut, text: &str) {
    // A topic's name has 249 bytes at most.
    out.put_i16(text.len() as i16);
    out.put_slice(text.as_bytes());
}

fn put_bytes(out: &mut BytesMut, bytes: Option<&Bytes>) {
    match bytes {
        Some(bytes) => {
            out.put_i32(bytes.len() as i32);
            out.put_slice(bytes);
        }
        None => out.put_i32(-1),
    }
}

fn put_partitions(out: &mut BytesMut, partitions: &BTreeSet<TopicPartition>) {
    let mut topics: BTreeMap<&Arc<str>, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(&at.topic).or_default().push(at.partition);
    }
    out.put_i32(topics.len() as i32);
    for (topic, indexes) in topics {
        put_string(out, topic);
        out.put_i32(indexes.len() as i32);
        indexes.into_iter().for_each(|index| out.put_i32(index));
    }
}

fn get_string(bytes: &mut &[u8]) -> Option<Arc<str>> {
    let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(Arc::from(std::str::from_utf8(text).ok()?))
}

fn get_bytes(bytes: &mut &[u8]) -> Option<Option<Bytes>> {
    let length = bytes.try_get_i32().ok()?;
    if length < 0 {
        return Some(None);
    }
    let (data, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(Some(Bytes::copy_from_slice(data)))
}

/// Nothing is reserved by the count: each item has to be there.
fn get_list<T>(bytes: &mut &[u8], get: impl Fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let count = bytes.try_get_i32().ok()?;
    (0..count.max(0)).map(|_| get(bytes)).collect()
}

fn get_partitions(bytes: &mut &[u8]) -> Option<BTreeSet<TopicPartition>> {
    let topics = get_list(bytes, |bytes| {
        let topic = get_string(bytes)?;
        Some((topic, get_list(bytes, |bytes| bytes.try_get_i32().ok())?))
    })?;
    let each = topics.into_iter().flat_map(|(topic, indexes)| {
        indexes.into_iter().map(move |index| TopicPartition::new(topic.clone(), index))
    });
    Some(each.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn partitions(all: &[(&str, i32)]) -> BTreeSet<TopicPartition> {
        all.iter().map(|&(topic, index)| TopicPartition::new(topic, index)).collect()
    }

    /// As Java 4.3 writes it: `ConsumerProtocol.serializeSubscription` and `serializeAssignment`.
    #[test]
    fn bytes_are_those_of_java() {
        let subscription = Subscription {
            topics: vec!["a".into(), "b".into()],
            user_data: None,
            owned: partitions(&[("a", 0), ("a", 2)]),
            generation: 7,
        };
        let wanted = b"\0\x03\0\0\0\x02\0\x01a\0\x01b\xff\xff\xff\xff\0\0\0\x01\0\x01a\0\0\0\x02\0\0\0\0\0\0\0\x02\0\0\0\x07\xff\xff";
        assert_eq!(&subscription.encode()[..], wanted);
        assert_eq!(
            &encode_assignment(&partitions(&[("t", 1)]))[..],
            b"\0\x03\0\0\0\x01\0\x01t\0\0\0\x01\0\0\0\x01\xff\xff\xff\xff"
        );
    }

    #[test]
    fn older_and_newer_versions_are_read() {
        let v0 = b"\0\0\0\0\0\x01\0\x01a\0\0\0\x02xy";
        let read = Subscription::decode(v0).unwrap();
        assert_eq!((read.topics, read.user_data), (vec!["a".into()], Some(Bytes::from_static(b"xy"))));
        assert_eq!((read.owned, read.generation), (BTreeSet::new(), -1));
        let v1 = b"\0\x01\0\0\0\0\xff\xff\xff\xff\0\0\0\x01\0\x01a\0\0\0\x01\0\0\0\x05";
        assert_eq!(Subscription::decode(v1).unwrap().owned, partitions(&[("a", 5)]));
        let later = b"\0\x09\0\0\0\0\xff\xff\xff\xff\0\0\0\0\0\0\0\x04\xff\xff something new";
        assert_eq!(Subscription::decode(later).unwrap().generation, 4);
        assert_eq!(decode_assignment(b""), Some(BTreeSet::new()));
        assert_eq!(decode_sticky(b"\0\0\0\0"), Some((BTreeSet::new(), -1)), "version 0");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            topics in prop::collection::vec("[a-z.]{1,9}", 0..5),
            owned in prop::collection::btree_set(("[a-z]{1,3}", 0..9_i32), 0..9),
            generation in any::<i32>(),
            user_data in prop::option::of(prop::collection::vec(any::<u8>(), 0..9)),
        ) {
            let owned: BTreeSet<_> = owned.iter().map(|(t, p)| TopicPartition::new(t.as_str(), *p)).collect();
            let subscription = Subscription {
                topics: topics.iter().map(|topic| Arc::from(topic.as_str())).collect(),
                user_data: user_data.map(Bytes::from),
                owned: owned.clone(),
                generation,
            };
            prop_assert_eq!(Subscription::decode(&subscription.encode()), Some(subscription));
            prop_assert_eq!(decode_assignment(&encode_assignment(&owned)), Some(owned.clone()));
            prop_assert_eq!(decode_sticky(&encode_sticky(&owned, generation)), Some((owned, generation)));
            prop_assert_eq!(decode_cooperative(&encode_cooperative(generation)), generation);
        }

        #[test]
        fn damage_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = (Subscription::decode(&bytes), decode_assignment(&bytes), decode_sticky(&bytes));
        }
    }
}
