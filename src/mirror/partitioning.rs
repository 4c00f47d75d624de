//! Which partitions of the target a topic's records go to, where MirrorMaker 1 copies.
//!
//! MirrorMaker 1 deals records out by their keys, whatever partition they came from. Where both sides have as many partitions,
//! keeping a record's partition gives the same and more: batches go as they are. Which of both it is is chosen at a topic's first
//! start and kept, or records of one key would get into two partitions: it stands in the metadata of the group's offsets.

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

impl Partitioning {
    /// As it stands in the metadata of an offset.
    pub fn to_metadata(self) -> String {
        match self {
            Partitioning::Preserve => "kmirror.partitioning=preserve".to_owned(),
            Partitioning::Key { partitions } => format!("kmirror.partitioning=key/{partitions}"),
        }
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
    fn metadata_is_read_back_and_others_words_are_not() {
        for partitioning in [Partitioning::Preserve, KEY_6] {
            assert_eq!(Partitioning::from_metadata(&partitioning.to_metadata()), Some(partitioning));
        }
        for other in ["", "kmirror.partitioning=key/0", "kmirror.partitioning=", "preserve"] {
            assert_eq!(Partitioning::from_metadata(other), None, "{other}");
        }
    }
}
