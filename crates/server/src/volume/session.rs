//! Adapts volumes to the protocol's exports and sessions. A session collects the requests that
//! arrived together, and passes them to its volume.

use std::sync::Arc;

use undercroft_nbd::{
    Command, Context, Export, ExportInfo, Flags, Peer, Refusal, Reply, Request, Session,
};

use crate::answer::BASE_ALLOCATION;
use crate::volume::Volume;
use crate::volume::clients::Member;
use crate::volume::hint_batch::HintBatch;
use crate::volume::losses::Informed;

/// Most bytes of one payload, as of other servers. Clients that do not ask assume half of it, or
/// nothing at all.
const PAYLOAD_BYTES_MAX: u32 = 64 << 20;

/// Sequential reads after which read-ahead starts.
const SEQUENTIAL_MIN: u32 = 2;

/// A volume as an export.
pub struct VolumeExport(pub Arc<Volume>);

impl Export for VolumeExport {
    fn info(&self, _: &Peer, _: &[Context]) -> ExportInfo {
        let volume = &self.0;
        let config = volume.config();
        let cached = config.cache_blocks > 0;
        ExportInfo {
            name: config.name.clone(),
            description: config.description.clone(),
            size: volume.size(),
            flags: Flags {
                read_only: volume.is_read_only(),
                trim: true,
                write_zeroes: true,
                fast_zero: true,
                // One cache and one store: what one connection was answered, all connections see.
                multi_conn: true,
                cache: cached,
                rotational: false,
            },
            // The cache accepts requests of any alignment; the store alone does not.
            min_block: if cached { 1 } else { volume.alignment() },
            preferred_block: config.block_bytes.max(volume.alignment()),
            max_block: PAYLOAD_BYTES_MAX,
        }
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        let name = "base:allocation";
        if matches!(query, "" | "base:" | "base:allocation") {
            vec![Context { name: name.to_string(), key: BASE_ALLOCATION, kept: None }]
        } else {
            Vec::new()
        }
    }

    fn connect(&self, _: &Peer, _: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        let member = self.0.join(None).map_err(|wrong| Refusal::Denied(wrong.to_string()))?;
        Ok(Box::new(VolumeSession::new(&self.0, member)?))
    }
}

/// One connection to a volume.
pub(crate) struct VolumeSession {
    volume: Arc<Volume>,
    /// The client of the connection, if the volume distinguishes clients.
    member: Option<Arc<Member>>,
    /// Present if losses are reported: the last loss that the session was told of.
    informed: Option<Arc<Informed>>,
    /// Requests that arrived together.
    batch: Vec<Request>,
    ahead: ReadAhead,
    /// Blocks examined beyond those read or written.
    owed: u64,
}

impl VolumeSession {
    pub(crate) fn new(volume: &Arc<Volume>, member: Option<Arc<Member>>) -> Result<Self, Refusal> {
        if volume.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        let informed = Informed::new(volume);
        let (volume, ahead) = (Arc::clone(volume), ReadAhead::default());
        Ok(Self { volume, member, informed, batch: Vec::new(), ahead, owed: 0 })
    }

    /// Adds a request to the batch; the answer to the hints that came with it is sent with its own.
    pub(crate) fn submit_with(&mut self, mut request: Request, hints: Option<Reply>) {
        if let Some(hints) = hints {
            request.reply = request.reply.with(hints);
        }
        self.batch.push(request);
    }

    /// Serves the requests submitted together, after the hints that came with them.
    pub(crate) fn serve_after(&mut self, hints: &mut HintBatch) {
        let mut batch = std::mem::take(&mut self.batch);
        self.serve_all(hints, &mut batch);
        self.batch = batch;
    }

    fn serve_all(&mut self, hints: &mut HintBatch, requests: &mut Vec<Request>) {
        for request in &*requests {
            if matches!(request.command, Command::Read { .. }) {
                self.ahead.note(request.offset, request.length);
            }
        }
        if let Some(informed) = &self.informed {
            requests.iter_mut().for_each(|request| informed.attach(request));
        }
        let caller = self.member.as_ref().map(|member| member.caller()).unwrap_or_default();
        self.owed += self.volume.serve_after(hints, requests, caller);
        let bytes = self.volume.config().read_ahead_bytes;
        // What is read ahead takes room in the cache, and a stream that passes it must not.
        let bytes = if self.volume.is_streamed(self.ahead.end) { 0 } else { bytes };
        if let Some((offset, length)) = self.ahead.wanted(bytes) {
            self.owed += self.volume.read_ahead(offset, length);
        }
    }
}

impl Session for VolumeSession {
    fn submit(&mut self, request: Request) {
        self.submit_with(request, None);
    }

    fn end_of_batch(&mut self) {
        self.serve_after(&mut HintBatch::default());
    }

    fn serve(&mut self, requests: &mut Vec<Request>) {
        self.serve_all(&mut HintBatch::default(), requests);
    }

    fn owed(&mut self) -> u64 {
        std::mem::take(&mut self.owed)
    }
}

/// Detects sequential reads.
#[derive(Debug, Default)]
struct ReadAhead {
    /// End of the last read.
    end: u64,
    /// Number of reads that began at the end of the previous one.
    in_sequence: u32,
    /// End of the range that was read ahead.
    fetched: u64,
}

impl ReadAhead {
    fn note(&mut self, offset: u64, length: u64) {
        if offset == self.end {
            self.in_sequence = self.in_sequence.saturating_add(1);
        } else {
            *self = Self::default();
        }
        self.end = offset.saturating_add(length);
    }

    /// The range to read now, if up to `bytes` bytes may be read ahead; at least half of that at a
    /// time.
    fn wanted(&mut self, bytes: u64) -> Option<(u64, u64)> {
        if bytes == 0 || self.in_sequence < SEQUENTIAL_MIN {
            return None;
        }
        let from = self.fetched.max(self.end);
        let to = self.end.saturating_add(bytes);
        if to.saturating_sub(from) < bytes.div_ceil(2) {
            return None;
        }
        self.fetched = to;
        Some((from, to - from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_ahead_follows_a_sequence_only() {
        let mut ahead = ReadAhead::default();
        ahead.note(4096, 4096);
        assert_eq!(ahead.wanted(16384), None);
        ahead.note(8192, 4096);
        assert_eq!(ahead.wanted(16384), None);
        ahead.note(12288, 4096);
        assert_eq!(ahead.wanted(16384), Some((16384, 16384)));
        ahead.note(16384, 4096);
        assert_eq!(ahead.wanted(16384), None, "less than half is missing");
        ahead.note(20480, 4096);
        assert_eq!(ahead.wanted(16384), Some((32768, 8192)));
        ahead.note(0, 4096);
        assert_eq!(ahead.wanted(16384), None);
    }
}
