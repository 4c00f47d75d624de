//! Tests of kmirror against the embedded broker and real Apache Kafka.
