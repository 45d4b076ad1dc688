//! What the tests of the preloaded library share: running a program natively or under it ([`run`]), the truth that the
//! programs of `tests/programs` print ([`truth`]), and comparing it with a snapshot ([`compare`]).

pub mod compare;
pub mod run;
pub mod truth;

pub use compare::Counts;
pub use run::{Dir, Live, Outcome, Run};
pub use truth::Truth;
