//! What every store keeps about its medium: name, size and limits, the checks before each request,
//! and errors that name the operation and its range. No I/O.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::store::{Answer, Buffer, Extent, Facts};

/// Largest medium: the kernel needs offsets that are positive as `i64`.
pub(crate) const MAX_BYTES: u64 = i64::MAX as u64;

/// Name and limits of a store. Only the size can change, and it only grows.
#[derive(Debug)]
pub(crate) struct Medium {
    /// As they were at first.
    facts: Facts,
    size: AtomicU64,
}

impl Medium {
    pub(crate) fn new(facts: Facts) -> Medium {
        assert!(facts.alignment.is_power_of_two());
        assert!(facts.size <= MAX_BYTES && facts.size % u64::from(facts.alignment) == 0);
        Medium { size: AtomicU64::new(facts.size), facts }
    }

    pub(crate) fn facts(&self) -> Facts {
        Facts { size: self.size(), ..self.facts.clone() }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Records a larger size, rounded down to the alignment; a smaller one changes nothing.
    pub(crate) fn grow(&self, size: u64) -> u64 {
        let size = size.min(MAX_BYTES) & !(u64::from(self.facts.alignment) - 1);
        self.size.fetch_max(size, Ordering::AcqRel).max(size)
    }

    /// Checks the range of a reading request.
    pub(crate) fn check(&self, doing: &'static str, offset: u64, length: u64) -> io::Result<()> {
        let size = self.size();
        let alignment = self.facts.alignment;
        let why = if offset.checked_add(length).is_none_or(|end| end > size) {
            format!("the store ends at {size}")
        } else if (offset | length) & (u64::from(alignment) - 1) != 0 {
            format!("offset and length must be multiples of {alignment}")
        } else {
            return Ok(());
        };
        Err(self.fault(doing, offset, length, io::Error::new(ErrorKind::InvalidInput, why)))
    }

    /// Checks the range of a changing request, and that changes are allowed.
    pub(crate) fn check_change(
        &self,
        doing: &'static str,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        if self.facts.read_only {
            let why = io::Error::new(ErrorKind::ReadOnlyFilesystem, "the store is read-only");
            return Err(self.fault(doing, offset, length, why));
        }
        self.check(doing, offset, length)
    }

    /// Adds the operation and its range to an error; kind and OS error number stay those of
    /// `source`.
    pub(crate) fn fault(
        &self,
        doing: &'static str,
        offset: u64,
        length: u64,
        source: io::Error,
    ) -> io::Error {
        let what = format!("{}: {doing} of {length} bytes at {offset}", self.facts.name);
        wrap(what, source)
    }

    /// Adds the operation to an error that concerns the whole store.
    pub(crate) fn fault_of_all(&self, doing: &'static str, source: io::Error) -> io::Error {
        wrap(format!("{}: {doing}", self.facts.name), source)
    }
}

/// An error with a text in front; made by [`wrap`].
#[derive(Debug)]
struct Fault {
    what: String,
    source: io::Error,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl std::error::Error for Fault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Puts a text in front of an error, and keeps its kind.
pub(crate) fn wrap(what: String, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), Fault { what, source })
}

/// The OS error number of a store's error, if the system raised it. Unlike
/// [`io::Error::raw_os_error`] this looks inside the texts that the store has added.
#[must_use]
pub fn os_error(error: &io::Error) -> Option<i32> {
    let mut error = error;
    while let Some(fault) = error.get_ref().and_then(|inner| inner.downcast_ref::<Fault>()) {
        error = &fault.source;
    }
    error.raw_os_error()
}

/// An answer that is available at once.
pub(crate) fn ready<T: Send + 'static>(answer: T) -> Answer<T> {
    Box::pin(std::future::ready(answer))
}

/// Appends an extent, joined to the last one if both are alike.
pub(crate) fn append(extents: &mut Vec<Extent>, more: Extent) {
    match extents.last_mut() {
        Some(last) if (last.hole, last.zero) == (more.hole, more.zero) => {
            last.length += more.length;
        }
        _ => extents.push(more),
    }
}

/// Total length of the buffers in bytes.
pub(crate) fn buffers_bytes(buffers: &mut [Buffer]) -> u64 {
    buffers.iter_mut().map(|buffer| (**buffer).as_mut().len() as u64).sum()
}

/// Total length of the pieces in bytes.
pub(crate) fn pieces_bytes(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}

/// Copies `from` into the buffers, starting `skip` bytes behind the start of the first one.
pub(crate) fn scatter(buffers: &mut [Buffer], mut skip: usize, mut from: &[u8]) {
    for buffer in buffers {
        let buffer = (**buffer).as_mut();
        if skip >= buffer.len() {
            skip -= buffer.len();
            continue;
        }
        let count = from.len().min(buffer.len() - skip);
        let (now, later) = from.split_at(count);
        buffer[skip..skip + count].copy_from_slice(now);
        (from, skip) = (later, 0);
        if from.is_empty() {
            return;
        }
    }
    assert!(from.is_empty(), "more bytes than the buffers hold");
}

/// Copies from the pieces, starting `skip` bytes behind the start of the first one, as much as is
/// available and fits. Returns the number of bytes copied.
pub(crate) fn gather(pieces: &[Bytes], mut skip: usize, into: &mut [u8]) -> usize {
    let mut done = 0;
    for piece in pieces {
        let passed = skip.min(piece.len());
        skip -= passed;
        let count = (piece.len() - passed).min(into.len() - done);
        into[done..done + count].copy_from_slice(&piece[passed..passed + count]);
        done += count;
    }
    done
}

/// The part of the pieces that starts at byte `skip` and is `length` long, without copying.
pub(crate) fn cut(pieces: &[Bytes], mut skip: u64, mut length: u64) -> Vec<Bytes> {
    let mut out = Vec::new();
    for piece in pieces {
        if length == 0 {
            break;
        }
        let bytes = piece.len() as u64;
        if skip >= bytes {
            skip -= bytes;
            continue;
        }
        let count = length.min(bytes - skip);
        // Both lie within the piece, whose length is a usize.
        out.push(piece.slice(skip as usize..(skip + count) as usize));
        (skip, length) = (0, length - count);
    }
    assert!(length == 0, "more bytes wanted than the pieces hold");
    out
}
