//! Which ACLs remote topics get (`MirrorSourceConnector.syncTopicAcls`).
//!
//! Literal ACLs of the topics that the flow takes go to the remote topic of each, except that to write is not allowed to
//! anyone there, and to do everything becomes to read. What denies stays as it is. Nothing is ever taken away. A literal
//! `*` is a name like others: under the default policy it becomes `A.*`, which is no pattern.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::client::{AclOperation, AclPattern, AclPermission, TopicAcl};
use crate::mirror::{FlowSettings, selects};

/// The ACLs that a flow wants on its target.
pub fn wanted_acls(settings: &FlowSettings, source: &[TopicAcl]) -> BTreeSet<TopicAcl> {
    source
        .iter()
        .filter(|acl| acl.pattern == AclPattern::Literal)
        .filter(|acl| acl.permission != AclPermission::Allow || acl.operation != AclOperation::WRITE)
        .filter(|acl| selects(settings, &acl.topic).is_replicated())
        .map(|acl| {
            let everything = acl.permission == AclPermission::Allow && acl.operation == AclOperation::ALL;
            TopicAcl {
                topic: Arc::from(settings.policy.remote_topic(&settings.source, &acl.topic)),
                principal: settings.remote_principal(&acl.principal),
                operation: if everything { AclOperation::READ } else { acl.operation },
                ..acl.clone()
            }
        })
        .collect()
}

/// Those of `wanted` that are not there yet.
pub fn missing_acls(wanted: BTreeSet<TopicAcl>, there: &[TopicAcl]) -> Vec<TopicAcl> {
    let there: BTreeSet<&TopicAcl> = there.iter().collect();
    wanted.into_iter().filter(|acl| !there.contains(acl)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::{PatternList, PrincipalMap};

    fn acl(
        topic: &str,
        pattern: AclPattern,
        principal: &str,
        operation: AclOperation,
        permission: AclPermission,
    ) -> TopicAcl {
        let (topic, principal, host) = (Arc::from(topic), principal.to_owned(), "*".to_owned());
        TopicAcl { topic, pattern, principal, host, operation, permission }
    }

    fn shown(acls: impl IntoIterator<Item = TopicAcl>) -> Vec<String> {
        acls.into_iter()
            .map(|acl| {
                format!("{} {} {} {}", acl.topic, acl.principal, acl.permission.name(), acl.operation.name())
            })
            .collect()
    }

    #[test]
    fn acls_are_chosen_and_lowered_as_mirrormaker_does() {
        use AclPattern::{Literal, Prefixed};
        use AclPermission::{Allow, Deny};
        let describe = AclOperation(8);
        let source = [
            acl("t", Literal, "User:a", AclOperation::ALL, Allow),
            acl("t", Literal, "User:b", AclOperation::WRITE, Allow),
            acl("t", Literal, "User:c", AclOperation::WRITE, Deny),
            acl("t", Literal, "User:c", AclOperation::ALL, Deny),
            acl("t", Literal, "User:d", describe, Allow),
            acl("t", Prefixed, "User:e", AclOperation::READ, Allow),
            acl("*", Literal, "User:f", AclOperation::READ, Allow),
            acl("other", Literal, "User:g", AclOperation::READ, Allow),
            acl("B.t", Literal, "User:h", AclOperation::READ, Allow),
            acl("__consumer_offsets", Literal, "User:i", AclOperation::READ, Allow),
        ];
        let mut settings = FlowSettings::new("A", "B");
        settings.topics_exclude = PatternList::new(&["other"]).unwrap();
        let wanted = wanted_acls(&settings, &source);
        assert_eq!(
            shown(wanted.clone()),
            [
                "A.* User:f ALLOW READ",
                "A.t User:a ALLOW READ",
                "A.t User:c DENY ALL",
                "A.t User:c DENY WRITE",
                "A.t User:d ALLOW DESCRIBE",
            ]
        );
        let there = [acl("A.t", Literal, "User:a", AclOperation::READ, Allow)];
        assert_eq!(missing_acls(wanted, &there).len(), 4);
        settings.principal_map = PrincipalMap::new("User:{name} -> User:{source}-{name}").unwrap();
        settings.topics = PatternList::new(&["t"]).unwrap();
        assert_eq!(shown(wanted_acls(&settings, &source[..1])), ["A.t User:A-a ALLOW READ"]);
    }
}
