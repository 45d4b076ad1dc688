//! Look-ups of the hot path: lock-free reads, writers one at a time. Found by pointer ([`PtrMap`]: contexts, CQs, SRQs)
//! or by QP number ([`QpnTable`]). What is found there lives until it is [`gone`].

#[cfg(not(loom))]
pub mod gone;
mod ptr_map;
mod qpn;

pub use ptr_map::PtrMap;
pub use qpn::QpnTable;
