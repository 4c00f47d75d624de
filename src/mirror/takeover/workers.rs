//! Which members of a group of Connect workers stand for a MirrorMaker that lives.
//!
//! Pure. In MirrorMaker's own group every member does: whoever is left takes all connectors over. A Connect cluster runs
//! other connectors as well, so only a worker with a task of the source connector does, which the leader's assignment tells
//! (`ConnectProtocol.java`, `IncrementalCooperativeConnectProtocol.java`). An assignment that cannot be read speaks for life.

use bytes::Buf;

use crate::client::GroupMember;

/// Who the workers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// MirrorMaker's own.
    Dedicated,
    /// Those of a Connect cluster: `kmirror.connect.group.id`.
    ConnectCluster,
}

impl Workers {
    /// How many of the members copy for this source connector, or may at any moment.
    pub fn alive(self, members: &[GroupMember], connector: &str) -> usize {
        match self {
            Workers::Dedicated => members.len(),
            Workers::ConnectCluster => {
                let runs = |member: &&GroupMember| has_tasks(&member.assignment, connector).unwrap_or(true);
                members.iter().filter(runs).count()
            }
        }
    }
}

/// Whether an assignment has tasks of a connector; `None` when it cannot be read.
fn has_tasks(assignment: &[u8], connector: &str) -> Option<bool> {
    let mut rest = assignment;
    // A member that has no assignment yet was given nothing.
    if rest.is_empty() {
        return Some(false);
    }
    let (_version, _error) = (rest.try_get_i16().ok()?, rest.try_get_i16().ok()?);
    let (_leader, _leader_url) = (string(&mut rest)?, string(&mut rest)?);
    let _config_offset = rest.try_get_i64().ok()?;
    for _ in 0..rest.try_get_i32().ok()?.max(0) {
        let name = string(&mut rest)?;
        let mut has = false;
        for _ in 0..rest.try_get_i32().ok()? {
            // -1 is the connector itself, which only looks for tasks to start.
            has |= rest.try_get_i32().ok()? >= 0;
        }
        if has && name == connector.as_bytes() {
            return Some(true);
        }
    }
    Some(false)
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(rest.try_get_i16().ok()?).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(text)
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, Bytes, BytesMut};
    use proptest::prelude::*;

    use super::*;

    fn put(bytes: &mut BytesMut, text: &str) {
        bytes.put_i16(text.len() as i16);
        bytes.put_slice(text.as_bytes());
    }

    fn assignment(connectors: &[(&str, &[i32])]) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_i16(2);
        bytes.put_i16(0);
        put(&mut bytes, "leader-1");
        put(&mut bytes, "http://127.0.0.1:8083/");
        bytes.put_i64(42);
        bytes.put_i32(connectors.len() as i32);
        for (name, tasks) in connectors {
            put(&mut bytes, name);
            bytes.put_i32(tasks.len() as i32);
            tasks.iter().for_each(|&task| bytes.put_i32(task));
        }
        // Nothing revoked, no delay.
        bytes.put_i32(0);
        bytes.put_i32(0);
        bytes.freeze()
    }

    #[test]
    fn in_a_connect_cluster_only_workers_with_tasks_of_the_connector_count() {
        let member = |assignment: Bytes| GroupMember {
            member_id: "m".to_owned(),
            client_id: "c".to_owned(),
            client_host: "h".to_owned(),
            metadata: Bytes::new(),
            assignment,
        };
        let members = [
            member(assignment(&[("jdbc", &[-1, 0, 1]), ("mirror", &[-1])])),
            member(assignment(&[("jdbc", &[2]), ("mirror", &[0])])),
            member(assignment(&[])),
            member(Bytes::new()),
            member(Bytes::from_static(b"not an assignment")),
        ];
        assert_eq!(Workers::Dedicated.alive(&members, "mirror"), 5);
        assert_eq!(Workers::ConnectCluster.alive(&members, "mirror"), 2);
        assert_eq!(Workers::ConnectCluster.alive(&members[..4], "jdbc"), 2);
        assert_eq!(Workers::ConnectCluster.alive(&members[..4], "other"), 0);
    }

    proptest! {
        #[test]
        fn damaged_assignments_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64), cut in 0_usize..80) {
            let _ = has_tasks(&bytes, "mirror");
            let whole = assignment(&[("jdbc", &[0]), ("mirror", &[-1, 3])]);
            let cut = cut.min(whole.len() - 8);
            prop_assert_eq!(has_tasks(&whole[..cut], "mirror").unwrap_or(true), cut > 0);
        }
    }
}
