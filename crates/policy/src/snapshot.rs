//! Saves and loads the state of a policy as bytes. A policy that is saved and loaded continues
//! exactly as if it had not been interrupted.
//!
//! A policy describes its state once, in [`Policy::save_load`]: each step writes a value while
//! saving and reads it while loading, so the two cannot differ. Only state that affects decisions
//! is saved; derived values (sums, sections, hints) are recomputed.
//!
//! Bytes may be untrusted. While loading, every number is checked against its range, a list cannot
//! be longer than the number of entries, and no entry may be in two lists. Errors that only the
//! whole state shows are found by [`Policy::validate`], which must be called afterwards. The first
//! error ends loading, and the policy must then not be used.
//!
//! Integers are LEB128. Handles change between runs of a program, so entries are written as numbers
//! of their own, residents first. Whoever has the blocks saves which of them each number stands for
//! (`KnownBlocks` of `undercroft-level`).

use std::fmt;
use std::ops::RangeInclusive;

use crate::Entry;
#[cfg(doc)]
use crate::Policy;

/// Logical clocks and counters of uses stay below this, so that sums of a few do not overflow.
pub(crate) const CLOCK_MAX: u64 = 1 << 60;

/// Marks a handle without a number.
const NONE: u32 = u32::MAX;

/// Why a snapshot was not loaded, or could not be saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotError(pub(crate) String);

impl SnapshotError {
    /// An error with the reason `what`.
    #[cold]
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SnapshotError {}

type Result<T, E = SnapshotError> = std::result::Result<T, E>;

/// The state of a policy while it is saved or loaded: see [`Policy::save_load`].
///
/// Each method takes a value that is written while saving, and replaced by the one that is read
/// while loading.
pub struct Snapshot<'a> {
    /// The bytes still to be read; `None` while saving.
    input: Option<&'a [u8]>,
    output: Vec<u8>,
    /// Saving: the number of each handle, or `NONE`.
    numbers: Vec<u32>,
    /// Saving: the handles in the order of their numbers.
    order: Vec<Entry>,
    /// Loading: the number of entries; their numbers are their handles.
    entries: u32,
    /// Loading: which of them were in a list.
    listed: Vec<bool>,
    /// The last number plus one: the next number of a run.
    next: u32,
}

impl<'a> Snapshot<'a> {
    /// Starts saving a policy with handles below `handles` and these residents.
    pub fn saving(handles: usize, residents: Vec<Entry>) -> Self {
        let mut numbers = vec![NONE; handles];
        for (number, &entry) in (0..).zip(&residents) {
            numbers[entry as usize] = number;
        }
        let output = Vec::new();
        let listed = Vec::new();
        Self { input: None, output, numbers, order: residents, entries: 0, listed, next: 0 }
    }

    /// Starts loading a policy that knows entries below `entries`, from bytes of
    /// [`saved`](Self::saved).
    pub fn loading(bytes: &'a [u8], entries: u32) -> Self {
        let (numbers, order, output) = Default::default();
        let listed = vec![false; entries as usize];
        Self { input: Some(bytes), output, numbers, order, entries, listed, next: 0 }
    }

    /// The saved bytes, and the handles in the order of their numbers.
    pub fn saved(self) -> (Vec<u8>, Vec<Entry>) {
        (self.output, self.order)
    }

    /// The bytes that are not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.input.unwrap_or(&[])
    }

    /// Whether values are being loaded. Derived values must then be recomputed.
    pub fn is_loading(&self) -> bool {
        self.input.is_some()
    }

    /// A whole number.
    ///
    /// # Errors
    /// It is not in `range`, or no bytes are left. All methods fail if no bytes are left.
    pub fn number<N>(&mut self, value: &mut N, range: RangeInclusive<N>) -> Result<()>
    where
        N: Copy + PartialOrd + Into<u64> + TryFrom<u64> + fmt::Debug,
    {
        let out_of_range = |found: u64| SnapshotError(format!("{found} is not within {range:?}"));
        let found = match self.input {
            None => (*value).into(),
            Some(_) => self.read_number()?,
        };
        let allowed = N::try_from(found).ok().filter(|found| range.contains(found));
        *value = allowed.ok_or_else(|| out_of_range(found))?;
        if !self.is_loading() {
            self.write_number(found);
        }
        Ok(())
    }

    /// A clock that counts references or uses.
    ///
    /// # Errors
    /// It is above 2^60, which no clock that starts at 0 reaches.
    pub fn clock(&mut self, value: &mut u64) -> Result<()> {
        self.number(value, 0..=CLOCK_MAX)
    }

    /// 64 bits, in 8 bytes.
    ///
    /// # Errors
    /// No bytes are left.
    pub fn word(&mut self, value: &mut u64) -> Result<()> {
        match &mut self.input {
            None => self.output.extend_from_slice(&value.to_le_bytes()),
            Some(input) => {
                let (word, rest) = input.split_first_chunk().ok_or_else(too_short)?;
                (*value, *input) = (u64::from_le_bytes(*word), rest);
            }
        }
        Ok(())
    }

    /// A real number, to the last bit.
    ///
    /// # Errors
    /// It is not in `range`.
    pub fn real(&mut self, value: &mut f64, range: RangeInclusive<f64>) -> Result<()> {
        let mut bits = value.to_bits();
        self.word(&mut bits)?;
        *value = f64::from_bits(bits);
        let is_right = range.contains(value);
        is_right
            .then_some(())
            .ok_or_else(|| SnapshotError(format!("{value} is not within {range:?}")))
    }

    /// A truth value.
    ///
    /// # Errors
    /// The byte is neither 0 nor 1.
    pub fn flag(&mut self, value: &mut bool) -> Result<()> {
        let mut bit = u8::from(*value);
        self.number(&mut bit, 0..=1)?;
        *value = bit == 1;
        Ok(())
    }

    /// An entry that the policy knows.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn entry(&mut self, entry: &mut Entry) -> Result<()> {
        if self.is_loading() {
            let number = u64::from(self.next).wrapping_add(self.read_number().map(unfold)?);
            if number >= u64::from(self.entries) {
                return Err(SnapshotError(format!("there is no entry {number}")));
            }
            *entry = number as Entry;
            self.next = *entry + 1;
            return Ok(());
        }
        let known = &mut self.numbers[*entry as usize];
        if *known == NONE {
            *known = self.order.len() as u32;
            self.order.push(*entry);
        }
        let number = *known;
        self.write_number(fold(u64::from(number).wrapping_sub(u64::from(self.next))));
        self.next = number + 1;
        Ok(())
    }

    /// An entry that the policy knows, or `None`.
    ///
    /// # Errors
    /// There is no such entry.
    pub fn optional_entry(&mut self, entry: &mut Option<Entry>) -> Result<()> {
        let mut is_some = entry.is_some();
        self.flag(&mut is_some)?;
        let mut some = entry.unwrap_or_default();
        if is_some {
            self.entry(&mut some)?;
        }
        *entry = is_some.then_some(some);
        Ok(())
    }

    /// A list of `len` entries in order. While loading it returns them, for the caller to insert;
    /// while saving it returns nothing. An entry can be in one list only.
    ///
    /// # Errors
    /// There is no such entry, or it is listed twice.
    pub fn entries(&mut self, len: u32, saved: impl Iterator<Item = Entry>) -> Result<Vec<Entry>> {
        let list = self.entries_with(len, saved.map(|entry| (entry, ())), |_, ()| Ok(()))?;
        Ok(list.into_iter().map(|(entry, ())| entry).collect())
    }

    /// A list of `len` entries like [`entries`](Self::entries), with `data` for each.
    ///
    /// # Errors
    /// There is no such entry, or it is listed twice; or `data` fails.
    pub fn entries_with<T: Default>(
        &mut self,
        len: u32,
        saved: impl Iterator<Item = (Entry, T)>,
        mut data: impl FnMut(&mut Self, &mut T) -> Result<()>,
    ) -> Result<Vec<(Entry, T)>> {
        let mut len = len;
        let most = if self.is_loading() { self.entries } else { u32::MAX };
        self.number(&mut len, 0..=most)?;
        if !self.is_loading() {
            for (mut entry, mut item) in saved {
                self.entry(&mut entry)?;
                data(self, &mut item)?;
            }
            return Ok(Vec::new());
        }
        let mut loaded = Vec::with_capacity(len as usize);
        for _ in 0..len {
            let (mut entry, mut item) = Default::default();
            self.entry(&mut entry)?;
            if std::mem::replace(&mut self.listed[entry as usize], true) {
                return Err(SnapshotError::new(format!("entry {entry} is there twice")));
            }
            data(self, &mut item)?;
            loaded.push((entry, item));
        }
        Ok(loaded)
    }

    /// Allows entries of the lists so far in further lists: for a policy that orders them twice.
    pub fn list_again(&mut self) {
        self.listed.fill(false);
    }

    /// Numbers most of which follow their predecessor by one.
    pub fn run(&mut self, before: &mut u64, value: &mut u64) -> Result<()> {
        let mut step = fold(value.wrapping_sub(before.wrapping_add(1)));
        self.number(&mut step, 0..=u64::MAX)?;
        *value = before.wrapping_add(1).wrapping_add(unfold(step));
        *before = *value;
        Ok(())
    }

    fn write_number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.output.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.output.push(value as u8);
    }

    fn read_number(&mut self) -> Result<u64> {
        let input = self.input.as_mut().ok_or_else(too_short)?;
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (&byte, rest) = input.split_first().ok_or_else(too_short)?;
            *input = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(SnapshotError("a number has no end".into()))
    }
}

fn too_short() -> SnapshotError {
    SnapshotError("it ends too early".into())
}

/// Moves the sign of a difference into the lowest bit: small differences become small numbers.
fn fold(difference: u64) -> u64 {
    let signed = difference as i64;
    (signed << 1 ^ signed >> 63) as u64
}

fn unfold(folded: u64) -> u64 {
    folded >> 1 ^ (folded & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let mut snapshot = Snapshot::saving(5, vec![4, 2]);
        for mut value in [0, 1, 127, 128, u64::MAX] {
            snapshot.number(&mut value, 0..=u64::MAX).unwrap();
            snapshot.word(&mut value).unwrap();
        }
        for mut entry in [2, 0, 4, 3] {
            snapshot.entry(&mut entry).unwrap();
        }
        snapshot.optional_entry(&mut Some(3)).unwrap();
        snapshot.optional_entry(&mut None).unwrap();
        snapshot.real(&mut 0.1, 0.0..=1.0).unwrap();
        let mut before = 7;
        for mut value in [8, 9, 3, u64::MAX, 0] {
            snapshot.run(&mut before, &mut value).unwrap();
        }
        let (bytes, order) = snapshot.saved();
        assert_eq!(order, [4, 2, 0, 3]);

        let mut snapshot = Snapshot::loading(&bytes, 4);
        for expected in [0, 1, 127, 128, u64::MAX] {
            let (mut value, mut word) = (5, 5);
            snapshot.number(&mut value, 0..=u64::MAX).unwrap();
            snapshot.word(&mut word).unwrap();
            assert_eq!((value, word), (expected, expected));
        }
        for expected in [1, 2, 0, 3] {
            let mut number = 9;
            snapshot.entry(&mut number).unwrap();
            assert_eq!(number, expected);
        }
        let (mut some, mut none, mut real) = (None, Some(1), 0.0);
        snapshot.optional_entry(&mut some).unwrap();
        snapshot.optional_entry(&mut none).unwrap();
        snapshot.real(&mut real, 0.0..=1.0).unwrap();
        assert_eq!((some, none, real), (Some(3), None, 0.1));
        let mut before = 7;
        for expected in [8, 9, 3, u64::MAX, 0] {
            let mut value = 5;
            snapshot.run(&mut before, &mut value).unwrap();
            assert_eq!(value, expected);
        }
        assert!(snapshot.rest().is_empty());
        assert!(snapshot.number(&mut 0_u64, 0..=1).is_err(), "nothing is left");
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let load = |bytes: &[u8]| Snapshot::loading(bytes, 3).number(&mut 0_u8, 1..=200);
        assert!(load(&[200, 1]).is_ok());
        for bytes in [&[0][..], &[201, 1], &[0x80, 2], &[0x80], &[0xff; 12]] {
            assert!(load(bytes).is_err(), "{bytes:?}");
        }
        // Two forward, past the end; one back, before the beginning.
        assert!(Snapshot::loading(&[4], 3).entry(&mut 0).is_ok());
        assert!(Snapshot::loading(&[6], 3).entry(&mut 0).is_err());
        assert!(Snapshot::loading(&[1], 3).entry(&mut 0).is_err());
        for real in [f64::NAN, f64::INFINITY, -0.1] {
            let bytes = real.to_le_bytes();
            assert!(Snapshot::loading(&bytes, 3).real(&mut 0.0, 0.0..=1.0).is_err());
        }
        let none = || std::iter::empty::<Entry>();
        assert!(Snapshot::loading(&[4, 0, 0, 0, 0], 3).entries(0, none()).is_err());
    }
}
