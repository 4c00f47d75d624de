//! The buffers that a fetch lane reads into, and their reuse.
//!
//! One slab takes many reads and many batches; a batch is a slice of it, and a slab whose batches are all gone is read
//! into again. Fresh large buffers would cost a page fault per 4 KB, and small reads a system call each: both are worse
//! than every copy in this process. So slabs are large while there is traffic, small while there is none.
//!
//! A slab lives as long as the longest of its batches, so a few small batches that wait long could hold many slabs. When
//! too many are held, batches are copied out of theirs instead ([`Slabs::hand_over`]).
//!
//! A batch must lie in one piece. One that straddles the end of its slab is copied to the next ([`Slabs::prepare`]): what
//! is copied is less than a batch per slab. Nothing is allocated by the length that a peer claims, only by twice of what
//! has arrived.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// A slab while traffic is light.
const SLAB_BYTES_MIN: usize = 64 * 1024;
/// A slab under load, unless batches are large.
const SLAB_BYTES_LOADED: usize = 1024 * 1024;
/// The largest slab that is not made for a single batch.
const SLAB_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Slabs that are watched for reuse; older ones are left to their batches.
const RETIRED_MAX: usize = 64;
/// Slabs that may be held by batches before those are copied out: more than what is on its way through the process.
const HELD_MAX: usize = 16;

/// The slab that is being read into, and those that were.
#[derive(Debug)]
pub struct Slabs {
    front: BytesMut,
    front_bytes: usize,
    slab_bytes: usize,
    largest_entry_bytes: usize,
    retired: VecDeque<(BytesMut, usize)>,
}

impl Default for Slabs {
    fn default() -> Slabs {
        Slabs::new()
    }
}

impl Slabs {
    /// No slab yet.
    pub fn new() -> Slabs {
        Slabs {
            front: BytesMut::new(),
            front_bytes: 0,
            slab_bytes: SLAB_BYTES_MIN,
            largest_entry_bytes: 0,
            retired: VecDeque::new(),
        }
    }

    /// What has arrived and is not consumed.
    pub fn front(&mut self) -> &mut BytesMut {
        &mut self.front
    }

    /// The buffer to append a read to, with room for some, so that in the end `needed` bytes can stand at its front in
    /// one piece.
    pub fn prepare(&mut self, needed: usize) -> &mut BytesMut {
        self.rewind();
        if self.retired.len() > HELD_MAX {
            self.retired.retain_mut(|(slab, bytes)| !slab.try_reclaim(*bytes));
        }
        let room = self.front.capacity() - self.front.len();
        let fits = needed <= self.front.capacity();
        let little = self.front_bytes / 16;
        let worth_a_read = room > little || (room > 0 && self.front.len() > little);
        if !fits || !worth_a_read {
            self.move_on(needed);
        }
        &mut self.front
    }

    /// Tells how much a read brought of the `room` that it had: reads that fill the slab make the next ones larger.
    pub fn filled(&mut self, read_bytes: usize, room: usize) {
        if read_bytes == room {
            let target = (4 * self.largest_entry_bytes).clamp(SLAB_BYTES_LOADED, SLAB_BYTES_MAX);
            self.slab_bytes = (self.slab_bytes * 4).min(target);
        }
    }

    /// A batch that was split off the front, as it may leave: the slice itself, or a copy when many slabs are held and
    /// this batch alone would hold another.
    pub fn hand_over(&mut self, batch: Bytes) -> Bytes {
        self.largest_entry_bytes = self.largest_entry_bytes.max(batch.len());
        if self.retired.len() <= HELD_MAX || batch.len() > self.front_bytes / 2 {
            return batch;
        }
        Bytes::copy_from_slice(&batch)
    }

    /// Gives back what light traffic does not need; to be called when a fetch brought nothing.
    pub fn trim(&mut self) {
        self.slab_bytes = SLAB_BYTES_MIN;
        self.largest_entry_bytes = 0;
        self.retired.retain_mut(|(slab, bytes)| !slab.try_reclaim(*bytes));
        if self.front.is_empty() && self.front_bytes > SLAB_BYTES_MIN {
            self.front = BytesMut::new();
            self.front_bytes = 0;
        }
    }

    /// Forgets what has arrived, as when the connection is gone.
    pub fn clear(&mut self) {
        self.front.clear();
        self.rewind();
    }

    /// Reads into the beginning of the slab again when nothing of it is alive: it is still in the cache.
    fn rewind(&mut self) {
        if self.front.is_empty() {
            let _still_alive = !self.front.try_reclaim(self.front_bytes);
        }
    }

    fn move_on(&mut self, needed: usize) {
        // A claimed length alone buys no more than a slab; beyond that the buffer doubles with what really came.
        let earned = SLAB_BYTES_MAX.max(2 * self.front.len());
        let bytes = self.slab_bytes.max(needed.min(earned));
        let (mut slab, bytes) = self.take(bytes);
        slab.extend_from_slice(&self.front);
        let mut old = std::mem::replace(&mut self.front, slab);
        let old_bytes = std::mem::replace(&mut self.front_bytes, bytes);
        old.clear();
        if old_bytes > 0 {
            self.retired.push_back((old, old_bytes));
        }
        if self.retired.len() > RETIRED_MAX {
            self.retired.pop_front();
        }
    }

    /// A slab of at least `bytes`: a retired one if its batches are gone. One more free slab is kept, others are given back.
    fn take(&mut self, bytes: usize) -> (BytesMut, usize) {
        let mut found = None;
        let mut spare = 1;
        let kept_bytes_max = self.slab_bytes;
        self.retired.retain_mut(|(slab, slab_bytes)| {
            if !slab.try_reclaim(*slab_bytes) {
                return true;
            }
            if found.is_none() && *slab_bytes >= bytes {
                found = Some((std::mem::take(slab), *slab_bytes));
                return false;
            }
            let keep = spare > 0 && *slab_bytes <= kept_bytes_max && *slab_bytes >= bytes;
            spare -= usize::from(keep);
            keep
        });
        found.unwrap_or_else(|| (BytesMut::with_capacity(bytes), bytes))
    }
}

#[cfg(test)]
mod tests {
    use bytes::BufMut;

    use super::*;

    /// Reads `bytes` as a socket with plenty to give would.
    fn read(slabs: &mut Slabs, needed: usize, next: &mut u8, bytes_max: usize) -> usize {
        let front = slabs.prepare(needed);
        let room = front.capacity() - front.len();
        assert!(room > 0);
        let count = room.min(bytes_max);
        let pattern: Vec<u8> = (0..512_usize).map(|at| at as u8).collect();
        let mut left = count;
        while left > 0 {
            let part = left.min(256);
            front.put_slice(&pattern[usize::from(*next)..usize::from(*next) + part]);
            *next = next.wrapping_add(part as u8);
            left -= part;
        }
        slabs.filled(count, room);
        count
    }

    /// Reads and splits off batches of `batch_bytes`, keeping the last `alive` of them; gives the addresses of the slabs.
    fn run(slabs: &mut Slabs, batch_bytes: usize, batches: usize, alive: usize) -> Vec<usize> {
        slabs.clear();
        let (mut next, mut expected, mut kept) = (0, 0_u8, VecDeque::<Bytes>::new());
        let mut addresses = Vec::new();
        for _ in 0..batches {
            while slabs.front().len() < batch_bytes {
                read(slabs, batch_bytes, &mut next, usize::MAX);
            }
            let batch = slabs.front().split_to(batch_bytes).freeze();
            let batch = slabs.hand_over(batch);
            for byte in &batch {
                assert_eq!(*byte, expected);
                expected = expected.wrapping_add(1);
            }
            addresses.push(batch.as_ptr() as usize);
            kept.push_back(batch);
            if kept.len() > alive {
                kept.pop_front();
            }
        }
        addresses
    }

    #[test]
    fn batches_come_out_whole_and_in_order_over_the_ends_of_slabs() {
        let mut slabs = Slabs::new();
        assert_ne!(SLAB_BYTES_LOADED % 40_000, 0, "a batch of 40,000 bytes straddles");
        run(&mut slabs, 40_000, 200, 7);
        assert_eq!(slabs.slab_bytes, SLAB_BYTES_LOADED);
    }

    #[test]
    fn a_slab_is_read_into_again_once_its_batches_are_gone() {
        let mut slabs = Slabs::new();
        run(&mut slabs, 16_000, 400, 10);
        let mut addresses = run(&mut slabs, 16_000, 2_000, 10);
        addresses.sort_unstable();
        let span = addresses.chunk_by(|a, b| b - a < SLAB_BYTES_LOADED).count();
        assert!(span <= 3, "32 MB went through {span} slabs");
        assert!(slabs.retired.len() <= 3);
    }

    #[test]
    fn batches_that_stay_alive_are_never_written_over() {
        // Every batch is kept: `run` would see other bytes in a batch only if its slab were reused too early.
        let mut slabs = Slabs::new();
        let (mut next, mut kept) = (0, Vec::new());
        for _ in 0..50 {
            read(&mut slabs, 1, &mut next, usize::MAX);
            let length = slabs.front().len();
            kept.push(slabs.front().split_to(length).freeze());
        }
        let all: Vec<u8> = kept.concat();
        assert!(all.iter().enumerate().all(|(at, &byte)| byte == at as u8));
    }

    #[test]
    fn small_batches_that_wait_long_do_not_hold_many_slabs() {
        let mut slabs = Slabs::new();
        let (mut next, mut expected) = (0, 0_u8);
        let mut waiting = Vec::new();
        for nth in 0..4_000 {
            while slabs.front().len() < 10_000 {
                read(&mut slabs, 10_000, &mut next, usize::MAX);
            }
            let batch = slabs.front().split_to(10_000).freeze();
            let batch = slabs.hand_over(batch);
            // One batch of each megabyte waits for ever.
            if nth % 100 == 0 {
                waiting.push((batch, expected));
            }
            expected = expected.wrapping_add((10_000 % 256) as u8);
            assert!(slabs.retired.len() <= HELD_MAX + 2);
        }
        for (batch, first) in waiting {
            let right = batch.iter().enumerate().all(|(at, &byte)| byte == first.wrapping_add(at as u8));
            assert!(right);
        }
    }

    #[test]
    fn slabs_grow_under_load_and_shrink_when_idle() {
        let mut slabs = Slabs::new();
        let mut next = 0;
        read(&mut slabs, 1, &mut next, 100);
        assert_eq!(slabs.front().capacity(), SLAB_BYTES_MIN);
        run(&mut slabs, 600_000, 40, 1);
        assert!(slabs.front_bytes >= 2_400_000, "four of the largest: {}", slabs.front_bytes);
        slabs.clear();
        slabs.trim();
        assert_eq!((slabs.front_bytes, slabs.retired.len()), (0, 0));
        read(&mut slabs, 1, &mut next, 100);
        assert_eq!(slabs.front().capacity(), SLAB_BYTES_MIN);
    }

    #[test]
    fn light_traffic_stays_in_one_small_slab() {
        let mut slabs = Slabs::new();
        let mut next = 0;
        for _ in 0..10_000 {
            read(&mut slabs, 100, &mut next, 100);
            drop(slabs.front().split_to(100).freeze());
        }
        assert_eq!((slabs.front_bytes, slabs.retired.len()), (SLAB_BYTES_MIN, 0));
    }

    #[test]
    fn a_claimed_length_allocates_by_what_arrives() {
        let mut slabs = Slabs::new();
        let (mut next, needed) = (0, 100_000_000);
        for _ in 0..40 {
            let arrived = slabs.front().len();
            read(&mut slabs, needed, &mut next, 300_000);
            assert!(slabs.front().capacity() <= SLAB_BYTES_MAX.max(4 * arrived));
        }
        assert_eq!(slabs.front().len(), 12_000_000);
    }
}
