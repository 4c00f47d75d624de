//! MirrorMaker's internal topics, as its own readers and writers see them.
//!
//! `formats` knows the bytes of offset syncs, checkpoints and heartbeats, `sync_store` translates offsets by the syncs as
//! MirrorMaker does. Where the topics lie and who writes them is for others.

pub mod formats;
pub mod sync_store;
