//! The first page of a device or file for flash: what it is, so that nothing else is overwritten.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the page.
pub const PAGE_BYTES: usize = 4096;

/// Bytes at the start of a device that hold no slots.
pub const HEAD_BYTES: u64 = 1 << 20;

/// Bytes of the smallest device that makes sense.
pub const DEVICE_MIN_BYTES: u64 = 2 * HEAD_BYTES;

const MAGIC: &[u8; 16] = b"undercroft flash";

/// The layout that is written here. Another number is another layout, which is refused.
const VERSION: u32 = 2;

/// Where the parts of the page lie.
const VERSION_AT: usize = 16;
const BYTES_AT: usize = 24;
const ID_AT: usize = 32;
const CHECK_AT: usize = PAGE_BYTES - 8;

/// What is known of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Bytes that are used, the head included.
    pub bytes: u64,
    /// Its identity.
    pub id: u64,
}

/// What the first page of a device can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstPage {
    /// That of a device for flash.
    Ours(Superblock),
    /// That of a device for flash with another layout, of this version.
    OtherVersion(u32),
    /// Ours, and damaged.
    Damaged,
    /// Zeroes.
    Empty,
    /// Something else.
    Foreign,
}

impl Superblock {
    /// The page.
    pub fn page(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[..MAGIC.len()].copy_from_slice(MAGIC);
        page[VERSION_AT..VERSION_AT + 4].copy_from_slice(&VERSION.to_le_bytes());
        page[BYTES_AT..BYTES_AT + 8].copy_from_slice(&self.bytes.to_le_bytes());
        page[ID_AT..ID_AT + 8].copy_from_slice(&self.id.to_le_bytes());
        let check = xxh3_64(&page[..CHECK_AT]);
        page[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        page
    }

    /// What a first page says, with as much of what follows as is to be zero on an empty device; a
    /// short one is foreign.
    pub fn read(page: &[u8]) -> FirstPage {
        let number =
            |at: usize| page[at..at + 8].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        if page.len() < PAGE_BYTES {
            return FirstPage::Foreign;
        }
        if page[..MAGIC.len()] != *MAGIC {
            let is_empty = page.iter().all(|&byte| byte == 0);
            return if is_empty { FirstPage::Empty } else { FirstPage::Foreign };
        }
        if number(CHECK_AT) != xxh3_64(&page[..CHECK_AT]) {
            return FirstPage::Damaged;
        }
        match number(VERSION_AT) as u32 {
            VERSION => FirstPage::Ours(Self { bytes: number(BYTES_AT), id: number(ID_AT) }),
            other => FirstPage::OtherVersion(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_again_and_nothing_else_is() {
        let own = Superblock { bytes: 1 << 30, id: 77 };
        let page = own.page();
        assert_eq!(Superblock::read(&page), FirstPage::Ours(own));
        for at in [17, 30, 40, 4000, PAGE_BYTES - 1] {
            let mut torn = page.clone();
            torn[at] ^= 1;
            assert_eq!(Superblock::read(&torn), FirstPage::Damaged);
        }
        assert_eq!(Superblock::read(&[0; PAGE_BYTES]), FirstPage::Empty);
        assert_eq!(Superblock::read(&[7; PAGE_BYTES]), FirstPage::Foreign);
        assert_eq!(Superblock::read(&page[..100]), FirstPage::Foreign);
        let mut later = page;
        later[VERSION_AT] = 9;
        let check = xxh3_64(&later[..CHECK_AT]);
        later[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        assert_eq!(Superblock::read(&later), FirstPage::OtherVersion(9));
    }
}
