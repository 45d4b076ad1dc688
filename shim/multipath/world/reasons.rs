//! What events say about why QPs have one path.

use super::World;
use telereduce::control::Reason;
use telereduce::control::api::LinkId;
use telereduce::control::wire::QpPair;

impl World {
    /// This side did not find the peer's shim. The peer may have found this one.
    pub(super) fn not_found(&self, pair: &QpPair, reason: Reason) {
        if !self.pairs.contains_key(pair)
            && let Some(flow) = self.flow(pair)
        {
            flow.because(reason.into());
        }
    }

    /// So many lanes between two pools could not be made, here or there.
    pub(super) fn lanes_failed(&self, link: LinkId, pools: (u32, u32), lanes: u32, here: bool) {
        let of_these = self.pairs.iter().filter(|(_, at)| **at == (link, pools));
        of_these.filter_map(|(pair, _)| self.flow(pair)).for_each(|flow| flow.lanes_failed(lanes, here));
    }
}
