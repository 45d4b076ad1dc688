//! Telemetry: what is in flight on each queue, and what became of it.
pub mod histogram;
