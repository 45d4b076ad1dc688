//! Chance that can be repeated: the n-th draw of a key is always the same.

/// Dice for one flow of packets.
#[derive(Clone, Debug)]
pub struct Draws {
    state: u64,
}

impl Draws {
    /// The dice of a flow.
    pub fn new(seed: u64, flow: u64) -> Draws {
        let mut d = Draws { state: seed ^ flow.rotate_left(32) };
        d.number();
        d
    }

    /// Any number (the generator splitmix64).
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0, if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, probability: f64) -> bool {
        // 53 bits, as many as an f64 holds.
        ((self.number() >> 11) as f64) < probability * (1u64 << 53) as f64
    }
}
