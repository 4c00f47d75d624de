//! A round of `sync.group.offsets`: how the groups stand on the target, and commits for those without members.
//!
//! Groups are taken some at a time: fetched and committed at once, so that little can happen in between. What remains is the
//! moment between the two: a consumer that joins, commits and leaves within it loses its commit, if ours is greater. A
//! consumer that assigns its partitions itself shows as an empty group while it reads; it is moved forward at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::sync::{Commit, TargetGroup, commit, target_group, within};
use super::task::Work;
use crate::client::{Cluster, Each, Error, ErrorCode, IsolationLevel, ListedGroup, OffsetSpec};
use crate::mirror::state::TopicPartition;
use crate::mirror::status::{GroupSync, GroupSyncStatus};

/// Groups between whose fetch and commit nothing else is done.
const GROUPS_AT_ONCE: usize = 32;

/// The ends of the target's logs.
pub(super) async fn ends(
    target: &Cluster,
    partitions: BTreeSet<(Arc<str>, i32)>,
) -> Each<(Arc<str>, i32), i64> {
    if partitions.is_empty() {
        return BTreeMap::new();
    }
    let wanted = partitions.into_iter().map(|partition| (partition, OffsetSpec::Latest));
    let listed = target.list_offsets(wanted, IsolationLevel::ReadUncommitted).await;
    listed.into_iter().map(|(key, listed)| (key, listed.map(|listed| listed.offset))).collect()
}

impl Work {
    /// One round over all groups with checkpoints.
    pub(super) async fn sync(&mut self) {
        let (listed, errors) = match self.target.list_groups().await {
            Ok(listed) => listed,
            Err(error) => return self.complain("cannot list the groups of the target", &error),
        };
        let listed: BTreeMap<Arc<str>, ListedGroup> =
            listed.into_iter().map(|group| (group.id.clone(), group)).collect();
        let groups: Vec<Arc<str>> =
            self.groups.values().filter(|group| self.book.of(group).is_some()).cloned().collect();
        let unlisted = errors.first().map(Error::chain);
        for groups in groups.chunks(GROUPS_AT_ONCE) {
            let looks: Vec<_> = groups
                .iter()
                .map(|group| {
                    let listed = listed.get(group).cloned();
                    let look = stands(self.target.clone(), group.clone(), listed, unlisted.clone());
                    (group, self.seam.spawn(look))
                })
                .collect();
            let mut eligible = Vec::new();
            for (group, look) in looks {
                match look.await {
                    Ok(Ok(())) => eligible.push(group.clone()),
                    Ok(Err((result, detail))) => self.tell(group, result, Some(detail), 0),
                    // The runtime is shutting down.
                    Err(_) => return,
                }
            }
            self.sync_some(&eligible).await;
        }
    }

    async fn sync_some(&mut self, groups: &[Arc<str>]) {
        let partitions = groups.iter().filter_map(|group| self.book.of(group)).flat_map(|of| of.keys());
        let partitions: BTreeSet<(Arc<str>, i32)> =
            partitions.map(|partition| (partition.topic.clone(), partition.partition)).collect();
        let ends: BTreeMap<(Arc<str>, i32), i64> = ends(&self.target, partitions)
            .await
            .into_iter()
            .filter_map(|(key, end)| Some((key, end.ok()?)))
            .collect();
        let mut commits = Vec::new();
        for (group, there) in self.target.fetch_group_offsets(groups).await {
            let there = match there {
                Ok(there) => there,
                Err(error) => {
                    self.tell(&group, GroupSync::Skipped, Some(error.chain()), 0);
                    continue;
                }
            };
            let Some(wanted) = self.book.of(&group) else { continue };
            let mut decided = commit(wanted, &there, self.ours.get(&group));
            within(&mut decided, &there, &ends);
            if decided.offsets.is_empty() {
                let result = if decided.ahead > 0 { GroupSync::Ahead } else { GroupSync::InSync };
                let detail = (decided.ahead > 0)
                    .then(|| format!("{} partitions are further on the target", decided.ahead));
                self.tell(&group, result, detail, 0);
                continue;
            }
            let (target, name, offsets) = (self.target.clone(), group.clone(), decided.offsets.clone());
            let committed =
                self.seam.spawn(async move { target.commit_group_offsets(&name, &offsets).await });
            commits.push((group, decided, committed));
        }
        for (group, decided, committed) in commits {
            let closed = Error::Closed { cluster: self.target.alias().clone() };
            let outcome = committed.await.unwrap_or(Err(closed));
            self.committed(&group, &decided, outcome);
        }
    }

    fn committed(
        &mut self,
        group: &Arc<str>,
        decided: &Commit,
        outcome: Result<Each<(Arc<str>, i32), ()>, Error>,
    ) {
        let each = match outcome {
            Ok(each) => each,
            // Whether it arrived nobody knows; the next round looks.
            Err(error) => return self.tell(group, GroupSync::Skipped, Some(error.chain()), 0),
        };
        let taken = |(key, result): (&(Arc<str>, i32), &Result<(), Error>)| {
            let offset = decided.offsets.get(key).filter(|_| result.is_ok())?.offset;
            Some((TopicPartition::new(key.0.clone(), key.1), offset))
        };
        let taken: Vec<(TopicPartition, i64)> = each.iter().filter_map(taken).collect();
        let count = taken.len();
        self.ours.entry(group.clone()).or_default().extend(taken);
        match each.values().find_map(|result| result.as_ref().err()) {
            None => self.tell(group, GroupSync::Committed, None, count),
            Some(error) if error.code() == Some(ErrorCode::UNKNOWN_MEMBER_ID) => {
                self.tell(group, GroupSync::Active, Some("it has got members".to_owned()), count);
            }
            Some(error) => self.tell(group, GroupSync::Skipped, Some(error.chain()), count),
        }
    }

    fn tell(&mut self, group: &Arc<str>, result: GroupSync, detail: Option<String>, committed: usize) {
        let at_ms = self.seam.now_ms();
        let status = self.status.groups.entry(group.clone()).or_default();
        let before = status.sync.as_ref().map_or(0, |sync| sync.committed);
        let changed = status.sync.as_ref().is_none_or(|sync| sync.result != result || sync.detail != detail);
        if changed && matches!(result, GroupSync::Active | GroupSync::Skipped) {
            tracing::info!(
                target: "kmirror::groups",
                source = %self.settings.source,
                %group,
                "its offsets are not written: {}",
                detail.as_deref().unwrap_or_default()
            );
        }
        status.sync = Some(GroupSyncStatus { result, detail, committed: before + committed as u64, at_ms });
    }
}

/// Whether a group may be written; why not otherwise.
async fn stands(
    target: Cluster,
    group: Arc<str>,
    listed: Option<ListedGroup>,
    unlisted: Option<String>,
) -> Result<(), (GroupSync, String)> {
    let active = |state: &str| Err((GroupSync::Active, format!("it is {state} on the target")));
    match (target_group(listed.as_ref()), unlisted) {
        (TargetGroup::Empty, _) => Ok(()),
        (TargetGroup::Active(state), _) => active(&state),
        (TargetGroup::Other(why), _) => Err((GroupSync::Skipped, why)),
        (TargetGroup::Absent, Some(why)) => {
            Err((GroupSync::Skipped, format!("not every broker of the target lists its groups: {why}")))
        }
        // Its coordinator has to say so, too: a group whose coordinator moves may be listed by none.
        (TargetGroup::Absent | TargetGroup::Untold, _) => match target.describe_group(&group).await {
            Ok(described) if !described.members.is_empty() => active(&described.state),
            Ok(described) if matches!(described.state.as_str(), "Dead" | "Empty") => Ok(()),
            Ok(described) => active(&described.state),
            Err(error) => Err((GroupSync::Skipped, error.chain())),
        },
    }
}
