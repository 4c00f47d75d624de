//! Which partitions of the target a topic's records go to, where MirrorMaker 1 copies.
//!
//! MirrorMaker 1 deals records out by their keys, whatever partition they came from. Where both sides have as many partitions,
//! keeping a record's partition gives the same and more: batches go as they are. Which of both it is is chosen at a topic's first
//! start and kept, or records of one key would get into two partitions: it stands in the metadata of the group's offsets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::topics::diff::{Action, Diff, TopicView};

/// Which partitions records go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitioning {
    /// The one that they have at the source.
    Preserve,
    /// The one of their key.
    Key {
        /// Of so many.
        partitions: i32,
    },
}

/// `kmirror.partitioning`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedPartitioning {
    /// Not said: preserve where both sides have as many partitions, key otherwise.
    #[default]
    ByCounts,
    /// `preserve`.
    Preserve,
    /// `key`.
    Key,
}

/// What was chosen for a topic, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// It.
    pub partitioning: Partitioning,
    /// `kmirror.partitioning`.
    pub wanted: WantedPartitioning,
    /// Whether it was chosen at an earlier start.
    pub is_kept: bool,
    /// Partitions at the source.
    pub source: i32,
    /// Partitions on the target, if the topic is there.
    pub target: Option<i32>,
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.partitioning {
            Partitioning::Preserve => f.write_str("records keep their partitions")?,
            Partitioning::Key { partitions } => {
                write!(
                    f,
                    "records are dealt out by key over {partitions} partitions, as MirrorMaker 1 does"
                )?;
            }
        }
        match (self.wanted, self.target) {
            _ if self.is_kept => f.write_str(": so it was chosen at the topic's first start"),
            (WantedPartitioning::Preserve, _) => f.write_str(": kmirror.partitioning=preserve"),
            (WantedPartitioning::Key, _) => f.write_str(": kmirror.partitioning=key"),
            (WantedPartitioning::ByCounts, None) => {
                write!(f, ": the topic is created with as many as the source has ({})", self.source)
            }
            (WantedPartitioning::ByCounts, Some(target)) if target == self.source => {
                write!(f, ": both sides have {target}")
            }
            (WantedPartitioning::ByCounts, Some(target)) => {
                write!(f, ": the source has {}, the target {target}", self.source)
            }
        }
    }
}

/// Chooses for each topic of a diff, and refuses those for which a choice cannot be kept; `kept` is what was chosen before. A
/// topic that is dealt out by key is never grown: to whoever follows, it has as many partitions as the source's.
pub fn choose_all(
    diff: &mut Diff,
    wanted: WantedPartitioning,
    kept: &BTreeMap<Arc<str>, Partitioning>,
) -> BTreeMap<Arc<str>, Choice> {
    let mut choices = BTreeMap::new();
    let mut refused = BTreeMap::new();
    for topic in &mut diff.topics {
        let there = match topic.action {
            Action::Create => None,
            Action::Grow { there } | Action::Keep(there) => Some(there),
        };
        let kept = kept.get(&topic.source).copied();
        let (source, target) = (topic.view.partitions, there.map(|there| there.partitions));
        match Partitioning::choose(wanted, kept, source, target) {
            Ok(partitioning) => {
                if let (Partitioning::Key { .. }, Some(there)) = (partitioning, there) {
                    topic.action = Action::Keep(TopicView { partitions: source, ..there });
                }
                let choice = Choice { partitioning, wanted, is_kept: kept.is_some(), source, target };
                choices.insert(topic.source.clone(), choice);
            }
            Err(reason) => drop(refused.insert(topic.source.clone(), reason)),
        }
    }
    diff.topics.retain(|topic| !refused.contains_key(&topic.source));
    diff.refused.extend(refused);
    choices
}

/// What of the records that are dealt out by key becomes one batch: `batch.size` and `linger.ms` of the target producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// `batch.size`, before compression. Where the file does not say it, more than Java's 16 KB: nothing is delayed for it, and a
    /// broker's work is per batch.
    pub batch_bytes_max: usize,
    /// `linger.ms`: how long a batch that is not full waits for more.
    pub linger: Duration,
}

impl Default for Gathering {
    fn default() -> Gathering {
        Gathering { batch_bytes_max: 256 * 1024, linger: Duration::ZERO }
    }
}

impl std::fmt::Display for Partitioning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Partitioning::Preserve => f.write_str("preserve"),
            Partitioning::Key { partitions } => write!(f, "key/{partitions}"),
        }
    }
}

impl Partitioning {
    /// As it stands in the metadata of an offset.
    pub fn to_metadata(self) -> String {
        format!("kmirror.partitioning={self}")
    }

    /// Reads it; `None` where somebody else has committed.
    pub fn from_metadata(metadata: &str) -> Option<Partitioning> {
        match metadata.strip_prefix("kmirror.partitioning=")? {
            "preserve" => Some(Partitioning::Preserve),
            key => {
                let partitions = key.strip_prefix("key/")?.parse().ok().filter(|&count| count > 0)?;
                Some(Partitioning::Key { partitions })
            }
        }
    }

    /// Chooses for a topic with so many partitions at the source, and on the target if it is there; `kept` is what was
    /// chosen at its first start.
    ///
    /// # Errors
    /// In words, why it cannot be copied: what was chosen cannot be kept.
    pub fn choose(
        wanted: WantedPartitioning,
        kept: Option<Partitioning>,
        source: i32,
        target: Option<i32>,
    ) -> Result<Partitioning, String> {
        let by_key = Partitioning::Key { partitions: target.unwrap_or(source) };
        match (kept, wanted) {
            (None, WantedPartitioning::Preserve) => Ok(Partitioning::Preserve),
            (None, WantedPartitioning::Key) => Ok(by_key),
            (None, WantedPartitioning::ByCounts) if target.is_none_or(|target| target == source) => {
                Ok(Partitioning::Preserve)
            }
            (None, WantedPartitioning::ByCounts) => Ok(by_key),
            (Some(Partitioning::Preserve), WantedPartitioning::Key) => Err(
                "its records have kept their partitions so far, and kmirror.partitioning=key would put records of one key into two \
                 partitions: copy it under another group.id into another topic, or leave kmirror.partitioning out"
                    .to_owned(),
            ),
            (Some(Partitioning::Key { .. }), WantedPartitioning::Preserve) => Err(
                "its records were dealt out by key so far, and kmirror.partitioning=preserve would put records of one key into two \
                 partitions: copy it under another group.id into another topic, or leave kmirror.partitioning out"
                    .to_owned(),
            ),
            (Some(Partitioning::Key { partitions }), _) if target != Some(partitions) => {
                let now = target.map_or("is gone".to_owned(), |count| format!("has {count} partitions now"));
                Err(format!(
                    "its records were dealt out by key over {partitions} partitions, and its target {now}: records of one key would \
                     get into two partitions; copy it under another group.id into another topic"
                ))
            }
            (Some(kept), _) => Ok(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY_6: Partitioning = Partitioning::Key { partitions: 6 };

    #[test]
    fn what_is_chosen_first_is_kept() {
        use Partitioning::Preserve;
        use WantedPartitioning as Wanted;
        for (wanted, kept, source, target, chosen) in [
            (Wanted::ByCounts, None, 3, None, Some(Preserve)),
            (Wanted::ByCounts, None, 3, Some(3), Some(Preserve)),
            (Wanted::ByCounts, None, 3, Some(6), Some(KEY_6)),
            (Wanted::ByCounts, None, 9, Some(6), Some(KEY_6)),
            (Wanted::Preserve, None, 3, Some(6), Some(Preserve)),
            (Wanted::Key, None, 6, Some(6), Some(KEY_6)),
            (Wanted::Key, None, 6, None, Some(KEY_6)),
            // The source has grown: the target will.
            (Wanted::ByCounts, Some(Preserve), 6, Some(3), Some(Preserve)),
            (Wanted::ByCounts, Some(KEY_6), 9, Some(6), Some(KEY_6)),
            (Wanted::ByCounts, Some(KEY_6), 6, Some(8), None),
            (Wanted::ByCounts, Some(KEY_6), 6, None, None),
            (Wanted::Preserve, Some(KEY_6), 6, Some(6), None),
            (Wanted::Key, Some(Preserve), 6, Some(6), None),
        ] {
            let found = Partitioning::choose(wanted, kept, source, target);
            assert_eq!(found.clone().ok(), chosen, "{wanted:?} {kept:?} {source} {target:?}: {found:?}");
        }
    }

    #[test]
    fn a_choice_says_why() {
        let check = |wanted, kept, source, target, words: &str| {
            let partitioning = Partitioning::choose(wanted, kept, source, target).unwrap();
            let choice = Choice { partitioning, wanted, is_kept: kept.is_some(), source, target };
            assert!(choice.to_string().contains(words), "{choice}");
        };
        check(WantedPartitioning::ByCounts, None, 3, Some(3), "keep their partitions: both sides have 3");
        check(WantedPartitioning::ByCounts, None, 3, None, "created with as many as the source has (3)");
        check(
            WantedPartitioning::ByCounts,
            None,
            3,
            Some(6),
            "over 6 partitions, as MirrorMaker 1 does: the source has 3",
        );
        check(WantedPartitioning::Key, None, 6, Some(6), "kmirror.partitioning=key");
        check(WantedPartitioning::ByCounts, Some(KEY_6), 9, Some(6), "at the topic's first start");
    }

    #[test]
    fn metadata_is_read_back_and_others_words_are_not() {
        for partitioning in [Partitioning::Preserve, KEY_6] {
            assert_eq!(Partitioning::from_metadata(&partitioning.to_metadata()), Some(partitioning));
        }
        for other in ["", "kmirror.partitioning=key/0", "kmirror.partitioning=", "preserve"] {
            assert_eq!(Partitioning::from_metadata(other), None, "{other}");
        }
    }
}
