//! The words of the lease: what members of the group say of themselves, and what its leader answers.
//!
//! Pure. A classic group (KIP-62 and before) of protocol type `kmirror` carries the lease: its members are the processes
//! that are told to run the flow. Whoever is the group's leader decides with [`choose`], for each share of the flow's topics
//! by itself: a member that holds the lease keeps it, so that newcomers and leavers disturb nobody; otherwise the member
//! that has waited longest gets it. Holders of different shares are ordered by how long they have been, so that each knows
//! whose topics it leaves alone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::mirror::{Naming, Share};

/// The group's protocol type: no consumer group, so nobody takes it for one, and consumers cannot join it.
pub const PROTOCOL_TYPE: &str = "kmirror";
/// The only protocol of the group.
pub const PROTOCOL: &str = "lease";

const VERSION: i16 = 0;
const NAME_BYTES_MAX: usize = 255;

/// How the names of all leases' groups begin.
pub const GROUP_PREFIX: &str = "kmirror-";

/// The group that carries a flow's lease, on the flow's target.
pub fn group_id(source: &str, target: &str) -> String {
    format!("{GROUP_PREFIX}{source}->{target}")
}

/// What a member says of itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The generation in which it got the lease that it still holds; -1 when it holds none.
    pub held_since: i32,
    /// When the process began to want the lease, in ms since the epoch.
    pub since_ms: i64,
    /// Host and process, for messages.
    pub name: Arc<str>,
    /// Which of the flow's topics it takes.
    pub share: Share,
    /// How it names them, for flows on the way back.
    pub naming: Option<Naming>,
}

/// What the leader answers a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The generation in which the holder of the member's share got the lease.
    pub held_since: i32,
    /// The holder's member id.
    pub holder: Arc<str>,
    /// Its host and process, for messages.
    pub holder_name: Arc<str>,
    /// Other shares that are held for longer, with the names of their holders.
    pub before: Vec<(Share, Arc<str>)>,
}

/// The leader's decision for each member, in their order.
pub fn choose(generation: i32, members: &[(Arc<str>, Claim)]) -> Vec<(Arc<str>, Assignment)> {
    let mut holders: BTreeMap<&Share, &(Arc<str>, Claim)> = BTreeMap::new();
    // The longest-held claim cannot be right when a younger one is there: its holder has given it up.
    let rank = |(id, claim): &(Arc<str>, Claim)| {
        let holds = (claim.held_since >= 0).then_some((claim.held_since, Reverse(id.clone())));
        (holds, Reverse((claim.since_ms, id.clone())))
    };
    for member in members {
        let holder = holders.entry(&member.1.share).or_insert(member);
        if rank(member) > rank(holder) {
            *holder = member;
        }
    }
    let held_since = |claim: &Claim| if claim.held_since >= 0 { claim.held_since } else { generation };
    let mut ordered: Vec<&(Arc<str>, Claim)> = holders.values().copied().collect();
    ordered.sort_by_key(|(id, claim)| (held_since(claim), claim.since_ms, id.clone()));
    let decide = |(id, claim): &(Arc<str>, Claim)| {
        let (holder, of_holder) = holders.get(&claim.share)?;
        let before = ordered.iter().take_while(|(other, _)| other != holder);
        let assignment = Assignment {
            held_since: held_since(of_holder),
            holder: holder.clone(),
            holder_name: of_holder.name.clone(),
            before: before.map(|(_, other)| (other.share.clone(), other.name.clone())).collect(),
        };
        Some((id.clone(), assignment))
    };
    members.iter().filter_map(decide).collect()
}

impl Claim {
    /// As the member's metadata.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(256);
        out.put_i16(VERSION);
        out.put_i32(self.held_since);
        out.put_i64(self.since_ms);
        put_string(&mut out, &self.name);
        self.share.put(&mut out);
        Naming::put(self.naming.as_ref(), &mut out);
        out.freeze()
    }

    /// From a member's metadata; what cannot be read claims nothing and waits behind all others.
    pub fn decode(bytes: &[u8]) -> Claim {
        let read = |mut bytes: &[u8]| {
            let _version = bytes.try_get_i16().ok()?;
            let held_since = bytes.try_get_i32().ok()?;
            let since_ms = bytes.try_get_i64().ok()?;
            let name = get_string(&mut bytes)?;
            Some(Claim {
                held_since,
                since_ms,
                name,
                share: Share::get(&mut bytes).unwrap_or(Share::Unknown),
                naming: Naming::get(&mut bytes),
            })
        };
        let unread = || Claim {
            held_since: -1,
            since_ms: i64::MAX,
            name: Arc::from("?"),
            share: Share::Unknown,
            naming: None,
        };
        read(bytes).unwrap_or_else(unread)
    }
}

impl Assignment {
    /// As the member's assignment.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(256);
        out.put_i16(VERSION);
        out.put_i32(self.held_since);
        put_string(&mut out, &self.holder);
        put_string(&mut out, &self.holder_name);
        out.put_i32(self.before.len() as i32);
        for (share, holder) in &self.before {
            share.put(&mut out);
            put_string(&mut out, holder);
        }
        out.freeze()
    }

    /// From a member's assignment; `None` when it is not one.
    pub fn decode(mut bytes: &[u8]) -> Option<Assignment> {
        let _version = bytes.try_get_i16().ok()?;
        let held_since = bytes.try_get_i32().ok()?;
        let holder = get_string(&mut bytes)?;
        let holder_name = get_string(&mut bytes)?;
        let mut before = Vec::new();
        for _ in 0..bytes.try_get_i32().ok()? {
            before.push((Share::get(&mut bytes)?, get_string(&mut bytes)?));
        }
        Some(Assignment { held_since, holder, holder_name, before })
    }
}

fn put_string(out: &mut BytesMut, text: &str) {
    let end = (0..=text.len().min(NAME_BYTES_MAX)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    out.put_i16(end as i16);
    out.put_slice(&text.as_bytes()[..end]);
}

fn get_string(bytes: &mut &[u8]) -> Option<Arc<str>> {
    let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    std::str::from_utf8(text).ok().map(Arc::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(topics: &str) -> Share {
        Share::Of { topics: vec![topics.to_owned()], exclude: Vec::new() }
    }

    fn member(id: &str, held_since: i32, since_ms: i64) -> (Arc<str>, Claim) {
        member_with(id, held_since, since_ms, ".*")
    }

    fn member_with(id: &str, held_since: i32, since_ms: i64, topics: &str) -> (Arc<str>, Claim) {
        let claim = Claim {
            held_since,
            since_ms,
            name: Arc::from(format!("host-{id}")),
            share: share(topics),
            naming: None,
        };
        (Arc::from(id), claim)
    }

    #[test]
    fn the_holder_keeps_the_lease_and_else_the_longest_waiting_gets_it() {
        let check = |members: &[(Arc<str>, Claim)], expected: (&str, i32)| {
            let mut members = members.to_vec();
            for _ in 0..2 {
                let chosen = choose(9, &members);
                assert_eq!(chosen.len(), members.len());
                for (_, chosen) in &chosen {
                    assert_eq!((&*chosen.holder, chosen.held_since), expected, "{members:?}");
                    assert!(chosen.before.is_empty());
                }
                members.reverse();
            }
        };
        assert!(choose(9, &[]).is_empty());
        check(&[member("a", -1, 5)], ("a", 9));
        check(&[member("a", -1, 5), member("b", -1, 4)], ("b", 9));
        check(&[member("a", -1, 5), member("b", -1, 5)], ("a", 9));
        check(&[member("a", -1, 1), member("b", 3, 5)], ("b", 3));
        // Two that claim it cannot be, while each gives up before the coordinator does; the younger claim is right.
        check(&[member("a", 7, 1), member("b", 3, 5)], ("a", 7));
    }

    #[test]
    fn each_share_has_its_holder_and_knows_those_before_it() {
        let check = |members: &[(Arc<str>, Claim)], expected: &[&str]| {
            let show = |(id, chosen): &(Arc<str>, Assignment)| {
                let before: Vec<&str> = chosen.before.iter().map(|(_, name)| &**name).collect();
                format!("{id}: {} since {} after {before:?}", chosen.holder, chosen.held_since)
            };
            assert_eq!(choose(9, members).iter().map(show).collect::<Vec<_>>(), expected);
        };
        check(
            &[
                member_with("a", -1, 1, "busy"),
                member_with("b", 5, 2, "rest"),
                member_with("c", 4, 3, "other"),
                member_with("d", -1, 4, "rest"),
            ],
            &[
                "a: a since 9 after [\"host-c\", \"host-b\"]",
                "b: b since 5 after [\"host-c\"]",
                "c: c since 4 after []",
                "d: b since 5 after [\"host-c\"]",
            ],
        );
        check(
            &[member_with("a", -1, 7, "busy"), member_with("b", -1, 2, "rest")],
            &["a: a since 9 after [\"host-b\"]", "b: b since 9 after []"],
        );
    }

    proptest! {
        #[test]
        fn words_are_read_back(held_since: i32, since_ms: i64, name in ".{0,40}", holder in ".{0,40}") {
            let name: Arc<str> = Arc::from(name.as_str());
            let claim = Claim { held_since, since_ms, name: name.clone(), share: share(&holder), naming: None };
            prop_assert_eq!(Claim::decode(&claim.encode()), claim);
            let before = vec![(share(&name), Arc::from(holder.as_str())), (Share::Unknown, name.clone())];
            let assignment = Assignment { held_since, holder: Arc::from(holder), holder_name: name, before };
            prop_assert_eq!(Assignment::decode(&assignment.encode()), Some(assignment));
        }

        #[test]
        fn damaged_words_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Claim::decode(&bytes);
            let _ = Assignment::decode(&bytes);
        }
    }
}
