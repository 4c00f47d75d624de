//! What of one source partition is on its way, and how far it is known to be on the target.
//!
//! Invariants: `position <= next_offset`; every offset below `position` is acknowledged or was left out on purpose;
//! `entries` cover `position..next_offset` in order. A position is derived from acks alone: it moves over an entry when
//! that entry and all before it are done.

use std::collections::VecDeque;

/// The window of one source partition.
#[derive(Debug)]
pub struct Window {
    position: i64,
    downstream: Option<i64>,
    entries: VecDeque<Entry>,
    first_id: u64,
    bytes: usize,
    next_offset: i64,
}

/// Something that was sent, or waits to be.
#[derive(Debug)]
struct Entry {
    next_offset: i64,
    acked_to: Option<i64>,
    bytes: usize,
    downstream_next: Option<i64>,
    done: bool,
}

/// Names an entry of a window until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId(u64);

impl Window {
    /// Starts at an upstream position, with the downstream offset that belongs to it when that is known.
    pub fn new(position: i64, downstream: Option<i64>) -> Window {
        Window {
            position,
            downstream,
            entries: VecDeque::new(),
            first_id: 0,
            bytes: 0,
            next_offset: position,
        }
    }

    /// The first upstream offset that is not known to be on the target.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// The target's log is another one: no offset of the old one holds.
    pub fn forget_downstream(&mut self) {
        self.downstream = None;
    }

    /// The downstream offset that follows the last acknowledged record.
    pub fn downstream(&self) -> Option<i64> {
        self.downstream
    }

    /// The next upstream offset to take.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Source bytes on their way.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes offsets up to `next_offset` that have to be acknowledged.
    pub fn push(&mut self, next_offset: i64, bytes: usize) -> EntryId {
        self.entries.push_back(Entry {
            next_offset,
            acked_to: None,
            bytes,
            downstream_next: None,
            done: false,
        });
        self.bytes += bytes;
        self.next_offset = next_offset;
        EntryId(self.first_id + self.entries.len() as u64 - 1)
    }

    /// Moves over offsets up to `next_offset` of which nothing goes to the target.
    pub fn skip(&mut self, next_offset: i64) {
        self.next_offset = self.next_offset.max(next_offset);
        match self.entries.back_mut() {
            Some(entry) => entry.next_offset = self.next_offset,
            None => self.position = self.next_offset,
        }
    }

    /// An entry is on the target up to `downstream_next` (`None` when the target did not say where). Returns its bytes.
    pub fn done(&mut self, id: EntryId, downstream_next: Option<i64>) -> usize {
        let Some(index) = id.0.checked_sub(self.first_id).and_then(|index| usize::try_from(index).ok())
        else {
            return 0;
        };
        let Some(entry) = self.entries.get_mut(index).filter(|entry| !entry.done) else { return 0 };
        entry.done = true;
        entry.downstream_next = downstream_next;
        let bytes = entry.bytes;
        self.bytes -= bytes;
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.done) {
            self.position = entry.next_offset;
            self.downstream = entry.downstream_next.or(self.downstream);
            self.first_id += 1;
        }
        bytes
    }

    /// Part of an entry is on the target: everything below `upstream_next`, up to `downstream_next`.
    ///
    /// Should the rest be given up by [`Window::rewind_to`], only that rest is fetched again.
    pub fn advance(&mut self, id: EntryId, upstream_next: i64, downstream_next: Option<i64>) {
        let index = id.0.checked_sub(self.first_id).and_then(|index| usize::try_from(index).ok());
        let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) else { return };
        entry.acked_to = Some(upstream_next);
        if index == Some(0) {
            self.position = upstream_next;
            self.downstream = downstream_next.or(self.downstream);
        }
    }

    /// Ends the window in the middle of `id`: offsets from `next_offset` on are forgotten and will be fetched again.
    /// Returns the bytes of the entries behind it.
    pub fn truncate(&mut self, id: EntryId, next_offset: i64) -> usize {
        let freed = self.rewind_to(EntryId(id.0 + 1));
        if let Some(entry) = self.entries.back_mut() {
            entry.next_offset = next_offset;
        }
        self.next_offset = next_offset;
        freed
    }

    /// Forgets `id` and everything behind it: nothing of that was sent, and it will be fetched again. Returns the bytes.
    pub fn rewind_to(&mut self, id: EntryId) -> usize {
        let keep = usize::try_from(id.0.saturating_sub(self.first_id)).unwrap_or(usize::MAX);
        let mut freed = 0;
        let mut acked_to = None;
        while self.entries.len() > keep {
            let Some(entry) = self.entries.pop_back() else { break };
            freed += if entry.done { 0 } else { entry.bytes };
            acked_to = entry.acked_to;
        }
        self.bytes -= freed;
        let before = self.entries.back().map_or(self.position, |entry| entry.next_offset);
        self.next_offset = acked_to.unwrap_or(before).max(before);
        freed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Case 48: what is left out moves the position as what is acknowledged does. Case 47: nothing else does.
    #[test]
    fn the_position_moves_over_done_prefixes_and_what_was_left_out() {
        let mut window = Window::new(10, None);
        window.skip(12);
        assert_eq!((window.position(), window.next_offset()), (12, 12));
        let first = window.push(15, 100);
        window.skip(16);
        let second = window.push(20, 50);
        window.skip(22);
        assert_eq!((window.position(), window.next_offset(), window.bytes()), (12, 22, 150));
        assert_eq!(window.done(second, Some(108)), 50);
        assert_eq!((window.position(), window.downstream()), (12, None));
        assert_eq!(window.done(first, Some(103)), 100);
        assert_eq!((window.position(), window.downstream(), window.bytes()), (22, Some(108), 0));
        assert_eq!(window.done(first, Some(1)), 0, "an entry is done once");
    }

    #[test]
    fn a_rewind_forgets_what_was_not_sent() {
        let mut window = Window::new(0, None);
        let first = window.push(5, 10);
        let second = window.push(9, 20);
        window.skip(12);
        assert_eq!(window.rewind_to(second), 20);
        assert_eq!((window.next_offset(), window.bytes()), (5, 10));
        assert_eq!(window.push(9, 20), second);
        window.done(first, None);
        assert_eq!(window.position(), 5);
        assert_eq!(window.rewind_to(second), 20);
        assert_eq!((window.position(), window.next_offset(), window.bytes()), (5, 5, 0));
    }

    #[test]
    fn a_batch_that_is_half_acknowledged_is_fetched_again_from_its_second_half() {
        let mut window = Window::new(0, None);
        let split = window.push(10, 100);
        window.push(12, 20);
        window.advance(split, 4, Some(54));
        assert_eq!((window.position(), window.downstream()), (4, Some(54)));
        assert_eq!(window.rewind_to(split), 120);
        assert_eq!((window.position(), window.next_offset()), (4, 4));
    }

    #[test]
    fn a_window_can_end_inside_an_entry() {
        let mut window = Window::new(0, None);
        let first = window.push(10, 100);
        window.push(20, 50);
        assert_eq!(window.truncate(first, 7), 50);
        assert_eq!((window.position(), window.next_offset(), window.bytes()), (0, 7, 100));
        window.done(first, None);
        assert_eq!(window.position(), 7);
    }

    proptest! {
        #[test]
        fn the_position_is_always_the_end_of_the_done_prefix(steps in prop::collection::vec((0..3_u8, 0..20_usize), 1..200)) {
            let mut window = Window::new(0, None);
            let mut model: Vec<(EntryId, i64, bool)> = Vec::new();
            for (kind, pick) in steps {
                match kind {
                    0 => {
                        let next = window.next_offset() + 1 + pick as i64;
                        model.push((window.push(next, pick), next, false));
                    }
                    1 if !model.is_empty() => {
                        let at = pick % model.len();
                        window.done(model[at].0, None);
                        model[at].2 = true;
                    }
                    _ => {}
                }
                let expected = model.iter().take_while(|entry| entry.2).last().map_or(0, |entry| entry.1);
                prop_assert_eq!(window.position(), expected);
            }
        }
    }
}
