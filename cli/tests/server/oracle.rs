//! What each block of a volume may hold after its server was killed, known from outside: from
//! what was sent, what was answered, and what FLUSH and FUA covered.

use std::fmt::Write;

use undercroft_random::mix;

/// The unit that the oracle thinks in, in bytes: nothing smaller is ever written.
pub(crate) const BLOCK: usize = 4096;

/// The unit in which a torn block is understood, in bytes.
const SECTOR: usize = 512;

/// What is known of one block. Versions grow with every write; 0 is the empty volume.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// What it held when the server began: the lowest and the highest version of its sectors.
    base: (u32, u32),
    /// The first version that is sent to this server. Those between `base` and this one were
    /// lost with an earlier server, and must not come back.
    first: u32,
    /// Writes that are not answered.
    in_flight: u32,
    /// The last version sent.
    sent: u32,
    /// The last version answered.
    answered: u32,
    /// The last version that must not be lost.
    sure: u32,
}

/// All blocks of a volume.
#[derive(Clone)]
pub(crate) struct Oracle {
    blocks: Vec<Known>,
    /// Whether an answer alone is a promise (the server's death is not the machine's).
    answers_stay: bool,
}

/// What of a volume a FLUSH covers: what was answered when it was sent.
pub(crate) struct Covered(Vec<u32>);

/// What was found after a kill.
#[derive(Default)]
pub(crate) struct Found {
    /// What must not be, for people; one line each.
    pub(crate) wrong: String,
    /// Blocks that lost a version that was answered, rightly.
    pub(crate) lost: usize,
    /// Blocks that hold parts of versions that were in flight.
    pub(crate) torn: usize,
}

/// Content of a block at a version: each sector says what it is.
pub(crate) fn content(block: usize, version: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK);
    if version == 0 {
        bytes.resize(BLOCK, 0);
        return bytes;
    }
    for sector in 0..BLOCK / SECTOR {
        bytes.extend_from_slice(&(block as u64).to_le_bytes());
        bytes.extend_from_slice(&(u64::from(version) << 8 | sector as u64).to_le_bytes());
        let start = (block as u64) << 40 ^ u64::from(version) << 8 ^ (sector as u64) << 60;
        for word in 2..SECTOR as u64 / 8 {
            bytes.extend_from_slice(&mix(start ^ word << 48).to_le_bytes());
        }
    }
    bytes
}

/// The version of each sector of a block; none: it is no content of this block.
fn versions(block: usize, bytes: &[u8]) -> Option<Vec<u32>> {
    let of_sector = |(number, sector): (usize, &[u8])| {
        let word = u64::from_le_bytes(sector[8..16].try_into().unwrap());
        let version = u32::try_from(word >> 8).ok()?;
        let right = &content(block, version)[number * SECTOR..][..SECTOR];
        (sector == right).then_some(version)
    };
    bytes.chunks(SECTOR).enumerate().map(of_sector).collect()
}

impl Oracle {
    /// Of an empty volume.
    pub(crate) fn new(blocks: usize, answers_stay: bool) -> Oracle {
        let empty = Known { first: 1, ..Known::default() };
        Oracle { blocks: vec![empty; blocks], answers_stay }
    }

    /// A write of these blocks is about to be sent: its bytes, and the version of each block.
    pub(crate) fn send(&mut self, start: usize, count: usize) -> (Vec<u8>, Vec<u32>) {
        let mut bytes = Vec::with_capacity(count * BLOCK);
        let mut versions = Vec::with_capacity(count);
        for block in start..start + count {
            let known = &mut self.blocks[block];
            known.sent += 1;
            known.in_flight += 1;
            versions.push(known.sent);
            bytes.extend_from_slice(&content(block, known.sent));
        }
        (bytes, versions)
    }

    /// A write was answered.
    pub(crate) fn answered(&mut self, start: usize, versions: &[u32], fua: bool) {
        for (known, &version) in self.blocks[start..].iter_mut().zip(versions) {
            known.in_flight -= 1;
            known.answered = known.answered.max(version);
            if fua || self.answers_stay {
                known.sure = known.sure.max(version);
            }
        }
    }

    /// A FLUSH is about to be sent.
    pub(crate) fn covered(&self) -> Covered {
        Covered(self.blocks.iter().map(|known| known.answered).collect())
    }

    /// A FLUSH was answered.
    pub(crate) fn flushed(&mut self, covered: &Covered) {
        for (known, &version) in self.blocks.iter_mut().zip(&covered.0) {
            known.sure = known.sure.max(version);
        }
    }

    /// What a read of a block that is about to be sent may not be older than.
    pub(crate) fn floor(&self, block: usize) -> u32 {
        let known = &self.blocks[block];
        known.base.0.max(known.answered)
    }

    /// Looks at what a read brought of a block, if it may not be older than `floor`.
    pub(crate) fn check_read(&self, block: usize, floor: u32, bytes: &[u8]) -> Result<(), String> {
        let known = self.blocks[block];
        let Some(versions) = versions(block, bytes) else {
            return Err(format!("block {block}: foreign bytes; {known:?}"));
        };
        match versions.iter().find(|&&v| v < floor || v > known.sent) {
            None => Ok(()),
            Some(wrong) => {
                Err(format!("block {block}: read version {wrong}, not before {floor}; {known:?}"))
            }
        }
    }

    /// Compares a volume after a kill, and goes on from what it holds.
    pub(crate) fn check(&mut self, volume: &[u8]) -> Found {
        let mut found = Found::default();
        assert_eq!(volume.len(), self.blocks.len() * BLOCK);
        for (block, (known, bytes)) in self.blocks.iter_mut().zip(volume.chunks(BLOCK)).enumerate()
        {
            let Some(versions) = versions(block, bytes) else {
                let _ = writeln!(found.wrong, "block {block}: foreign bytes; {known:?}");
                continue;
            };
            let (lowest, highest) =
                (*versions.iter().min().unwrap(), *versions.iter().max().unwrap());
            if let Some(&version) = versions.iter().find(|version| !known.allows(**version)) {
                let _ = writeln!(found.wrong, "block {block}: holds version {version}; {known:?}");
            }
            if lowest != highest {
                found.torn += 1;
                if known.in_flight == 0 && known.base.0 == known.base.1 {
                    let _ = writeln!(found.wrong, "block {block}: torn, {versions:?}; {known:?}");
                }
            }
            found.lost += usize::from(lowest < known.answered);
            let (base, sent) = ((lowest, highest), known.sent);
            *known = Known { base, first: sent + 1, sent, sure: lowest, ..Known::default() };
        }
        found
    }
}

impl Known {
    fn allows(&self, version: u32) -> bool {
        let known = (self.base.0..=self.base.1).contains(&version)
            || (self.first..=self.sent).contains(&version);
        known && version >= self.sure
    }
}

#[test]
fn the_oracle_sees_what_is_wrong() {
    let mut oracle = Oracle::new(2, false);
    let mut volume = [content(0, 0), content(1, 0)].concat();
    let (bytes, versions) = oracle.send(0, 2);
    volume.copy_from_slice(&bytes);
    oracle.answered(0, &versions, false);
    let covered = oracle.covered();
    let (newer, versions) = oracle.send(1, 1);
    oracle.answered(1, &versions, false);
    oracle.flushed(&covered);
    // Block 1 may hold version 1 (flushed) or 2 (answered), and nothing else.
    for (bytes, part) in [
        (content(1, 1), ""),
        (newer.clone(), ""),
        (content(1, 0), "block 1: holds version 0"),
        (content(1, 3), "block 1: holds version 3"),
        (content(0, 1), "block 1: foreign bytes"),
        ([&newer[..SECTOR], &content(1, 1)[SECTOR..]].concat(), "block 1: torn"),
    ] {
        let mut again = Oracle { blocks: oracle.blocks.clone(), answers_stay: false };
        volume[BLOCK..].copy_from_slice(&bytes);
        let wrong = again.check(&volume).wrong;
        assert!(wrong.starts_with(part) && wrong.is_empty() == part.is_empty(), "{part}: {wrong}");
    }
    // What was lost must not come back.
    volume[BLOCK..].copy_from_slice(&content(1, 1));
    assert_eq!(oracle.check(&volume).lost, 1);
    oracle.send(1, 1);
    volume[BLOCK..].copy_from_slice(&newer);
    assert!(oracle.check(&volume).wrong.contains("holds version 2"));
}
