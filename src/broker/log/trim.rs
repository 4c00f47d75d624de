//! What shortens a log: DeleteRecords, retention by age and size, truncation after an unclean election.
//!
//! Kafka drops whole segments; this log has none and drops batch by batch, so that a test sees the effect at once. A log
//! start in the middle of a batch keeps that batch, as Kafka does.

use super::PartitionLog;
use super::error::OffsetOutOfRange;

impl PartitionLog {
    /// Moves the log start to `before_offset`, or to the high watermark for −1, and gives the new start
    /// (DeleteRecords, KIP-107). A start that is higher already stays.
    pub fn delete_records(&mut self, before_offset: i64) -> Result<i64, OffsetOutOfRange> {
        let high_watermark = self.high_watermark();
        let before_offset = if before_offset == -1 { high_watermark } else { before_offset };
        if before_offset < 0 || before_offset > high_watermark {
            return Err(OffsetOutOfRange {
                offset: before_offset,
                log_start_offset: self.log_start_offset,
                log_end_offset: self.log_end_offset,
            });
        }
        self.raise_start(before_offset);
        Ok(self.log_start_offset)
    }

    /// Drops batches that are older than `retention.ms` or beyond `retention.bytes`, never above the high watermark, if
    /// `cleanup.policy` deletes. Gives the number of batches dropped.
    pub fn expire_by_retention(&mut self, now_ms: i64) -> usize {
        if !self.settings.cleanup_policy.deletes() {
            return 0;
        }
        let (retention_ms, retention_bytes) = (self.settings.retention_ms, self.settings.retention_bytes);
        let high_watermark = self.high_watermark();
        let (mut size_bytes, mut count, mut start_offset) = (self.size_bytes() as i64, 0, None);
        for stored in self.store.iter().take_while(|stored| stored.last_offset < high_watermark) {
            let batch_bytes = stored.bytes.len() as i64;
            let old = retention_ms >= 0 && now_ms.saturating_sub(stored.max_timestamp) > retention_ms;
            let much = retention_bytes >= 0 && size_bytes - retention_bytes >= batch_bytes;
            if !old && !much {
                break;
            }
            size_bytes -= batch_bytes;
            count += 1;
            start_offset = Some(stored.last_offset + 1);
        }
        if let Some(start_offset) = start_offset {
            self.raise_start(start_offset);
        }
        count
    }

    /// Cuts everything from `offset` on, as a follower does after an unclean election: a batch that reaches over the
    /// offset goes whole. What is remembered of producers is what the remaining batches tell. Gives the new end.
    pub fn truncate_to(&mut self, offset: i64) -> i64 {
        if offset >= self.log_end_offset {
            return self.log_end_offset;
        }
        while self.store.back().is_some_and(|stored| stored.last_offset >= offset) {
            let cut = self.store.pop_back();
            self.log_end_offset = cut.map_or(self.log_end_offset, |stored| stored.base_offset);
        }
        self.log_end_offset = self.log_end_offset.min(offset.max(0));
        self.log_start_offset = self.log_start_offset.min(self.log_end_offset);
        self.epochs.cut_back(self.log_end_offset);
        self.rebuild();
        self.log_end_offset
    }

    fn raise_start(&mut self, start_offset: i64) {
        if start_offset <= self.log_start_offset {
            return;
        }
        self.log_start_offset = start_offset;
        while self.store.front().is_some_and(|stored| stored.last_offset < start_offset) {
            self.store.pop_front();
        }
        self.epochs.cut_front(start_offset);
        self.transactions.cut_front(start_offset);
    }
}
