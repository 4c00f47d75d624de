//! The offset maps of a flow's partitions: fed by acknowledgements, asked by whoever translates or remembers offsets, void
//! when a topic was created anew.

use super::Engine;
use crate::client::PartitionKey;
use crate::mirror::offset_map::{OffsetMap, Segment, Translated};

/// Segments of all maps of a flow together, and of each; a partition without gaps has one.
const SEGMENTS_MAX: usize = 256 * 1024;
const MAP_SEGMENTS_MIN: usize = 32;
const MAP_SEGMENTS_MAX: usize = 1_024;

/// One source partition's.
#[derive(Debug, Default)]
pub(super) struct Mapping {
    map: OffsetMap,
    is_noted: bool,
}

impl Mapping {
    /// A topic was created anew on either side: what the map said is void, and copying goes on at `upstream`.
    pub(super) fn begin_anew(&mut self, upstream: i64) {
        self.map = OffsetMap::default();
        self.map.begin_at(upstream, None, MAP_SEGMENTS_MIN);
    }
}

impl Engine {
    /// Whether [`Engine::take_mapped`] has any to give.
    pub fn has_mapped(&self) -> bool {
        !self.mapped.is_empty()
    }

    /// Partitions whose maps have changed since the last call.
    pub fn take_mapped(&mut self) -> Vec<PartitionKey> {
        let mapped = std::mem::take(&mut self.mapped);
        for key in &mapped {
            if let Some(source) = self.sources.get_mut(key.0 as usize) {
                source.mapping.is_noted = false;
            }
        }
        mapped
    }

    /// The map of a partition.
    pub fn offset_map(&self, key: PartitionKey) -> Option<&OffsetMap> {
        self.sources.get(key.0 as usize).map(|source| &source.mapping.map)
    }

    /// Where a reader goes on on the target that would read source offset `upstream` next.
    pub fn translate(&self, key: PartitionKey, upstream: i64) -> Option<Translated> {
        self.offset_map(key)?.translate(upstream)
    }

    /// Takes in what an earlier process remembered, unless this one knows better; before the partition starts.
    pub fn restore_map(&mut self, key: PartitionKey, segments: Vec<Segment>) {
        let segments_max = self.map_segments_max();
        let Some(source) = self.sources.get_mut(key.0 as usize) else { return };
        if source.mapping.map.segments().len() == 0 {
            source.mapping.map = OffsetMap::restore(segments, segments_max);
        }
    }

    /// Copying of a partition begins at an upstream offset.
    pub(super) fn begin_map(&mut self, key: PartitionKey, upstream: i64, downstream: Option<i64>) {
        let segments_max = self.map_segments_max();
        let Some(source) = self.sources.get_mut(key.0 as usize) else { return };
        source.mapping.map.begin_at(upstream, downstream, segments_max);
    }

    /// Records are on the target.
    pub(super) fn map(&mut self, key: PartitionKey, upstream: i64, downstream: i64, record_count: i32) {
        let segments_max = self.map_segments_max();
        let mapping = &mut self.sources[key.0 as usize].mapping;
        let record_count = i64::from(record_count);
        mapping.map.push(Segment { upstream, downstream, record_count }, segments_max);
        if !mapping.is_noted {
            mapping.is_noted = true;
            self.mapped.push(key);
        }
    }

    fn map_segments_max(&self) -> usize {
        (SEGMENTS_MAX / self.sources.len().max(1)).clamp(MAP_SEGMENTS_MIN, MAP_SEGMENTS_MAX)
    }
}
