//! The buffers of merged batches, and their reuse: a fresh one of 256 KB costs more page faults than copies.

use std::collections::VecDeque;

use bytes::Bytes;

/// Buffers that are watched for reuse; about what is in flight to one broker.
const WATCHED_MAX: usize = 16;

/// Merged batches that were handed out; those that nobody else holds any more are buffers again.
#[derive(Debug, Default)]
pub(super) struct MergeBuffers {
    issued: VecDeque<Bytes>,
}

impl MergeBuffers {
    /// A buffer to merge into.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let free = self.issued.iter().position(Bytes::is_unique);
        free.and_then(|index| self.issued.remove(index)).map(Vec::from).unwrap_or_default()
    }

    /// Watches a merged batch.
    pub(super) fn watch(&mut self, batch: &Bytes) {
        if self.issued.len() == WATCHED_MAX {
            self.issued.pop_front();
        }
        self.issued.push_back(batch.clone());
    }

    /// Gives all of them back.
    pub(super) fn clear(&mut self) {
        self.issued = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_once_nobody_holds_its_batch() {
        let mut buffers = MergeBuffers::default();
        let batch = Bytes::from(Vec::with_capacity(100));
        let batch = {
            let mut bytes = Vec::from(batch);
            bytes.extend([1; 50]);
            bytes.reserve(50);
            Bytes::from(bytes)
        };
        buffers.watch(&batch);
        assert_eq!(buffers.take().capacity(), 0, "still held");
        drop(batch);
        assert!(buffers.take().capacity() >= 100);
        assert_eq!(buffers.take().capacity(), 0);
    }
}
