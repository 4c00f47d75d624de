//! Fetching: from the bytes of a Fetch response to whole log entries, and the lane that keeps a broker busy with it.
//!
//! What decides is [`FetchWalker`] (what the bytes are) and the session (what to ask for next); the lane acts.

mod cursor;
mod lane;
#[cfg(test)]
mod lane_tests;
mod partitions;
mod session;
#[cfg(test)]
mod session_tests;
mod walker;
#[cfg(test)]
mod walker_tests;

pub use lane::{FetchLane, spawn_fetch_lane};
pub use session::{FetchSession, HeadVerdict, Patience, Records};
pub use walker::{
    CutEntry, FETCH_VERSION_MAX, FETCH_VERSION_MIN, FetchHead, FetchWalker, FrameError, PartitionEnd,
    PartitionHead, Step, TopicName, WalkLimits,
};
