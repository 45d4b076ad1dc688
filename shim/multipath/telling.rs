//! Why a QP has one path, and what its engine did: told to its record in the segment, which viewers read.

use telereduce::multipath::engine::Engine;
use telereduce::multipath::single::Single;
use telereduce::telemetry::multipath::{Multipath, say};
use telereduce::telemetry::qp::Qp;

/// What is told of a QP that has an engine. Under the engine's lock.
pub struct Telling {
    record: Option<Multipath>,
    /// Why there are no lanes, while there are none; while there are some: why there will be none when they all break.
    why: Single,
}

impl Telling {
    /// Of a QP that was just created.
    pub fn new(qp: &Qp) -> Telling {
        Telling { record: qp.multipath.map(Multipath::new), why: Single::Unconnected }
    }

    /// Another reason for having no lanes holds from now on.
    pub fn because(&mut self, why: Single) {
        self.why = why;
    }

    /// The reason for having no lanes.
    pub fn why(&self) -> Single {
        self.why
    }

    /// So many lanes could not be made, here or at the peer.
    pub fn lanes_failed(&mut self, lanes: u32, here: bool) {
        self.why = if here { Single::NoLanesHere } else { Single::NoLanesThere };
        if let Some(record) = &mut self.record {
            (0..lanes).for_each(|_| record.lane_failed(here));
        }
    }

    /// The QP is gone, and its record soon another's: nothing is told any more.
    pub fn end(&mut self) {
        self.record = None;
    }

    /// Tells how it stands.
    pub fn tell(&mut self, engine: &Engine) {
        let lanes = engine.lanes_up();
        let single = if lanes == 0 { Some(self.why) } else { engine.last_large().and_then(Single::of_pass) };
        if lanes > 0 {
            self.why = Single::LanesBroke;
        }
        if let Some(record) = &mut self.record {
            record.tell(engine.stats(), lanes, single);
        }
    }
}

/// Why a QP that has no engine has one path.
pub fn tell_without_engine(qp: &Qp, why: Single) {
    if let Some(record) = qp.multipath {
        say(record, 0, Some(why));
    }
}
