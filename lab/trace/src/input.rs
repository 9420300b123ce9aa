//! The bytes of a trace: opened, decompressed, and handed out from one buffer of fixed size.
//!
//! Compression is recognised by content, never by name. Lines are cut in `format/text.rs`;
//! what the bytes mean is the business of each format.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use crate::Error;

/// Most bytes that a format can look at in one piece.
pub(crate) const CAPACITY: usize = 1 << 20;

/// Most bytes read at once: they should still be in the processor's cache when they are parsed.
const PIECE: usize = 128 << 10;

/// Bytes that tell a compression.
const MAGIC: usize = 6;

/// Most memory for undoing xz, whose streams say what they need: all levels of its program need
/// less, and a stream that wants 4 GiB is no trace of anybody.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// Decompressed content of a trace, in bounded memory.
pub(crate) struct Input {
    path: PathBuf,
    source: Box<dyn Read + Send>,
    compression: Option<&'static str>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    ended: bool,
}

impl Input {
    /// Opens a file; `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Input, Error> {
        if path.as_os_str() == "-" {
            return Input::over(PathBuf::from("standard input"), Box::new(io::stdin()));
        }
        let file =
            File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Input::over(path.to_owned(), Box::new(file))
    }

    /// Takes the bytes from `source`; `path` is for messages only.
    pub(crate) fn over(path: PathBuf, mut source: Box<dyn Read + Send>) -> Result<Input, Error> {
        let mut magic = Vec::new();
        let head = source.by_ref().take(MAGIC as u64).read_to_end(&mut magic);
        let known = head.map(|_| compression(&magic));
        let known = known.map_err(|source| Error::Io { path: path.clone(), source })?;
        let raw = Cursor::new(magic).chain(source);
        let source: Box<dyn Read + Send> = match known {
            Some("zstd") => {
                let decoder = zstd::stream::read::Decoder::new(raw);
                Box::new(decoder.map_err(|source| Error::Io { path: path.clone(), source })?)
            }
            Some("bzip2") => Box::new(bzip2::read::MultiBzDecoder::new(raw)),
            Some("xz") => {
                let raw = io::BufReader::with_capacity(PIECE, raw);
                Box::new(lzma_rust2::XzReader::new_mem_limit(raw, true, XZ_MEMORY_KIB))
            }
            Some(_) => Box::new(flate2::read::MultiGzDecoder::new(io::BufReader::new(raw))),
            None => Box::new(raw),
        };
        let buffer = vec![0; CAPACITY];
        let (start, end, offset, ended) = (0, 0, 0, false);
        Ok(Input { path, source, compression: known, buffer, start, end, offset, ended })
    }

    /// The file, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Name of the compression that is undone.
    pub(crate) fn compression(&self) -> Option<&'static str> {
        self.compression
    }

    /// What has been read and not yet consumed.
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// At least `wanted` bytes (at most [`CAPACITY`]), fewer only at the end of the input.
    pub(crate) fn peek(&mut self, wanted: usize) -> Result<&[u8], Error> {
        while self.end - self.start < wanted && self.more()? {}
        Ok(self.buffered())
    }

    /// Reads on behind what is buffered. False: the input has ended, or the buffer is full.
    pub(crate) fn more(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        // Moves no byte without one consumed for it, and small pieces stay at the front, in cache.
        if self.end == self.buffer.len() || self.end - self.start <= self.start {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            return Ok(false);
        }
        let full = self.buffer.len().min(self.end + PIECE);
        loop {
            match self.source.read(&mut self.buffer[self.end..full]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(count) => {
                    self.end += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.read_error(error)),
            }
        }
    }

    /// Passes over the first `count` buffered bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Passes over `count` buffered bytes and returns the first `length` of them.
    pub(crate) fn take(&mut self, length: usize, count: usize) -> &[u8] {
        let start = self.start;
        self.consume(count);
        &self.buffer[start..start + length]
    }

    /// Damage at the next byte.
    pub(crate) fn damaged(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            place: format!("byte {}", self.offset),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// A decoder's complaint has no number of the operating system: the content is at fault.
    fn read_error(&self, source: io::Error) -> Error {
        match self.compression {
            Some(name) if source.raw_os_error().is_none() => Error::Damaged {
                path: self.path.clone(),
                place: format!("byte {} of the decompressed content", self.held()),
                expected: match source.kind() {
                    io::ErrorKind::OutOfMemory => {
                        format!("{name} that takes at most {} MiB to undo", XZ_MEMORY_KIB >> 10)
                    }
                    _ => format!("more of the {name} stream, up to its end"),
                },
                found: source.to_string(),
            },
            _ => Error::Io { path: self.path.clone(), source },
        }
    }

    fn held(&self) -> u64 {
        self.offset + (self.end - self.start) as u64
    }
}

/// Name of the compression that these first bytes announce.
fn compression(magic: &[u8]) -> Option<&'static str> {
    match magic {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        // A zstd stream may begin with a skippable frame.
        [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50 => Some("zstd"),
        [0x1f, 0x8b, 8, ..] => Some("gzip"),
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41] => Some("bzip2"),
        // Nothing, compressed.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72] => Some("bzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Some("xz"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 3).unwrap()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// The line "one", and nothing, by the program xz.
    const XZ: &[u8] =
        b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4F\x02\0!\x01\x16\0\0\0t/\xe5\xa3\x01\0\x03one\n\0\xf5\\\
        \xbbV\x1f\xc6\xfd\x86\0\x01\x1c\x04o,\x9c\xc1\x1f\xb6\xf3}\x01\0\0\0\0\x04YZ";
    const XZ_OF_NOTHING: &[u8] =
        b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4F\0\0\0\0\x1c\xdfD!\x1f\xb6\xf3}\x01\0\0\0\0\x04YZ";

    fn all(bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        let mut input = Input::over("t".into(), Box::new(Cursor::new(bytes)))?;
        let mut out = Vec::new();
        loop {
            let length = input.peek(1)?.len();
            if length == 0 {
                return Ok(out);
            }
            out.extend_from_slice(input.take(length, length));
        }
    }

    #[test]
    fn several_frames_and_members_are_one_content() {
        for pack in [gzip, zstd, bzip2, <[u8]>::to_vec as fn(&[u8]) -> Vec<u8>] {
            let bytes = [pack(b"one\n"), pack(b""), pack(b"two\n")].concat();
            assert_eq!(all(bytes).unwrap(), b"one\ntwo\n");
        }
        let bytes = [XZ, XZ_OF_NOTHING, XZ].concat();
        assert_eq!(all(bytes).unwrap(), b"one\none\n");
        assert_eq!(all(bzip2(b"")).unwrap(), b"");
        assert_eq!(all(XZ_OF_NOTHING.to_vec()).unwrap(), b"");
    }

    #[test]
    fn a_cut_stream_is_damage_wherever_the_cut_is() {
        let text: Vec<u8> = (0..3000_u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        for length in 6..XZ.len() {
            let error = all(XZ[..length].to_vec()).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "xz cut at {length}: {error}");
        }
        for pack in [gzip, zstd, bzip2] {
            let whole = pack(&text);
            assert_eq!(all(whole.clone()).unwrap(), text);
            for length in (6..whole.len()).step_by(7).chain([whole.len() - 1]) {
                let error = all(whole[..length].to_vec()).unwrap_err();
                assert!(matches!(error, Error::Damaged { .. }), "cut at {length}: {error}");
                assert!(error.to_string().starts_with("t, byte "), "{error}");
            }
        }
    }

    /// A stream that says that it needs 4 GiB gets none.
    #[test]
    fn an_xz_stream_cannot_ask_for_all_memory() {
        let mut bytes = XZ.to_vec();
        bytes[16] = 40;
        let checksum = crc32fast::hash(&bytes[12..20]).to_le_bytes();
        bytes[20..24].copy_from_slice(&checksum);
        let error = all(bytes).unwrap_err().to_string();
        let want = "t, byte 0 of the decompressed content: expected xz that takes at most 256 MiB";
        assert!(error.starts_with(want), "{error}");
    }
}
