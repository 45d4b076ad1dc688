//! The side channel: how two processes' shims find each other, prove who they are, and agree on lanes.
//!
//! ```text
//! app QP reaches RTR -> claim      rendezvous  a note for the side channel's thread; nobody waits
//!                    -> dial       hub         IP(peer's GID), well-known port; over a connection that is there, if any
//!                    -> handshake  session     greetings, proofs of the shared secret
//!                    -> claim      wire        "my QP is connected to yours": accepted, refused, or sent on to the owner
//!                    -> Paired     api         the shim hears it on both sides, and offers lanes over the same link
//! ```
//!
//! It knows nothing of verbs. All but [`rendezvous`] and [`net`] is sans-IO: bytes and the time in, bytes, deadlines and
//! events out. Whatever does not work ends in one of the [`reason`]s, and the QP stays single-path.
//!
//! Every wait has an end ([`session::HANDSHAKE_NS`], [`session::ANSWER_NS`], [`pursuit::RETRY_NS`]), and everything held for
//! others has a bound ([`api::Limits`], [`session::MAX_CLAIMS`], [`session::MAX_OUTGOING_BYTES`]).

pub mod api;
pub mod field;
pub mod gid;
pub mod hub;
pub mod net;
pub mod pursuit;
pub mod reason;
pub mod rendezvous;
pub mod secret;
pub mod session;
pub mod settings;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod testing;
pub mod wire;

pub use reason::Reason;
