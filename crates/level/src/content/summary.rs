//! A Bloom summary of a cache's content, as sent to the neighbour: the whole filter first, then the
//! bits that changed. The period between publications balances the neighbour's delay against the
//! bytes sent.
//!
//! A publication has an epoch and a sequence number. A receiver that misses one notices it by the
//! number, and asks for the whole filter. A new epoch has another seed; it begins when counts of
//! the filter have saturated. A wrong publication can only make a policy choose another victim.

use super::bloom::{CountingFilter, Filter, Shape};

/// A message of a publishing cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Changes when the filter is rebuilt; the seed of the hash functions.
    pub epoch: u8,
    /// Increases by one with each publication.
    pub sequence: u32,
    /// The content.
    pub body: Body,
}

/// The content of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// All bits.
    Whole(Vec<u8>),
    /// The positions of the changed bits, ascending, as LEB128: the first position, then for each
    /// next one the distance less one.
    Changes(Vec<u8>),
}

impl Publication {
    /// Bytes of the message: epoch, number, kind and length take 12.
    pub fn bytes(&self) -> u64 {
        let (Body::Whole(body) | Body::Changes(body)) = &self.body;
        12 + body.len() as u64
    }
}

/// The publishing side.
#[derive(Clone, Debug)]
pub struct Publisher {
    filter: CountingFilter,
    published: Filter,
    /// One bit for each position that changed since it was last published. A scan of all words is
    /// cheaper than sorting the changed positions.
    flipped: Vec<u64>,
    /// Blocks that came or went since the last publication.
    events: u64,
    /// Number of blocks that came or went at which a publication is due.
    period: u64,
    epoch: u8,
    sequence: u32,
    is_whole_due: bool,
}

impl Publisher {
    /// For an empty cache of `capacity` blocks. A publication is due when the share `publish` of
    /// them has come or gone.
    pub fn new(bits_per_block: u32, hashes: u32, capacity: u32, publish: f64) -> Self {
        let shape = Shape::new(bits_per_block, hashes, capacity, 0);
        Self {
            filter: CountingFilter::new(shape),
            published: Filter::new(shape),
            flipped: vec![0; shape.bits.div_ceil(64) as usize],
            events: 0,
            period: ((publish * f64::from(capacity)).ceil() as u64).max(1),
            epoch: 0,
            sequence: 0,
            is_whole_due: true,
        }
    }

    /// Notes that a block came.
    pub fn came(&mut self, block: u64) {
        self.filter.insert(block, |position| flip(&mut self.flipped, position));
        self.events += 1;
    }

    /// Notes that a block went.
    pub fn went(&mut self, block: u64) {
        self.filter.remove(block, |position| flip(&mut self.flipped, position));
        self.events += 1;
    }

    /// Whether a publication is due.
    pub fn is_due(&self) -> bool {
        self.events >= self.period
    }

    /// Makes the next publication due, and whole: the neighbour missed one.
    pub fn ask_for_whole(&mut self) {
        self.is_whole_due = true;
        self.events = self.events.max(self.period);
    }

    /// Makes a publication. `content` is called if the filter must be rebuilt, and returns all
    /// blocks of the cache.
    pub fn publish(&mut self, content: impl FnOnce() -> Vec<u64>) -> Publication {
        if self.filter.is_saturated() {
            self.make_anew(&content());
        }
        self.publish_now()
    }

    /// Makes a publication of the filter as it is.
    pub fn publish_now(&mut self) -> Publication {
        self.events = 0;
        self.sequence = self.sequence.wrapping_add(1);
        let changes = self.take_changes();
        let is_whole = self.is_whole_due || changes.len() > self.published.bytes().len();
        self.is_whole_due = false;
        let body = if is_whole {
            Body::Whole(self.published.bytes().to_vec())
        } else {
            Body::Changes(changes)
        };
        Publication { epoch: self.epoch, sequence: self.sequence, body }
    }

    /// Updates the published bits. Returns the changes, encoded.
    fn take_changes(&mut self) -> Vec<u8> {
        let mut coded = Vec::new();
        let mut next = 0;
        for (place, word) in (0..).zip(&mut self.flipped) {
            let mut left = std::mem::take(word);
            while left != 0 {
                let position = place * 64 + left.trailing_zeros();
                left &= left - 1;
                self.published.flip(position);
                put_number(&mut coded, position - next);
                next = position + 1;
            }
        }
        coded
    }

    /// Whether the filter should be rebuilt: it may hold blocks that went.
    pub fn is_saturated(&self) -> bool {
        self.filter.is_saturated()
    }

    /// Begins to rebuild the filter, with other hash functions: it is empty now, and all blocks of
    /// the cache must [come](Self::came) again before the next publication, which is a whole one.
    pub fn begin_anew(&mut self) {
        self.make_anew(&[]);
    }

    fn make_anew(&mut self, content: &[u64]) {
        self.epoch = self.epoch.wrapping_add(1);
        let shape = Shape { seed: self.epoch.into(), ..self.filter.shape() };
        self.filter = CountingFilter::new(shape);
        content.iter().for_each(|&block| self.filter.insert(block, |_| ()));
        self.published = self.filter.bits();
        self.flipped.fill(0);
        self.is_whole_due = true;
    }

    /// The state after all publications so far, as a whole filter with the last number.
    pub fn whole(&self) -> Publication {
        let body = Body::Whole(self.published.bytes().to_vec());
        Publication { epoch: self.epoch, sequence: self.sequence, body }
    }

    /// The filter of a receiver that missed nothing.
    pub fn published(&self) -> &Filter {
        &self.published
    }
}

/// Why a publication was unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// An earlier one was lost: ask for the whole filter.
    Lost,
    /// It does not fit the filter.
    Malformed,
}

/// The receiving side.
#[derive(Clone, Debug)]
pub struct Follower {
    filter: Filter,
    /// Epoch and number of the last applied publication.
    at: Option<(u8, u32)>,
    /// The bits that the last publication changed, if it was not a whole filter.
    changed: Vec<u32>,
    /// Those of the publication before.
    changed_before: Vec<u32>,
}

impl Follower {
    /// For a cache of `capacity` blocks; nothing is known yet.
    pub fn new(bits_per_block: u32, hashes: u32, capacity: u32) -> Self {
        Self::of_shape(Shape::new(bits_per_block, hashes, capacity, 0))
    }

    /// For a cache that publishes filters of this shape; nothing is known yet.
    pub fn of_shape(shape: Shape) -> Self {
        let (changed, changed_before) = (Vec::new(), Vec::new());
        Self { filter: Filter::new(shape), at: None, changed, changed_before }
    }

    /// Applies a publication.
    ///
    /// # Errors
    /// The publication is unusable; the filter is unchanged.
    pub fn apply(&mut self, publication: &Publication) -> Result<(), Unusable> {
        let Publication { epoch, sequence, body } = publication;
        match body {
            Body::Whole(bytes) => {
                let shape = Shape { seed: u64::from(*epoch), ..self.filter.shape() };
                self.filter = Filter::of_bytes(shape, bytes).ok_or(Unusable::Malformed)?;
                self.changed_before = std::mem::take(&mut self.changed);
            }
            Body::Changes(coded) => {
                let follows = |(e, s): (u8, u32)| e == *epoch && s.wrapping_add(1) == *sequence;
                if !self.at.is_some_and(follows) {
                    return Err(Unusable::Lost);
                }
                let positions = positions(coded, self.filter.shape().bits);
                let positions = positions.ok_or(Unusable::Malformed)?;
                self.changed_before = std::mem::replace(&mut self.changed, positions);
                self.changed.iter().for_each(|&position| self.filter.flip(position));
            }
        }
        self.at = Some((*epoch, *sequence));
        Ok(())
    }

    /// Whether the neighbour may hold a block.
    pub fn holds(&self, block: u64) -> bool {
        self.filter.holds(block)
    }

    /// The positions that the last publication changed; empty after a whole filter.
    pub fn changed(&self) -> &[u32] {
        &self.changed
    }

    /// The positions that the publication before the last one changed.
    pub(super) fn changed_before(&self) -> &[u32] {
        &self.changed_before
    }

    /// The neighbour's bits as far as known.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }
}

fn flip(bits: &mut [u64], position: u32) {
    bits[position as usize / 64] ^= 1 << (position % 64);
}

fn put_number(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Decodes positions; `None` if they are malformed or not all below `bits`.
fn positions(mut coded: &[u8], bits: u32) -> Option<Vec<u32>> {
    let mut positions = Vec::new();
    let mut next = 0_u64;
    while !coded.is_empty() {
        let mut number = 0_u64;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = coded.split_first()?;
            coded = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            // A position takes at most five bytes.
            if shift >= 28 {
                return None;
            }
        }
        let position = next + number;
        if position >= u64::from(bits) {
            return None;
        }
        positions.push(position as u32);
        next = position + 1;
    }
    Some(positions)
}
