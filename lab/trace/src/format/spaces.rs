//! Numbers the address spaces (devices, units, files) of a trace in order of first appearance.

use std::collections::HashMap;

use crate::format::text::{Fault, Parse};

/// Most spaces, and most bytes of their names together: what an input can make us remember.
const MAX_SPACES: usize = 1 << 20;
const MAX_NAME_BYTES: usize = 64 << 20;

/// The spaces met so far.
#[derive(Default)]
pub struct Spaces {
    numbers: HashMap<Box<[u8]>, u32>,
    names: Vec<String>,
    name_bytes: usize,
    /// Most requests go to few devices: answers given lately, by a hash of their key.
    lately: [(Vec<u8>, u32); 32],
}

impl Spaces {
    /// The one space of a format that has no more.
    pub(crate) fn single() -> Spaces {
        Spaces { names: vec!["0".into()], ..Spaces::default() }
    }

    /// Names by number.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of the space that the trace calls `key`.
    ///
    /// # Errors
    /// There are too many spaces.
    #[inline]
    pub fn number(&mut self, key: &[u8]) -> Parse<u32> {
        self.number_named(key, || None)
    }

    /// Number of a space that has a better name than its key.
    #[inline]
    pub(crate) fn number_named(
        &mut self,
        key: &[u8],
        name: impl FnOnce() -> Option<String>,
    ) -> Parse<u32> {
        let slot = slot(key);
        let (known, number) = &self.lately[slot];
        if key == known && !key.is_empty() {
            return Ok(*number);
        }
        let number = match self.numbers.get(key) {
            Some(&number) => number,
            None => {
                let own = || String::from_utf8_lossy(key).into_owned();
                let number = self.push(name().unwrap_or_else(own))?;
                self.numbers.insert(key.into(), number);
                number
            }
        };
        let (known, answer) = &mut self.lately[slot];
        known.clear();
        known.extend_from_slice(key);
        *answer = number;
        Ok(number)
    }

    /// Adds a space that will be asked for by number only.
    pub(crate) fn push(&mut self, name: String) -> Parse<u32> {
        self.name_bytes += name.len();
        if self.names.len() >= MAX_SPACES || self.name_bytes > MAX_NAME_BYTES {
            let text = format!(
                "more than {MAX_SPACES} devices or files, or {MAX_NAME_BYTES} bytes of their names"
            );
            return Err(Box::new(Fault::Limit(text)));
        }
        self.names.push(name);
        Ok((self.names.len() - 1) as u32)
    }
}

/// Devices differ in their last characters.
#[inline]
fn slot(key: &[u8]) -> usize {
    match key {
        [] => 0,
        [only] => usize::from(*only) % 32,
        [.., last_but_one, last] => (usize::from(*last_but_one) * 7 + usize::from(*last)) % 32,
    }
}
