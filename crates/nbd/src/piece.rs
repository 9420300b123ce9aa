//! The data of a read: pieces that are sent without copying.

use bytes::{Buf, Bytes};
use undercroft_frames::Frame;

/// Bytes that stay unchanged in memory while this handle exists.
#[derive(Clone, Debug)]
pub struct Piece(Place);

#[derive(Clone, Debug)]
enum Place {
    Bytes(Bytes),
    /// The bytes `from..to` of a frame.
    Frame {
        frame: Frame,
        from: u32,
        to: u32,
    },
}

impl Piece {
    /// The bytes `from..to` of a frame.
    ///
    /// # Panics
    /// The frame is shorter than that.
    pub fn of_frame(frame: Frame, from: usize, to: usize) -> Piece {
        assert!(from <= to && to <= frame.as_ref().len(), "within the frame");
        // A frame has at most 2 MiB.
        Piece(Place::Frame { frame, from: from as u32, to: to as u32 })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Place::Bytes(bytes) => bytes.len(),
            Place::Frame { from, to, .. } => (to - from) as usize,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes if they lie in a frame, which releases the frame.
    pub(crate) fn leave_frame(&mut self) {
        if let Place::Frame { .. } = self.0 {
            self.0 = Place::Bytes(Bytes::copy_from_slice(self.as_ref()));
        }
    }

    /// Drops the first bytes.
    ///
    /// # Panics
    /// There are fewer than `count` bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        assert!(count <= self.len(), "no more than there are");
        match &mut self.0 {
            Place::Bytes(bytes) => bytes.advance(count),
            Place::Frame { from, .. } => *from += count as u32,
        }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Place::Bytes(bytes) => bytes,
            Place::Frame { frame, from, to } => &frame.as_ref()[*from as usize..*to as usize],
        }
    }
}

impl Default for Piece {
    /// No bytes.
    fn default() -> Piece {
        Bytes::new().into()
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Piece {
        Piece(Place::Bytes(bytes))
    }
}

/// Successive pieces. A single one, the usual answer, needs no allocation.
#[derive(Clone, Debug)]
pub enum Pieces {
    /// A single piece.
    One(Piece),
    /// Any number of pieces.
    Several(Vec<Piece>),
}

impl Default for Pieces {
    /// No pieces.
    fn default() -> Pieces {
        Pieces::Several(Vec::new())
    }
}

impl Pieces {
    /// Appends a piece.
    #[inline]
    pub fn push(&mut self, piece: Piece) {
        match self {
            Pieces::Several(pieces) if pieces.capacity() == 0 => *self = Pieces::One(piece),
            Pieces::Several(pieces) => pieces.push(piece),
            Pieces::One(first) => {
                let first = std::mem::take(first);
                *self = Pieces::Several(vec![first, piece]);
            }
        }
    }

    fn as_slice(&self) -> &[Piece] {
        match self {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Several(pieces) => pieces,
        }
    }

    /// The pieces.
    pub fn iter(&self) -> std::slice::Iter<'_, Piece> {
        self.as_slice().iter()
    }

    /// The pieces, with mutable access.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Piece> {
        match self {
            Pieces::One(piece) => std::slice::from_mut(piece).iter_mut(),
            Pieces::Several(pieces) => pieces.iter_mut(),
        }
    }

    /// Number of pieces.
    pub fn count(&self) -> usize {
        self.as_slice().len()
    }

    /// Total length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Pieces::One(piece) => piece.len() as u64,
            Pieces::Several(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of all bytes.
    pub fn concat(&self) -> Vec<u8> {
        let pieces: Vec<&[u8]> = self.iter().map(AsRef::as_ref).collect();
        pieces.concat()
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Pieces {
        Pieces::One(bytes.into())
    }
}

impl From<Vec<Bytes>> for Pieces {
    fn from(bytes: Vec<Bytes>) -> Pieces {
        bytes.into_iter().map(Piece::from).collect()
    }
}

impl FromIterator<Piece> for Pieces {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Pieces {
        Pieces::Several(pieces.into_iter().collect())
    }
}

impl IntoIterator for Pieces {
    type Item = Piece;
    type IntoIter = std::vec::IntoIter<Piece>;

    fn into_iter(self) -> Self::IntoIter {
        match self {
            Pieces::One(piece) => vec![piece],
            Pieces::Several(pieces) => pieces,
        }
        .into_iter()
    }
}

/// Compares the bytes; how they are split does not matter.
impl PartialEq for Pieces {
    fn eq(&self, other: &Pieces) -> bool {
        self.concat() == other.concat()
    }
}

impl Eq for Pieces {}

#[cfg(test)]
mod tests {
    use undercroft_frames::Memory;

    use super::*;

    #[test]
    fn pieces_are_bytes_wherever_they_lie() {
        let pool = Memory::new(4096).unwrap().pool(1, 4096).unwrap();
        let mut frame = pool.take().unwrap();
        frame[100..104].copy_from_slice(b"pool");
        let mut piece = Piece::of_frame(frame.freeze(), 100, 104);
        let mut pieces = Pieces::from(Bytes::from_static(b"in a "));
        pieces.push(piece.clone());
        assert_eq!((pieces.len(), pieces.concat()), (9, b"in a pool".to_vec()));
        assert_eq!(pieces, Pieces::from(Bytes::from_static(b"in a pool")));
        piece.advance(3);
        assert_eq!((piece.as_ref(), piece.len()), (&b"l"[..], 1));
        drop(pieces);
        assert_eq!(pool.free_count(), 0, "a handle keeps the frame");
        drop(piece);
        assert_eq!(pool.free_count(), 1);
    }
}
