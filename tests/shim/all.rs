//! The preloaded library over the software device (`tools/nullverbs`), with the programs of `tests/programs`: one file
//! per promise. `make test` builds all of these before; a test that misses one says so.

mod datagrams;
mod details;
mod doctor;
mod exact;
mod exact_special;
mod exact_surface;
mod extended_paths;
mod fork;
mod identity;
mod inert;
mod lane_events;
mod layouts;
mod left_behind;
mod lifetime;
mod live;
mod lookup;
mod many;
mod model;
mod nccl;
mod no_segment;
mod off;
mod one_path;
mod panics;
mod peers;
mod reconnect;
mod rights;
mod settings;
mod snapshot_file;
mod soak;
mod stalls;
mod stopped_peer;
mod sudden;
mod symbols;
mod transfers;
