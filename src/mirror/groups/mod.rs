//! Consumer groups: where they go on on the target (checkpoints), and their offsets there (`sync.group.offsets`).
//!
//! `select` says which groups, `book` which checkpoints are news, `sync` which offsets may be committed; all three are
//! pure. `task` acts: it asks both clusters in turns and the flow for translations, and runs only while the flow may be
//! written. Offsets are translated by the flow's own map wherever it reaches, exactly; before that by the offset syncs that
//! an earlier process or MirrorMaker left, by MirrorMaker's rule; never beyond what the target holds.

mod book;
mod round;
pub(super) mod select;
mod sync;
mod target;
mod task;

pub(super) use task::{Groups, TranslateRequest};
