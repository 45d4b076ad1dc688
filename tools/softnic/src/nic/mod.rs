//! The NIC: what each process has of it. [`host`] is the process, [`peer`] another one; [`sender`] drives the requester,
//! [`deliver`] the responder of whoever is sent to; [`engine`] does what is due when nobody calls.

pub mod bounce;
pub mod clock;
pub mod copy;
pub mod cq;
pub mod deliver;
pub mod engine;
pub mod events;
pub mod host;
pub mod keys;
pub mod peer;
pub mod qp;
pub mod receives;
pub mod sender;
