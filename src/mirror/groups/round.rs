//! A round of checkpoints: what the groups have committed at the source, where that lies on the target, and what of it is
//! news.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::select::{name_on_target, selects_topic};
use super::target::ends;
use super::task::Work;
use crate::client::{Error, GroupOffsets};
use crate::mirror::mm2::formats::Checkpoint;
use crate::mirror::offset_map::Translated;
use crate::mirror::state::TopicPartition;

/// Groups that are dealt with at once; what they have committed is held meanwhile.
const GROUPS_AT_ONCE: usize = 100;
/// Offsets that the flow translates in one go.
const TRANSLATIONS_AT_ONCE: usize = 2_000;

/// A committed offset on its way to a checkpoint.
struct Place {
    group: Arc<str>,
    target: TopicPartition,
    upstream: i64,
    metadata: Arc<str>,
    translated: Option<Translated>,
}

impl Work {
    /// One round over all groups.
    pub(super) async fn emit(&mut self) {
        let mut topics: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
        let groups: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        let mut complete = true;
        for groups in groups.chunks(GROUPS_AT_ONCE) {
            let fetched = self.source.fetch_group_offsets(groups).await;
            let mut places = Vec::new();
            for (id, offsets) in fetched {
                let Some(group) = self.groups.get(&id).cloned() else { continue };
                match offsets {
                    Ok(offsets) => self.note_places(&group, offsets, &mut topics, &mut places),
                    Err(error) => {
                        complete = false;
                        self.note_unread(group, error.chain());
                    }
                }
            }
            self.translate_all(&mut places).await;
            complete &= self.write_news(places).await;
        }
        let now_ms = self.seam.now_ms();
        self.status.round_ms = Some(now_ms);
        if complete {
            self.status.last_error = None;
        }
    }

    fn note_unread(&mut self, group: Arc<str>, why: String) {
        let status = self.status.groups.entry(group.clone()).or_default();
        if status.error.as_ref() != Some(&why) {
            let source = &self.settings.source;
            tracing::warn!(target: "kmirror::groups", %source, %group, "its offsets are not translated: {why}");
        }
        status.error = Some(why);
    }

    fn note_places(
        &mut self,
        group: &Arc<str>,
        offsets: GroupOffsets,
        topics: &mut BTreeMap<Arc<str>, Option<Arc<str>>>,
        places: &mut Vec<(TopicPartition, Place)>,
    ) {
        if let Some(status) = self.status.groups.get_mut(group) {
            (status.error, status.translated, status.untranslated) = (None, 0, 0);
        }
        let settings = &self.settings;
        for ((topic, partition), committed) in offsets {
            let name = topics
                .entry(topic.clone())
                .or_insert_with(|| selects_topic(settings, &topic).then(|| name_on_target(settings, &topic)));
            let Some(name) = name else { continue };
            let place = Place {
                group: group.clone(),
                target: TopicPartition::new(name.clone(), partition),
                upstream: committed.offset,
                metadata: committed.metadata,
                translated: None,
            };
            places.push((TopicPartition::new(topic, partition), place));
        }
    }

    /// By the flow's own map; where it does not reach, or claims less than the syncs that were left, by those. Both are
    /// safe, so the greater one is.
    async fn translate_all(&self, places: &mut [(TopicPartition, Place)]) {
        for places in places.chunks_mut(TRANSLATIONS_AT_ONCE) {
            let wanted = places.iter().map(|(source, place)| (source.clone(), place.upstream)).collect();
            let translated = self.translate(wanted).await;
            for ((source, place), by_map) in places.iter_mut().zip(translated) {
                place.translated = match by_map {
                    Some(exact @ Translated::Exact(_)) => Some(exact),
                    at_least => {
                        let by_syncs = self.syncs.translate(source, place.upstream).map(Translated::AtLeast);
                        at_least.max(by_syncs)
                    }
                };
            }
        }
    }

    /// `false` when the checkpoints could not be written; they are news again in the next round.
    async fn write_news(&mut self, places: Vec<(TopicPartition, Place)>) -> bool {
        let mut news = Vec::new();
        for (_, place) in places {
            let status = self.status.groups.entry(place.group.clone()).or_default();
            let Some(translated) = place.translated else {
                status.untranslated += 1;
                continue;
            };
            status.translated += 1;
            if self.book.is_news(&place.group, &place.target, place.upstream, translated) {
                news.push(Checkpoint {
                    group: place.group,
                    target: place.target,
                    upstream: place.upstream,
                    downstream: translated.offset(),
                    metadata: place.metadata,
                });
            }
        }
        let news = self.within_logs(news).await;
        if news.is_empty() {
            return true;
        }
        let made_ms = self.seam.now_ms();
        let records = news.iter().map(|checkpoint| (checkpoint.key(), checkpoint.value())).collect();
        if let Err(error) = self.checkpoints.append(records).await {
            let message = format!("cannot write checkpoints: {error}");
            tracing::warn!(target: "kmirror::groups", source = %self.settings.source, "{message}");
            self.status.last_error = Some(message);
            return false;
        }
        let now_ms = self.seam.now_ms();
        for checkpoint in &news {
            self.book.note(checkpoint);
            let status = self.status.groups.entry(checkpoint.group.clone()).or_default();
            status.checkpoint_ms = Some(now_ms);
            status.checkpoint_latency.took(now_ms, now_ms.saturating_sub(made_ms).max(0));
            // It is copied only where it grows, for the state that was published still holds it.
            if !status.checkpointed.contains(&checkpoint.target) {
                Arc::make_mut(&mut status.checkpointed).insert(checkpoint.target.clone());
            }
        }
        self.status.checkpoints += news.len() as u64;
        true
    }

    /// Without what the target's logs do not hold: a log may have been cut since its records were acknowledged. Where the end
    /// is not known, what was acknowledged counts.
    async fn within_logs(&self, news: Vec<Checkpoint>) -> Vec<Checkpoint> {
        let partitions: BTreeSet<(Arc<str>, i32)> = news
            .iter()
            .map(|checkpoint| (checkpoint.target.topic.clone(), checkpoint.target.partition))
            .collect();
        let ends = ends(&self.target, partitions).await;
        let missing = |error: &Error| matches!(error, Error::Unknown { .. });
        news.into_iter()
            .filter(|checkpoint| {
                let key = (checkpoint.target.topic.clone(), checkpoint.target.partition);
                match ends.get(&key) {
                    Some(Ok(end)) => checkpoint.downstream <= *end,
                    Some(Err(error)) => !missing(error),
                    None => true,
                }
            })
            .collect()
    }
}
