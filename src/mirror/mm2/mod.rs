//! MirrorMaker's internal topics, as its own readers and writers see them.
//!
//! `formats` knows the bytes of offset syncs, checkpoints and heartbeats, `sync_store` translates offsets by the syncs as
//! MirrorMaker does, `topic` makes, writes and reads such a topic, `settings` are the keys of all of it.

pub mod formats;
pub mod settings;
pub mod sync_store;
pub(super) mod topic;
