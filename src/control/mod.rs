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
//! What the shim does:
//!
//! ```text
//! first device         Settings::read(env, RLIMIT_NOFILE); Rendezvous::start(settings, qps, directory, handler)
//! every device         for each GID: listen(gid) -> Ports; Ports::own into the segment, for other processes' Directory
//! QP reaches RTR, RTS  claim(pair, psns)                              never waits; true: an event will come of it
//! handler              Paired -> offer lanes: send(link, LaneOffer); Message -> the engine; Lost -> drop lanes and pairs
//! QP leaves, destroy   send(link, QpGoing{pair, epoch from 1}), wait for its QpQuiet or Lost, then forget(pair)
//! QpGoing received     stop what is on its way to that QP, then send(link, QpQuiet)
//! child after fork     forget_in_child()
//! exit                 close(wait)
//! ```
//!
//! It knows nothing of verbs. All but [`rendezvous`], [`net`] and [`directory`] is sans-IO: bytes and the time in, bytes, deadlines and
//! events out. Whatever does not work ends in one of the [`reason`]s, and the QP stays single-path.
//!
//! Every wait has an end ([`session::HANDSHAKE_NS`], [`session::ANSWER_NS`], [`pursuit::RETRY_NS`]), and everything held for
//! others has a bound ([`api::Limits`], [`session::MAX_CLAIMS`], [`session::MAX_OUTGOING_BYTES`]).

pub mod api;
pub mod directory;
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
