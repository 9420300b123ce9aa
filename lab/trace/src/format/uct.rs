//! Reads `.uct`, our own binary format. `crates/recording/src/uct.rs` has its layout and writes it;
//! `docs/developer/file-formats.md` says what is in which byte.

use undercroft_recording::uct::{
    BUFFER, CLIENT, COLUMNS, EVICTION, MAGIC, VERSION, VERSION_WITH_EVICTIONS, WRITE, create,
};

use crate::format::packed::{damaged, eight, four};
use crate::format::spaces::Spaces;
use crate::format::text::{check_request, shown};
use crate::format::{Entry, Format, Options};
use crate::input::{CAPACITY, Input};
use crate::{Error, Meta, Op, Reader, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "uct",
        about: "our compact binary: everything a record can say, checksummed",
        extensions: &["uct"],
        options: "",
        writable: true,
    },
    fits: |sample| sample.bytes.starts_with(MAGIC).into(),
    open,
    create: Some(create),
};

const HEADER: usize = 24;
const CHUNK_HEAD: usize = 8;
/// Longest body: it must fit the input buffer, and no length read from a file may ask for more.
const MAX_BODY: usize = CAPACITY - CHUNK_HEAD - SLACK;
/// Bytes behind a body that we like to be able to look at.
const SLACK: usize = 8;
const MAX_RECORDS: usize = 1 << 16;

fn open(mut input: Input, _: &mut Options) -> Result<Box<dyn Reader>, Error> {
    let bytes = input.peek(HEADER)?;
    let found = shown(&bytes[..bytes.len().min(HEADER)]);
    let meta = (bytes.len() >= HEADER).then(|| header(&bytes[..HEADER]));
    let meta = match meta {
        Some(Ok(meta)) => meta,
        Some(Err(expected)) => return Err(input.damaged(expected, found)),
        None => return Err(input.damaged("a header of 24 bytes", found)),
    };
    input.consume(HEADER);
    Ok(Box::new(Uct { input, meta, spaces: Spaces::default(), count: 0, done: false }))
}

fn header(bytes: &[u8]) -> Result<Meta, String> {
    if !bytes.starts_with(MAGIC) {
        return Err("the magic of a .uct trace".into());
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != VERSION && version != VERSION_WITH_EVICTIONS {
        return Err(format!(
            "version {VERSION} or {VERSION_WITH_EVICTIONS}, not {version} (a newer program reads \
             that)"
        ));
    }
    if crc32fast::hash(&bytes[..20]).to_le_bytes() != four(bytes, 20) {
        return Err("a header that fits its checksum".into());
    }
    let unit = match bytes[10] {
        0 => Unit::Blocks,
        1 => Unit::Bytes,
        _ => return Err("unit 0 or 1 in the header".into()),
    };
    let flags = bytes[11];
    let block_bytes = u32::from_le_bytes(four(bytes, 12));
    Ok(Meta {
        format: "uct",
        unit,
        block_bytes: (block_bytes > 0).then_some(block_bytes),
        has_ops: flags & 1 != 0,
        has_time: flags & 2 != 0,
        has_buffers: flags & 4 != 0,
        has_evictions: version == VERSION_WITH_EVICTIONS,
    })
}

struct Uct {
    input: Input,
    meta: Meta,
    spaces: Spaces,
    count: u64,
    done: bool,
}

impl Reader for Uct {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let before = records.len();
        while !self.done && records.len() == before {
            let length = self.chunk()?;
            // The chunk that follows each chunk of records is the slack behind its last column.
            let bytes = self.input.peek(CHUNK_HEAD + length + SLACK)?;
            let slack = (bytes.len() - CHUNK_HEAD - length).min(SLACK);
            let body = &bytes[CHUNK_HEAD..CHUNK_HEAD + length + slack];
            let end = decode(body, slack, &self.meta, &mut self.spaces, records);
            self.count += (records.len() - before) as u64;
            let end = end.map_err(|wrong| match wrong {
                Wrong::Body(expected) => self.input.damaged(expected, "another"),
                Wrong::Fault(fault) => damaged(&self.input, *fault),
            })?;
            self.input.consume(CHUNK_HEAD + length);
            if let Some(total) = end {
                self.end(total)?;
            }
        }
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        self.spaces.names()
    }
}

impl Uct {
    /// Brings the next chunk into the buffer, checks it, and returns the length of its body.
    fn chunk(&mut self) -> Result<usize, Error> {
        let head = self.input.peek(CHUNK_HEAD)?;
        if head.len() < CHUNK_HEAD {
            let found = format!("the end of the file after {} records", self.count);
            return Err(self.input.damaged("a chunk or the end mark", found));
        }
        let length = u32::from_le_bytes(four(head, 0)) as usize;
        let checksum = u32::from_le_bytes(four(head, 4));
        if length == 0 || length > MAX_BODY {
            let expected = format!("a chunk of 1 to {MAX_BODY} bytes");
            return Err(self.input.damaged(expected, length.to_string()));
        }
        let bytes = self.input.peek(CHUNK_HEAD + length)?;
        if bytes.len() < CHUNK_HEAD + length {
            let found = format!("{} bytes to the end of the file", bytes.len() - CHUNK_HEAD);
            return Err(self.input.damaged(format!("a chunk of {length} bytes"), found));
        }
        let actual = crc32fast::hash(&bytes[CHUNK_HEAD..CHUNK_HEAD + length]);
        if actual != checksum {
            let expected = format!("a chunk with checksum {checksum:08x}");
            return Err(self.input.damaged(expected, format!("{actual:08x}")));
        }
        Ok(length)
    }

    fn end(&mut self, total: u64) -> Result<(), Error> {
        self.done = true;
        if total != self.count {
            return Err(self.input.damaged(format!("{total} records"), self.count.to_string()));
        }
        match self.input.peek(1)? {
            [] => Ok(()),
            rest => {
                let found = shown(&rest[..rest.len().min(16)]);
                Err(self.input.damaged("the end of the file", found))
            }
        }
    }
}

/// What a chunk with a good checksum can still have wrong.
enum Wrong {
    Body(&'static str),
    Fault(Box<crate::format::text::Fault>),
}

/// Appends the records of a body with so many foreign bytes behind it. `Some`: it is the end mark,
/// with the count of all records.
fn decode(
    body: &[u8],
    slack: usize,
    meta: &Meta,
    spaces: &mut Spaces,
    records: &mut Vec<Record>,
) -> Result<Option<u64>, Wrong> {
    if body[0] == 0 && body.len() - slack == 9 {
        return Ok(Some(eight(body, 1)));
    }
    let mut rest = Bytes { rest: &body[1..] };
    let count = rest.u32().ok_or(Wrong::Body("a count of records"))? as usize;
    if body[0] != 1 || count > MAX_RECORDS {
        return Err(Wrong::Body("a chunk of at most 65536 records, or the end mark"));
    }
    let names = rest.u32().ok_or(Wrong::Body("a count of names"))?;
    for _ in 0..names {
        let name = rest.name().ok_or(Wrong::Body("the name of a space"))?;
        spaces.push(name).map_err(Wrong::Fault)?;
    }
    let most_marks = if meta.has_evictions { WRITE | BUFFER | EVICTION } else { WRITE | BUFFER };
    let columns = rest.columns(count, slack, meta.has_evictions);
    let columns = columns.ok_or(Wrong::Body("its columns of numbers"))?;
    records.reserve(count);
    let known = spaces.names().len() as u64;
    if all_good(&columns, meta.unit, known) {
        append(&columns, count, records);
        return Ok(None);
    }
    let before = records.len();
    append(&columns, count, records);
    for index in 0..count {
        let bad_marks = is_bad(columns[MARKS].at(index), most_marks);
        let Record { address, length, client, .. } = records[before + index];
        let bad_client = columns[CLIENT].at(index) != u64::from(client);
        let good = if bad_marks || bad_client || columns[SPACE].at(index) >= known {
            Err(Wrong::Body("the number of a known space, known marks, and a client below 256"))
        } else {
            check_request(meta.unit, address, length).map_err(Wrong::Fault)
        };
        if good.is_err() {
            records.truncate(before + index);
            return good.map(|()| None);
        }
    }
    Ok(None)
}

/// Places of columns in a body.
const MARKS: usize = 1;
const SPACE: usize = 2;
const ADDRESS: usize = 3;
const LENGTH: usize = 4;

/// Whether marks are unknown: a write that is an eviction too, or one with a larger number.
fn is_bad(marks: u64, most: u64) -> bool {
    marks > most || marks & WRITE != 0 && marks & EVICTION != 0
}

/// Whether the bounds of the columns alone rule out a bad record, as they mostly do.
fn all_good(columns: &[Column; COLUMNS], unit: Unit, known: u64) -> bool {
    let most = |column: usize| columns[column].most().unwrap_or(u64::MAX);
    let length = most(LENGTH).saturating_add(1);
    most(MARKS) <= WRITE | BUFFER
        && most(CLIENT) <= u64::from(u8::MAX)
        && most(SPACE) < known
        && check_request(unit, most(ADDRESS), length).is_ok()
}

/// Appends the records of the columns as they are.
fn append(columns: &[Column; COLUMNS], count: usize, records: &mut Vec<Record>) {
    let varies = |column: usize| columns[column].width > 0;
    if count > 0 && (0..columns.len()).all(|column| column == ADDRESS || !varies(column)) {
        // A bare list of block numbers: the other columns never change.
        let (first, address) = (record(columns, 0), columns[ADDRESS]);
        records.extend((0..count).map(|index| Record { address: address.at(index), ..first }));
    } else {
        records.extend((0..count).map(|index| record(columns, index)));
    }
}

#[inline(always)]
fn record(columns: &[Column; COLUMNS], index: usize) -> Record {
    let [time, marks, space, address, length, buffer, client] = columns;
    let mark = marks.at(index);
    Record {
        time_ns: time.at(index),
        op: match mark & (WRITE | EVICTION) {
            0 => Op::Read,
            WRITE => Op::Write,
            _ => Op::Evict,
        },
        space: space.at(index) as u32,
        address: address.at(index),
        length: length.at(index).wrapping_add(1),
        buffer: (mark & BUFFER != 0).then(|| buffer.at(index)),
        client: client.at(index) as u8,
    }
}

/// A cursor over a body.
struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(four(self.take(4)?, 0)))
    }

    fn name(&mut self) -> Option<String> {
        let length = self.take(2)?;
        let name = self.take(usize::from(u16::from_le_bytes([length[0], length[1]])))?;
        String::from_utf8(name.to_owned()).ok()
    }

    /// The columns; nothing may follow them but the slack. Clients are all 0 where there is no
    /// column of them.
    fn columns(
        &mut self,
        count: usize,
        slack: usize,
        has_clients: bool,
    ) -> Option<[Column<'a>; COLUMNS]> {
        let mut columns = [Column { base: 0, width: 0, mask: 0, bytes: &[] }; COLUMNS];
        let there = if has_clients { COLUMNS } else { CLIENT };
        for column in &mut columns[..there] {
            let base = eight(self.take(8)?, 0);
            let width = usize::from(self.take(1)?[0]);
            let mask = u64::MAX.checked_shr(64 - 8 * width.min(8) as u32).unwrap_or(0);
            *column = Column { base, width, mask, bytes: self.rest };
            self.take(if width <= 8 { width * count } else { return None })?;
        }
        (self.rest.len() == slack).then_some(columns)
    }
}

#[derive(Clone, Copy)]
struct Column<'a> {
    base: u64,
    width: usize,
    mask: u64,
    /// The differences, and all that follows them.
    bytes: &'a [u8],
}

impl Column<'_> {
    /// No number of the column is larger.
    fn most(&self) -> Option<u64> {
        self.base.checked_add(self.mask)
    }

    /// Reads eight bytes and forgets those behind the number: far quicker than to copy few.
    #[inline]
    fn at(&self, index: usize) -> u64 {
        let start = index * self.width;
        let number = match self.bytes.get(start..start + 8) {
            Some(bytes) => eight(bytes, 0) & self.mask,
            None => self.last(start),
        };
        self.base.wrapping_add(number)
    }

    /// Reads a number at the end of the input, where there are no eight bytes.
    #[cold]
    #[inline(never)]
    fn last(&self, start: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..self.width].copy_from_slice(&self.bytes[start..start + self.width]);
        u64::from_le_bytes(bytes)
    }
}
