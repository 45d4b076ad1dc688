//! `trtop fleet`: the hosts, flows and alerts of a cluster, as a Prometheus knows them that scrapes each host's `trtop serve`.
//!
//! ```text
//! client (HTTP API) -> model (hosts, flows, alerts) -> matrix -> text    once, for scripts
//!                                                             -> screen  live
//! ```

pub mod client;
pub mod live;
pub mod matrix;
pub mod model;
pub mod screen;
pub mod text;

use crate::cli::FleetArgs;
use crate::error::{Failure, Outcome};
use client::{Client, PATIENCE};
use model::Fleet;
use std::time::Instant;

/// Shows the fleet, once or live.
///
/// # Errors
/// Prometheus cannot be asked, or does not know what is needed.
pub fn run(o: &FleetArgs) -> Outcome {
    let client = Client::new(&o.prometheus, o.ca.as_deref())?;
    match o.format {
        None => live::run(client, o.every),
        Some(format) => {
            let fleet = Fleet::ask(&client, Instant::now() + PATIENCE).map_err(Failure::new)?;
            crate::error::print(&text::render(&fleet, format))
        }
    }
}
