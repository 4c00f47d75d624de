//! The embedded Kafka-compatible broker: in memory, for the demo, tests, benches and the simulation.

pub mod log;
