//! Which leader epoch began at which offset (`LeaderEpochFileCache.java`, KIP-101, KIP-320).
//!
//! Invariant: epochs and start offsets both grow strictly from entry to entry.

/// An epoch and the offset of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The leader epoch.
    pub epoch: i32,
    /// The offset at which it began.
    pub start_offset: i64,
}

/// Where the records of an epoch, or of the nearest one below it, end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest epoch that is not above the one asked for, or −1.
    pub epoch: i32,
    /// The offset behind its last record, or −1.
    pub end_offset: i64,
}

impl EpochEnd {
    /// What a broker answers when it cannot tell.
    pub const UNDEFINED: EpochEnd = EpochEnd { epoch: -1, end_offset: -1 };
}

/// The history of one partition's leader epochs.
#[derive(Clone, Debug, Default)]
pub(super) struct EpochHistory {
    entries: Vec<EpochStart>,
}

impl EpochHistory {
    pub(super) fn entries(&self) -> &[EpochStart] {
        &self.entries
    }

    pub(super) fn latest(&self) -> Option<EpochStart> {
        self.entries.last().copied()
    }

    /// Notes that `epoch` begins at `start_offset`; entries that contradict it go, as after an unclean election.
    pub(super) fn assign(&mut self, epoch: i32, start_offset: i64) {
        if self.latest().is_some_and(|last| last.epoch == epoch && start_offset >= last.start_offset) {
            return;
        }
        self.entries.retain(|entry| entry.epoch < epoch && entry.start_offset < start_offset);
        self.entries.push(EpochStart { epoch, start_offset });
    }

    /// The epoch in which the record at `offset` was written.
    pub(super) fn epoch_at(&self, offset: i64) -> Option<i32> {
        self.entries.iter().rev().find(|entry| entry.start_offset <= offset).map(|entry| entry.epoch)
    }

    pub(super) fn end_offset_for(&self, epoch: i32, log_end_offset: i64) -> EpochEnd {
        let Some(latest) = self.latest() else { return EpochEnd::UNDEFINED };
        if epoch < 0 || epoch > latest.epoch {
            return EpochEnd::UNDEFINED;
        }
        if epoch == latest.epoch {
            return EpochEnd { epoch, end_offset: log_end_offset };
        }
        let above = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let floor = above.checked_sub(1).map_or(epoch, |at| self.entries[at].epoch);
        EpochEnd { epoch: floor, end_offset: self.entries[above].start_offset }
    }

    /// The log now starts at `offset`; the epoch that reaches over it starts there.
    pub(super) fn cut_front(&mut self, offset: i64) {
        let gone = self.entries.partition_point(|entry| entry.start_offset <= offset);
        if let Some(last) = gone.checked_sub(1) {
            self.entries.drain(..last);
            self.entries[0].start_offset = offset;
        }
    }

    /// The log now ends at `offset`.
    pub(super) fn cut_back(&mut self, offset: i64) {
        self.entries.retain(|entry| entry.start_offset < offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(entries: &[(i32, i64)]) -> EpochHistory {
        let mut history = EpochHistory::default();
        for &(epoch, start_offset) in entries {
            history.assign(epoch, start_offset);
        }
        history
    }

    fn list(history: &EpochHistory) -> Vec<(i32, i64)> {
        history.entries().iter().map(|entry| (entry.epoch, entry.start_offset)).collect()
    }

    #[test]
    fn an_epoch_without_records_leaves_no_trace() {
        assert_eq!(list(&history(&[(0, 0), (1, 10), (2, 10), (4, 30)])), [(0, 0), (2, 10), (4, 30)]);
        assert_eq!(list(&history(&[(0, 0), (1, 10), (1, 20)])), [(0, 0), (1, 10)]);
    }

    #[test]
    fn ends_follow_the_nearest_epoch_below() {
        let history = history(&[(2, 5), (4, 10), (7, 30)]);
        let check = |asked, epoch, end_offset| {
            assert_eq!(history.end_offset_for(asked, 40), EpochEnd { epoch, end_offset }, "epoch {asked}");
        };
        check(7, 7, 40);
        check(5, 4, 30);
        check(4, 4, 30);
        check(2, 2, 10);
        check(1, 1, 5);
        check(8, -1, -1);
        check(-1, -1, -1);
        assert_eq!(EpochHistory::default().end_offset_for(0, 0), EpochEnd::UNDEFINED);
    }

    #[test]
    fn cuts_keep_the_epoch_that_reaches_over_them() {
        let mut front = history(&[(2, 5), (4, 10), (7, 30)]);
        front.cut_front(12);
        assert_eq!(list(&front), [(4, 12), (7, 30)]);
        let mut back = history(&[(2, 5), (4, 10), (7, 30)]);
        back.cut_back(30);
        assert_eq!(list(&back), [(2, 5), (4, 10)]);
        assert_eq!((back.epoch_at(4), back.epoch_at(9), back.epoch_at(99)), (None, Some(2), Some(4)));
    }
}
