//! telereduce
pub mod clock;
pub mod config;
pub mod shm;
pub mod telemetry;
pub mod verbs;
