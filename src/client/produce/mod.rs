//! Producing: from frozen batches to the slices of a Produce request, from its response to one answer per batch, and
//! the lane that keeps a broker busy with it.

mod answer;
mod envelope;
mod lane;
#[cfg(test)]
mod lane_tests;
mod permit;
mod pipeline;
mod wire;

pub use answer::Awaited;
pub use envelope::{
    BODY_COPY_BYTES_MAX, Envelope, EnvelopeError, PRODUCE_VERSION_MAX, PRODUCE_VERSION_MIN, ProduceHead,
    encode_produce, produce_version,
};
pub use lane::{ProduceLane, spawn_produce_lane};
pub use permit::{Grantor, Permit};
