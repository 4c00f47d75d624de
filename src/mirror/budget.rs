//! One ceiling for the bytes of batches that are alive in the process, over all flows.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget: charged as batches arrive, released when they are acknowledged or dropped.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(limit_bytes: usize) -> Budget {
        Budget { limit_bytes, used_bytes: AtomicUsize::new(0) }
    }

    /// Takes bytes; what has arrived is there, so this cannot be refused.
    pub fn charge(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives bytes back.
    pub fn release(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether nothing more should be read.
    pub fn is_full(&self) -> bool {
        self.used_bytes() >= self.limit_bytes
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The ceiling.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }
}
