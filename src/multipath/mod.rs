//! Multi-path: large work requests of one RC QP travel as pieces over several QPs, its *lanes*, and the application
//! sees what it would see of one QP.
//!
//! ```text
//! ibv_post_send -> plan      pass, or cut into bodies and a tail
//!               -> engine    hold what must wait; bodies to lanes (schedule); then the tail on the application's QP
//! ibv_wr_*      -> batch     which WRs go to the provider at once, and what the engine is to get when all are there
//! ibv_poll_cq   -> engine    which completions are the application's, and what they must say
//!               -> lengths   how long a message was whose tail alone the receiver's completion tells of
//! lane's poll   -> engine    which pieces are done, to be sent anew, or hopeless
//! ```
//!
//! [`engine`] is one QP's state machine. It is sans-IO: [`driver::Driver`] is what it asks for, its methods are what it
//! is told; it holds no handle, clock, socket or thread. The shim is one driver, the simulation in `sim/` another, which
//! checks the order contract at each step against what a plain RC QP would do.

pub mod batch;
pub mod driver;
pub mod engine;
mod guard;
pub mod lengths;
pub mod overlap;
pub mod pace;
pub mod paths;
pub mod patience;
pub mod plan;
pub mod schedule;
#[cfg(test)]
mod sim;
pub mod single;
pub mod wr;
