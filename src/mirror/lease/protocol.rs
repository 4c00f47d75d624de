//! The words of the lease: what members of the group say of themselves, and what its leader answers.
//!
//! Pure. A classic group (KIP-62 and before) of protocol type `kmirror` carries the lease: its members are the processes
//! that are told to run the flow. Whoever is the group's leader decides with [`choose`]: a member that holds the lease
//! keeps it, so that newcomers and leavers disturb nobody; otherwise the member that has waited longest gets it.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The group's protocol type: no consumer group, so nobody takes it for one, and consumers cannot join it.
pub const PROTOCOL_TYPE: &str = "kmirror";
/// The only protocol of the group.
pub const PROTOCOL: &str = "lease";

const VERSION: i16 = 0;
const NAME_BYTES_MAX: usize = 255;

/// The group that carries a flow's lease, on the flow's target.
pub fn group_id(source: &str, target: &str) -> String {
    format!("kmirror-{source}->{target}")
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
}

/// What the leader answers each member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The generation in which the holder got the lease.
    pub held_since: i32,
    /// The holder's member id.
    pub holder: Arc<str>,
    /// Its host and process, for messages.
    pub holder_name: Arc<str>,
}

/// The leader's decision, the same for all members. `None` without members.
pub fn choose(generation: i32, members: &[(Arc<str>, Claim)]) -> Option<Assignment> {
    let holds = members.iter().filter(|(_, claim)| claim.held_since >= 0);
    let holder = holds.max_by_key(|(id, claim)| (claim.held_since, std::cmp::Reverse(id)));
    let (id, claim) =
        holder.or_else(|| members.iter().min_by_key(|(id, claim)| (claim.since_ms, Arc::clone(id))))?;
    Some(Assignment {
        held_since: if claim.held_since >= 0 { claim.held_since } else { generation },
        holder: Arc::clone(id),
        holder_name: Arc::clone(&claim.name),
    })
}

impl Claim {
    /// As the member's metadata.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        out.put_i16(VERSION);
        out.put_i32(self.held_since);
        out.put_i64(self.since_ms);
        put_string(&mut out, &self.name);
        out.freeze()
    }

    /// From a member's metadata; what cannot be read claims nothing and waits behind all others.
    pub fn decode(bytes: &[u8]) -> Claim {
        let read = |mut bytes: &[u8]| {
            let _version = bytes.try_get_i16().ok()?;
            let held_since = bytes.try_get_i32().ok()?;
            let since_ms = bytes.try_get_i64().ok()?;
            Some(Claim { held_since, since_ms, name: get_string(&mut bytes)? })
        };
        read(bytes).unwrap_or(Claim { held_since: -1, since_ms: i64::MAX, name: Arc::from("?") })
    }
}

impl Assignment {
    /// As the assignment of every member.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(128);
        out.put_i16(VERSION);
        out.put_i32(self.held_since);
        put_string(&mut out, &self.holder);
        put_string(&mut out, &self.holder_name);
        out.freeze()
    }

    /// From a member's assignment; `None` when it is not one.
    pub fn decode(mut bytes: &[u8]) -> Option<Assignment> {
        let _version = bytes.try_get_i16().ok()?;
        let held_since = bytes.try_get_i32().ok()?;
        let holder = get_string(&mut bytes)?;
        Some(Assignment { held_since, holder, holder_name: get_string(&mut bytes)? })
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

    fn member(id: &str, held_since: i32, since_ms: i64) -> (Arc<str>, Claim) {
        (Arc::from(id), Claim { held_since, since_ms, name: Arc::from(format!("host-{id}")) })
    }

    #[test]
    fn the_holder_keeps_the_lease_and_else_the_longest_waiting_gets_it() {
        let check = |members: &[(Arc<str>, Claim)], expected: Option<(&str, i32)>| {
            let mut members = members.to_vec();
            for _ in 0..2 {
                let chosen = choose(9, &members);
                let chosen = chosen.as_ref().map(|chosen| (&*chosen.holder, chosen.held_since));
                assert_eq!(chosen, expected, "{members:?}");
                members.reverse();
            }
        };
        check(&[], None);
        check(&[member("a", -1, 5)], Some(("a", 9)));
        check(&[member("a", -1, 5), member("b", -1, 4)], Some(("b", 9)));
        check(&[member("a", -1, 5), member("b", -1, 5)], Some(("a", 9)));
        check(&[member("a", -1, 1), member("b", 3, 5)], Some(("b", 3)));
        // Two that claim it cannot be, while each gives up before the coordinator does; the younger claim is right.
        check(&[member("a", 7, 1), member("b", 3, 5)], Some(("a", 7)));
    }

    proptest! {
        #[test]
        fn words_are_read_back(held_since: i32, since_ms: i64, name in ".{0,40}", holder in ".{0,40}") {
            let claim = Claim { held_since, since_ms, name: Arc::from(name.as_str()) };
            prop_assert_eq!(Claim::decode(&claim.encode()), claim);
            let assignment =
                Assignment { held_since, holder: Arc::from(holder), holder_name: Arc::from(name) };
            prop_assert_eq!(Assignment::decode(&assignment.encode()), Some(assignment));
        }

        #[test]
        fn damaged_words_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Claim::decode(&bytes);
            let _ = Assignment::decode(&bytes);
        }
    }
}
