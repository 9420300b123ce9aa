//! Text without allocation, and text stored in words of the segment.

use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Zero-terminated text of less than `N` bytes; the rest is cut off.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    pub(crate) fn new(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Text { bytes: [0; N], length: 0 };
        let _ = fmt::write(&mut text, arguments);
        text
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = (N - 1 - self.length).min(text.len());
        self.bytes[self.length..self.length + room].copy_from_slice(&text.as_bytes()[..room]);
        self.length += room;
        Ok(())
    }
}

/// Stores text in words, zero-terminated if there is room; the rest is cut off.
pub(crate) fn store(words: &[AtomicU64], text: &[u8]) {
    for (word, at) in words.iter().zip((0..).step_by(8)) {
        let mut bytes = [0; 8];
        for (byte, from) in bytes.iter_mut().zip(text.iter().skip(at)) {
            *byte = *from;
        }
        word.store(u64::from_le_bytes(bytes), Relaxed);
    }
}

/// Reads what [`store`] has stored.
pub(crate) fn load(words: &[AtomicU64]) -> Vec<u8> {
    let mut text: Vec<u8> =
        words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
    text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
    text
}
