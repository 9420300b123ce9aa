//! An export in memory: the smallest thing that does all that the protocol can ask for.
//!
//! Pages are allocated when they are first written; trimmed and zeroed ones are holes. It answers
//! every request at once, so it needs no threads.

use std::sync::{Arc, RwLock};

use bytes::Bytes;
use undercroft_nbd::{
    Command, Context, Export, ExportInfo, Exports, Extent, Failure, Flags, Peer, Refusal, Request,
    Session,
};

/// Bytes of a page.
pub(crate) const PAGE: usize = 64 << 10;

/// Number of the context `base:allocation`.
const ALLOCATION: u32 = 1;

/// What a hole is called in `base:allocation`: not allocated, and reads as zeroes.
const HOLE_AND_ZERO: u32 = 3;

/// A page, if it was ever written.
type Page = Option<Box<[u8]>>;

/// One export in memory. Clones are the same.
#[derive(Clone)]
pub(crate) struct Ram {
    /// What clients are told.
    pub(crate) info: ExportInfo,
    pages: Arc<RwLock<Vec<Page>>>,
}

impl Ram {
    /// An empty one of so many bytes.
    pub(crate) fn new(name: &str, size: u64) -> Ram {
        let flags = Flags {
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            multi_conn: true,
            cache: true,
            ..Flags::default()
        };
        let info = ExportInfo {
            name: name.to_owned(),
            description: "memory, gone when the server ends".to_owned(),
            size,
            flags,
            min_block: 1,
            preferred_block: 4096,
            max_block: 32 << 20,
        };
        let pages = usize::try_from(size.div_ceil(PAGE as u64)).expect("fits the address space");
        Ram { info, pages: Arc::new(RwLock::new(vec![None; pages])) }
    }

    fn read(&self, offset: u64, length: u64) -> Bytes {
        let pages = self.pages.read().expect("no writer panics");
        let mut data = Vec::with_capacity(length as usize);
        for (page, from, to) in parts(offset, length) {
            match &pages[page] {
                Some(bytes) => data.extend_from_slice(&bytes[from..to]),
                None => data.resize(data.len() + to - from, 0),
            }
        }
        data.into()
    }

    fn write(&self, mut offset: u64, pieces: &[Bytes]) {
        let mut pages = self.pages.write().expect("no writer panics");
        for piece in pieces {
            let mut rest = &piece[..];
            for (page, from, to) in parts(offset, piece.len() as u64) {
                let (now, later) = rest.split_at(to - from);
                let bytes = pages[page].get_or_insert_with(|| vec![0; PAGE].into());
                bytes[from..to].copy_from_slice(now);
                rest = later;
            }
            offset += piece.len() as u64;
        }
    }

    fn zero(&self, offset: u64, length: u64, keep_allocated: bool) {
        let mut pages = self.pages.write().expect("no writer panics");
        for (page, from, to) in parts(offset, length) {
            if keep_allocated {
                pages[page].get_or_insert_with(|| vec![0; PAGE].into())[from..to].fill(0);
            } else if to - from == PAGE {
                pages[page] = None;
            } else if let Some(bytes) = &mut pages[page] {
                bytes[from..to].fill(0);
            }
        }
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let pages = self.pages.read().expect("no writer panics");
        let mut extents: Vec<Extent> = Vec::new();
        for (page, from, to) in parts(offset, length) {
            let status = if pages[page].is_some() { 0 } else { HOLE_AND_ZERO };
            let length = (to - from) as u64;
            match extents.last_mut() {
                Some(last) if last.status == status => last.length += length,
                _ => extents.push(Extent { length, status }),
            }
        }
        extents
    }
}

/// The pages of a range, and the part of each.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = (usize, usize, usize)> {
    let (size, end) = (PAGE as u64, offset + length);
    (offset / size..end.div_ceil(size)).map(move |page| {
        let start = page * size;
        let from = offset.max(start) - start;
        let to = end.min(start + size) - start;
        (page as usize, from as usize, to as usize)
    })
}

impl Exports for Ram {
    fn list(&self, _peer: &Peer) -> Vec<(String, String)> {
        vec![(self.info.name.clone(), self.info.description.clone())]
    }

    fn find(&self, name: &str, _peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        if name.is_empty() || name == self.info.name {
            Ok(Arc::new(self.clone()))
        } else {
            Err(Refusal::Unknown)
        }
    }
}

impl Export for Ram {
    fn info(&self, _peer: &Peer, _contexts: &[Context]) -> ExportInfo {
        self.info.clone()
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        let name = "base:allocation";
        let asked = query.is_empty() || query == "base:" || query == name;
        asked
            .then(|| Context { name: name.to_owned(), key: ALLOCATION, kept: None })
            .into_iter()
            .collect()
    }

    fn connect(&self, _peer: &Peer, _contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for Ram {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        0
    }
}

impl Ram {
    fn start(&mut self, request: Request) {
        let Request { command, offset, length, reply, .. } = request;
        match command {
            Command::Read { .. } => reply.data(vec![self.read(offset, length)]),
            Command::Write { data } => {
                self.write(offset, &data);
                reply.done();
            }
            Command::WriteZeroes { keep_allocated: true, fast: true } => {
                let text = "allocating is no faster than writing".to_owned();
                reply.fail(Failure::NotSupported, text);
            }
            Command::WriteZeroes { keep_allocated, .. } => {
                self.zero(offset, length, keep_allocated);
                reply.done();
            }
            Command::Trim => {
                self.zero(offset, length, false);
                reply.done();
            }
            Command::Flush | Command::Cache => reply.done(),
            Command::BlockStatus { .. } => {
                reply.extents(vec![(ALLOCATION, self.extents(offset, length))]);
            }
        }
    }
}
