//! Producing: from frozen batches to the slices of a Produce request, and from its response to one answer per batch.

mod answer;
mod envelope;

pub use answer::Awaited;
pub use envelope::{
    BODY_COPY_BYTES_MAX, Envelope, EnvelopeError, PRODUCE_VERSION_MAX, PRODUCE_VERSION_MIN, ProduceHead,
    encode_produce, produce_version,
};
