//! trtop: what people look at, the last step of the data's way.
//!
//! ```text
//! segments -> sampler (copies, differences) -> Frame -> feed -> ui (draws it)      trtop
//!          -> snapshot (the documented JSON) -> export                     trtop dump
//!                                       -> serve (as OpenMetrics)       trtop serve
//! Prometheus, which scraped that        -> fleet                        trtop fleet
//!          -> recording (their bytes, frame by frame)              trtop record
//!             -> as segments again, for all of the above           trtop replay, trtop export, trtop report
//!          -> inspect (state of each file)   -> ls, clean                  trtop ls, trtop clean
//! ```
//!
//! Sampling and drawing are apart, each in its thread: a view draws a [`frame::Frame`] and reads nothing else, and a frame is built from
//! copies, so nothing that a program or a damaged file does can stop a draw half way.

#![deny(unsafe_code)]

pub mod app;
pub mod clean;
pub mod cli;
pub mod columns;
pub mod convert;
pub mod csv;
pub mod doctor;
pub mod error;
pub mod export;
pub mod extra;
pub mod feed;
pub mod fleet;
pub mod frame;
pub mod help;
pub mod history;
pub mod inspect;
pub mod keys;
pub mod live;
pub mod ls;
pub mod past;
pub mod ranks;
pub mod record;
pub mod recording;
pub mod replay;
pub mod report;
pub mod rows;
pub mod run;
pub mod sampler;
pub mod serve;
pub mod settings;
pub mod stuck;
pub mod text_table;
pub mod ui;
pub mod units;
pub mod vnic;
