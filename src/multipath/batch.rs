//! A batch of `ibv_wr_*` on a QP that may be split: which of its WRs go to the provider at once, and what must be known of
//! the others until the batch is complete.
//!
//! WRs pass as long as the engine holds nothing, there is room, and they are short. What would be split says how long it is
//! only after it began, so it [waits](WrBatch::wait) for that. From the first WR on that cannot pass, all are
//! [kept](WrBatch::keep), since they must stay behind it.

use super::wr::{Fields, INLINE, Sge, WrRef};

/// A WR that began and has not said how long it is: a READ or WRITE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Application's id.
    pub wr_id: u64,
    /// First byte at the target.
    pub remote_addr: u64,
    /// `enum ibv_wr_opcode`.
    pub opcode: u32,
    /// `enum ibv_send_flags`, or-ed.
    pub flags: u32,
    /// Remote key.
    pub rkey: u32,
    /// Immediate data as it travels.
    pub imm: u32,
}

impl Waiting {
    /// The same in the engine's terms.
    pub fn fields(self) -> Fields {
        let Waiting { wr_id, remote_addr, opcode, flags, rkey, imm } = self;
        Fields { wr_id, opcode, flags, remote_addr, rkey, imm, ..Fields::default() }
    }
}

/// A WR that is kept; where its data is.
#[derive(Clone, Copy, Debug)]
struct Kept {
    fields: Fields,
    sges: (usize, usize),
    bytes: (usize, usize),
}

/// A batch. There is no lock: who builds it has the queue to itself.
#[derive(Debug)]
pub struct WrBatch {
    /// WRs that may still pass. More than none only while the engine holds nothing and has room for as many.
    quota: u32,
    /// WRs of this batch that passed.
    passed: u32,
    keeps: bool,
    /// One can never be posted, or there is no memory for it.
    refused: bool,
    waiting: Option<Waiting>,
    kept: Vec<Kept>,
    sges: Vec<Sge>,
    bytes: Vec<u8>,
    max_sge: usize,
    max_inline_bytes: usize,
}

impl WrBatch {
    /// An empty one; WRs have at most that long lists and that much inline data.
    pub fn new(max_sge: u32, max_inline_bytes: u32) -> WrBatch {
        WrBatch {
            quota: 0,
            passed: 0,
            keeps: false,
            refused: false,
            waiting: None,
            kept: Vec::new(),
            sges: Vec::new(),
            bytes: Vec::new(),
            max_sge: max_sge as usize,
            max_inline_bytes: max_inline_bytes as usize,
        }
    }

    /// `ibv_wr_start`.
    #[inline(always)]
    pub fn start(&mut self) {
        (self.passed, self.keeps, self.refused, self.waiting) = (0, false, false, None);
        if !self.kept.is_empty() {
            self.kept.clear();
            self.sges.clear();
            self.bytes.clear();
        }
    }

    /// So many WRs may pass from now on, if the engine holds nothing.
    #[inline(always)]
    pub fn set_quota(&mut self, wrs: u32) {
        self.quota = wrs;
    }

    /// WRs that may still pass.
    #[inline(always)]
    pub fn quota(&self) -> u32 {
        self.quota
    }

    /// A WR begins. True: it passes, or [waits](WrBatch::wait). False: it is to be [kept](WrBatch::keep).
    #[inline(always)]
    pub fn passes(&mut self) -> bool {
        if self.keeps || self.quota == 0 {
            return false;
        }
        self.quota -= 1;
        self.passed += 1;
        true
    }

    /// The newest WR, which passes, is not to begin before its length is known.
    #[inline(always)]
    pub fn wait(&mut self, wr: Waiting) {
        self.waiting = Some(wr);
    }

    /// The WR that waits is to begin at the provider now: it is short, or has no data.
    #[inline(always)]
    pub fn take_waiting(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }

    /// Whether a WR waits.
    #[inline(always)]
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The WR that waits is too long to pass.
    pub fn keep_waiting(&mut self) {
        if let Some(wr) = self.waiting.take() {
            self.quota += 1;
            self.passed -= 1;
            self.keep(wr.fields());
        }
    }

    /// A WR begins that is kept, and so will all be that follow.
    pub fn keep(&mut self, fields: Fields) {
        self.keeps = true;
        // Data in the batch is data in the WR, whatever the flags said.
        let fields = Fields { flags: fields.flags & !INLINE, ..fields };
        let (s, b) = (self.sges.len(), self.bytes.len());
        if self.kept.try_reserve(1).is_err() {
            self.refused = true;
            return;
        }
        self.kept.push(Kept { fields, sges: (s, s), bytes: (b, b) });
    }

    /// Whether the newest WR is kept.
    #[inline(always)]
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// The newest WR, which is kept, has this list.
    pub fn set_sges(&mut self, list: &[Sge]) {
        let Some(wr) = self.kept.last_mut() else { return };
        if list.len() > self.max_sge || self.sges.try_reserve(list.len()).is_err() {
            self.refused = true;
            return;
        }
        // What is set last counts.
        self.sges.truncate(wr.sges.0);
        self.bytes.truncate(wr.bytes.0);
        self.sges.extend_from_slice(list);
        (wr.sges.1, wr.bytes.1) = (self.sges.len(), wr.bytes.0);
        wr.fields.flags &= !INLINE;
    }

    /// The newest WR, which is kept, has this data, in pieces.
    pub fn set_inline<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        let Some(wr) = self.kept.last_mut() else { return };
        self.sges.truncate(wr.sges.0);
        self.bytes.truncate(wr.bytes.0);
        for piece in pieces {
            let has = self.bytes.len() - wr.bytes.0;
            if piece.len() > self.max_inline_bytes - has || self.bytes.try_reserve(piece.len()).is_err() {
                self.refused = true;
                return;
            }
            self.bytes.extend_from_slice(piece);
        }
        (wr.sges.1, wr.bytes.1) = (wr.sges.0, self.bytes.len());
        if wr.bytes.1 > wr.bytes.0 {
            wr.fields.flags |= INLINE;
        }
    }

    /// Number of WRs that passed.
    #[inline(always)]
    pub fn passed(&self) -> usize {
        self.passed as usize
    }

    /// Whether the batch can never be posted.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// The WRs that are kept, in order.
    pub fn kept(&self) -> impl ExactSizeIterator<Item = WrRef<'_>> {
        self.kept.iter().map(|k| WrRef {
            fields: k.fields,
            sges: &self.sges[k.sges.0..k.sges.1],
            inline: &self.bytes[k.bytes.0..k.bytes.1],
        })
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
