//! Recordings: what `trtop record` writes, and `replay`, `export --from` and `report` read.
//!
//! ```text
//! record:  segments -> live (copies their bytes) -> codec (differences) -> file (frames, each with its checksum)
//! replay:  file (index of its frames) -> player (codec) -> stage (files like the segments) -> sampler, as if live
//! export:                                               -> stage -> snapshot (the documented JSON) -> JSON, CSV, ...
//! ```
//!
//! A recording holds the segments themselves, so that whatever reads a segment reads a recording, too, with the same
//! numbers; and, as a segment, it is read by the trtop of its layout version only. Exports last.

pub mod codec;
pub mod columns;
pub mod file;
pub mod live;
pub mod player;
pub mod predict;
pub mod snapshots;
pub mod stage;
pub mod writer;
