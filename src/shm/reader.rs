//! Reader's side: copies a segment out with `pread`, trusting nothing in it.
//!
//! Nothing is mapped, so a file that is cut short, replaced or overwritten while it is read gives an error or odd
//! numbers, never a signal. Each refresh copies the hot regions; per-opcode, per-status and latency details are copied
//! only when asked for.

mod image;

pub use image::{Extent, MAX_IMAGE_BYTES};

use super::layout::{
    ABI_VERSION, AddressRecord, ContextRecord, CqRecord, EventKind, HEADER_BYTES, Header, Kind, LabelRecord,
    LaneRecord, MAGIC, MAX_REGIONS, MultipathRecord, PeerRecord, PortRecord, QpDetail, QpRecord, RING_EVENTS,
    RingRecord, Shared, SrqRecord, StallRecord,
};
use core::mem::size_of;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// No segment is larger than this: about two million QPs.
const MAX_FILE_BYTES: u64 = 8 << 30;

/// A larger file has all its memory: segments do.
const MAX_SPARSE_BYTES: u64 = 64 << 20;

/// QPs that [`Reader::show_qps`] copies at a time.
const QPS_AT_ONCE: usize = 128;

/// What each refresh copies.
const HOT: [Kind; 10] = [
    Kind::Context,
    Kind::Port,
    Kind::Peer,
    Kind::Cq,
    Kind::Srq,
    Kind::Lane,
    Kind::Qp,
    Kind::Multipath,
    Kind::Label,
    Kind::Stall,
];

/// Why a segment cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The operating system's answer.
    Io(std::io::Error),
    /// The writer has not finished creating it.
    Unfinished,
    /// It was written by another version of telereduce.
    Version(u32),
    /// It is not what it says: what and where.
    Invalid(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(e) => write!(f, "{e}"),
            ReadError::Unfinished => {
                write!(f, "not a complete segment (no magic number at its start)")
            }
            ReadError::Version(v) => write!(
                f,
                "segment layout version {v}, this trtop reads version {ABI_VERSION}: use the trtop that came with the \
                 library that the program was started with"
            ),
            ReadError::Invalid(why) => write!(f, "damaged: {why}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<std::io::Error> for ReadError {
    fn from(e: std::io::Error) -> Self {
        ReadError::Io(e)
    }
}

/// A copy of records, in memory of our own.
pub struct Records<T: Shared>(Vec<T>);

impl<T: Shared> Default for Records<T> {
    fn default() -> Self {
        Records(Vec::new())
    }
}

impl<T: Shared> core::ops::Deref for Records<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Shared> Records<T> {
    /// Makes room for `n` records, new ones all zero.
    fn resize(&mut self, n: usize) {
        // SAFETY: `Shared` promises that all-zero bytes are a valid value.
        self.0.resize_with(n, || unsafe { core::mem::zeroed() });
    }

    fn bytes_mut(&mut self, from: usize, count: usize) -> &mut [u8] {
        let part = &mut self.0[from..from + count];
        // SAFETY: the records are initialised, exclusively borrowed, have no padding that matters, and `Shared` promises
        // that every bit pattern of their atomics is valid.
        unsafe { core::slice::from_raw_parts_mut(part.as_mut_ptr().cast::<u8>(), size_of_val(part)) }
    }
}

#[derive(Clone, Copy)]
struct Span {
    kind: Kind,
    count: usize,
    record_bytes: usize,
    first: usize,
    offset: u64,
}

/// An open segment and the last copy of it.
pub struct Reader {
    file: File,
    header: Records<Header>,
    spans: Vec<Span>,
    /// Device contexts by index.
    pub contexts: Records<ContextRecord>,
    /// Ports by index.
    pub ports: Records<PortRecord>,
    /// Peers by index.
    pub peers: Records<PeerRecord>,
    /// CQs by index.
    pub cqs: Records<CqRecord>,
    /// SRQs by index.
    pub srqs: Records<SrqRecord>,
    /// Lanes by index.
    pub lanes: Records<LaneRecord>,
    /// Addresses of the side channel; filled by [`Reader::refresh_addresses`].
    pub addresses: Records<AddressRecord>,
    /// QPs by index.
    pub qps: Records<QpRecord>,
    /// What multi-path does to the QPs, same index; empty where it is off.
    pub multipath: Records<MultipathRecord>,
    /// Whom the QPs work for, same index.
    pub labels: Records<LabelRecord>,
    /// How long the QPs' sends wait, same index; empty where that is not watched.
    pub stalls: Records<StallRecord>,
    /// Details of the QPs, same index; filled by [`Reader::refresh_details`].
    pub details: Records<QpDetail>,
    rings: Records<RingRecord>,
    /// Each ring's head after the copy: what was overwritten meanwhile is not to be trusted.
    heads_after: Vec<u64>,
}

impl Reader {
    /// Opens and checks the segment at `path`, and copies it once.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        Self::from_file(super::discover::open(path)?)
    }

    /// As [`Reader::open`], for a file that is open already.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn from_file(file: File) -> Result<Reader, ReadError> {
        let mut r = Reader::unread(file);
        r.refresh()?;
        Ok(r)
    }

    /// A reader that has copied nothing yet: [`Reader::refresh_header`] comes first.
    pub fn unread(file: File) -> Reader {
        let mut r = Reader {
            file,
            header: Records::default(),
            spans: Vec::new(),
            contexts: Records::default(),
            ports: Records::default(),
            peers: Records::default(),
            cqs: Records::default(),
            srqs: Records::default(),
            lanes: Records::default(),
            addresses: Records::default(),
            qps: Records::default(),
            multipath: Records::default(),
            labels: Records::default(),
            stalls: Records::default(),
            details: Records::default(),
            rings: Records::default(),
            heads_after: Vec::new(),
        };
        r.header.resize(1);
        r
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The file, which stays open.
    pub fn into_file(self) -> File {
        self.file
    }

    /// The header as last copied.
    pub fn header(&self) -> &Header {
        &self.header[0]
    }

    /// Whether the process that writes the segment is alive.
    pub fn is_alive(&self) -> bool {
        super::discover::is_held(&self.file)
    }

    /// Copies header and hot regions anew. Sums over QPs and what retired QPs left are consistent.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn refresh(&mut self) -> Result<(), ReadError> {
        for _ in 0..8 {
            let before = self.read_header()?;
            self.read_regions(&HOT)?;
            let after = self.read_header()?;
            if before == after && before.is_multiple_of(2) {
                return Ok(());
            }
        }
        // The writer retires QPs faster than we copy: the newest copy is as good as any.
        Ok(())
    }

    /// Copies and checks the header alone.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn refresh_header(&mut self) -> Result<(), ReadError> {
        self.read_header().map(drop)
    }

    /// Copies the addresses of the side channel.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn refresh_addresses(&mut self) -> Result<(), ReadError> {
        self.read_regions(&[Kind::Address])
    }

    /// Shows the QPs of `indices` with their index, as far as there are such; copies a few at a time and keeps none.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn show_qps(&self, indices: Range<usize>, mut show: impl FnMut(usize, &QpRecord)) -> Result<(), ReadError> {
        let mut part = Records::default();
        for s in self.spans.iter().filter(|s| s.kind == Kind::Qp) {
            let (mut next, end) = (indices.start.max(s.first), indices.end.min(s.first + s.count));
            while next < end {
                let count = QPS_AT_ONCE.min(end - next);
                let offset = s.offset + ((next - s.first) * s.record_bytes) as u64;
                fill(&self.file, &[Span { count, first: 0, offset, ..*s }], &mut part)?;
                part.iter().zip(next..).for_each(|(q, i)| show(i, q));
                next += count;
            }
        }
        Ok(())
    }

    /// Copies per-opcode, per-status and latency counters of all QPs.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn refresh_details(&mut self) -> Result<(), ReadError> {
        self.read_regions(&[Kind::QpDetail])
    }

    /// Copies the event rings.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn refresh_events(&mut self) -> Result<(), ReadError> {
        self.read_regions(&[Kind::Ring])?;
        self.heads_after.clear();
        for s in self.spans.iter().filter(|s| s.kind == Kind::Ring) {
            for i in 0..s.count {
                let mut head = [0; 8];
                self.file.read_exact_at(&mut head, s.offset + (i * size_of::<RingRecord>()) as u64)?;
                self.heads_after.push(u64::from_le_bytes(head));
            }
        }
        Ok(())
    }

    /// Events ever written to all rings, also those that were overwritten since.
    pub fn events_written(&self) -> u64 {
        self.heads_after.iter().fold(0, |sum, h| sum.wrapping_add(*h))
    }

    fn read_header(&mut self) -> Result<u64, ReadError> {
        let meta = self.file.metadata()?;
        let size = meta.size();
        if size < HEADER_BYTES as u64 {
            return Err(if size == 0 {
                ReadError::Unfinished
            } else {
                ReadError::Invalid(format!("{size} bytes long, the header alone has {HEADER_BYTES}"))
            });
        }
        // Else anybody's file could make a reader take all memory.
        if size > MAX_FILE_BYTES || size > MAX_SPARSE_BYTES && meta.blocks() * 512 < size {
            return Err(ReadError::Invalid(format!("{size} bytes long, {} of them there", meta.blocks() * 512)));
        }
        self.file.read_exact_at(self.header.bytes_mut(0, 1), 0)?;
        let h = &self.header[0];
        if h.magic.load(Relaxed) != MAGIC {
            return Err(ReadError::Unfinished);
        }
        let version = h.version.load(Relaxed);
        if version != ABI_VERSION {
            return Err(ReadError::Version(version));
        }
        // SYNC POINT: pairs with the writer's Release of region_count.
        let regions = h.region_count.load(Acquire) as usize;
        if regions > MAX_REGIONS || h.header_bytes.load(Relaxed) as usize != HEADER_BYTES {
            return Err(ReadError::Invalid(format!("{regions} regions, at most {MAX_REGIONS} are possible")));
        }
        let spans = (0..regions).map(|i| self.span(i, size)).collect::<Result<Vec<_>, _>>()?;
        // Regions lie side by side: together they cannot be larger than the file, nor make a reader ask for more memory.
        let bytes = spans.iter().map(|s| (s.count * s.record_bytes) as u64).sum::<u64>();
        if bytes > size {
            return Err(ReadError::Invalid(format!("regions of {bytes} bytes in a file of {size}: they overlap")));
        }
        self.spans = spans;
        for kind in Kind::ALL.map(|(k, _)| k) {
            self.check_indices(kind)?;
        }
        Ok(self.header[0].fold_seq.load(Relaxed))
    }

    fn span(&self, i: usize, size: u64) -> Result<Span, ReadError> {
        let r = &self.header[0].regions[i];
        let number = r.kind.load(Relaxed);
        let invalid = |why: String| Err(ReadError::Invalid(format!("region {i}: {why}")));
        let Some((kind, bytes)) = Kind::from_u32(number) else {
            return invalid(format!("unknown kind {number}"));
        };
        let record_bytes = r.record_bytes.load(Relaxed) as usize;
        if record_bytes != bytes {
            return invalid(format!("records of {record_bytes} bytes, {kind:?} has {bytes}"));
        }
        let count = r.count.load(Relaxed) as usize;
        let offset = r.offset.load(Relaxed);
        let end = (count as u64).checked_mul(bytes as u64).and_then(|n| n.checked_add(offset));
        match end {
            Some(end) if end <= size && end <= MAX_FILE_BYTES && offset >= HEADER_BYTES as u64 => {
                Ok(Span { kind, count, record_bytes, first: r.first_index.load(Relaxed) as usize, offset })
            }
            _ => invalid(format!("{count} records at byte {offset} do not fit a file of {size} bytes")),
        }
    }

    /// Regions of a kind must follow each other without gap or overlap.
    fn check_indices(&self, kind: Kind) -> Result<(), ReadError> {
        let mut next = 0;
        for s in self.spans.iter().filter(|s| s.kind == kind) {
            if s.first != next {
                return Err(ReadError::Invalid(format!("{kind:?} region starts at {} instead of {next}", s.first)));
            }
            next += s.count;
        }
        Ok(())
    }

    fn read_regions(&mut self, kinds: &[Kind]) -> Result<(), ReadError> {
        for &kind in kinds {
            let spans: Vec<Span> = self.spans.iter().copied().filter(|s| s.kind == kind).collect();
            let f = &self.file;
            match kind {
                Kind::Context => fill(f, &spans, &mut self.contexts),
                Kind::Port => fill(f, &spans, &mut self.ports),
                Kind::Peer => fill(f, &spans, &mut self.peers),
                Kind::Cq => fill(f, &spans, &mut self.cqs),
                Kind::Srq => fill(f, &spans, &mut self.srqs),
                Kind::Lane => fill(f, &spans, &mut self.lanes),
                Kind::Address => fill(f, &spans, &mut self.addresses),
                Kind::Qp => fill(f, &spans, &mut self.qps),
                Kind::Multipath => fill(f, &spans, &mut self.multipath),
                Kind::Label => fill(f, &spans, &mut self.labels),
                Kind::Stall => fill(f, &spans, &mut self.stalls),
                Kind::QpDetail => fill(f, &spans, &mut self.details),
                Kind::Ring => fill(f, &spans, &mut self.rings),
            }?;
        }
        Ok(())
    }

    /// The events now in the rings, oldest first by end time; incomplete or overwritten ones are left out.
    pub fn events(&self) -> Vec<Event> {
        let mut all: Vec<Event> =
            self.rings.iter().zip(&self.heads_after).flat_map(|(ring, after)| ring_events(ring, *after)).collect();
        all.sort_by_key(|e| e.end_ns);
        all
    }
}

fn fill<T: Shared>(file: &File, spans: &[Span], into: &mut Records<T>) -> Result<(), ReadError> {
    into.resize(spans.iter().map(|s| s.count).sum());
    for s in spans {
        file.read_exact_at(into.bytes_mut(s.first, s.count), s.offset).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => ReadError::Invalid(format!("cut short inside a {:?} region", s.kind)),
            _ => ReadError::Io(e),
        })?;
    }
    Ok(())
}

/// One completion of a signaled send, or a stall, as read from a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is.
    pub kind: EventKind,
    /// CLOCK_REALTIME at the poll, or when the watch looked, ns.
    pub end_ns: u64,
    /// Bytes retired by the completion.
    pub bytes: u64,
    /// WRs outstanding on the QP after it.
    pub wr_outstanding: u64,
    /// Bytes outstanding on the QP after it.
    pub bytes_outstanding: u64,
    /// Post to poll, ns, if sampled.
    pub latency_ns: Option<u64>,
    /// Of a stall: for how long nothing completed, ns.
    pub waited_ns: Option<u64>,
    /// Of a failure: its vendor_err.
    pub vendor_err: Option<u32>,
    /// Index of the QP's record.
    pub qp_index: u32,
    /// The QP's number.
    pub qp_num: u32,
    /// Index of the peer's record.
    pub peer_index: u32,
    /// Index of the port's record.
    pub port_index: u32,
    /// `enum ibv_wc_status`.
    pub status: u8,
}

fn ring_events(ring: &RingRecord, head_after: u64) -> Vec<Event> {
    let head = ring.head.load(Acquire);
    // Event number `head_after` may be half written, over the one that stood there before.
    let first = head.max(head_after).saturating_sub(RING_EVENTS as u64 - 1);
    (first..head)
        .filter_map(|i| {
            let e = &ring.events[(i % RING_EVENTS as u64) as usize];
            if e.seq.load(Acquire) != i.wrapping_add(1).wrapping_mul(2) {
                return None;
            }
            let (qp, place) = (e.qp.load(Relaxed), e.place.load(Relaxed));
            let (kind, status) = (EventKind::of(place as u8)?, (place >> 8) as u8);
            let time = e.latency_ns.load(Relaxed);
            let completed = kind == EventKind::Completion;
            let port16 = (place >> 16) as u16;
            Some(Event {
                kind,
                end_ns: e.end_ns.load(Relaxed),
                bytes: e.bytes.load(Relaxed),
                wr_outstanding: e.wr_outstanding.load(Relaxed),
                bytes_outstanding: e.bytes_outstanding.load(Relaxed),
                latency_ns: (completed && status == 0 && time > 0).then_some(time),
                waited_ns: (!completed).then_some(time),
                vendor_err: (completed && status != 0).then_some(time as u32),
                qp_index: (qp >> 32) as u32,
                qp_num: qp as u32,
                peer_index: (place >> 32) as u32,
                port_index: if port16 == u16::MAX { super::layout::NONE } else { u32::from(port16) },
                status,
            })
        })
        .collect()
}
