//! lcs, the binary format of newer versions of libCacheSim: a header of 8192 bytes, then packed
//! little-endian records.
//!
//! | header | |
//! |---|---|
//! | u64 at 0, u64 at 8184 | 0x123456789abcdef0 |
//! | u64 at 8 | version, 1 to 8 |
//! | i64 at 24 | number of records |
//!
//! The other numbers of the header are statistics, not used. A record:
//!
//! | version 1, 24 bytes | version 2, 28 bytes | versions 3 to 8 |
//! |---|---|---|
//! | u32 time in seconds | u32 time | u32 time |
//! | u64 object | u64 object | u64 object |
//! | u32 size | u32 size | i64 size |
//! | | u8 operation, u24 tenant | u8 operation, u24 tenant |
//! | | | u32 time to live |
//! | i64 next access | i64 next access | i64 next access |
//! | | | version 4 and later: 1, 2, 4, 8 or 16 times u32 |
//!
//! As in oracleGeneral one object is one block, whatever its size, and the next access is not used.
//! All tenants together are one space: an object is the same for all. Operations are numbered: 0
//! none (counted as a read), 1 get, 2 gets, 3 set, 4 add, 5 cas, 6 replace, 7 append, 8 prepend,
//! 9 delete, 10 increment, 11 decrement, 12 read, 13 write, 14 update. A delete moves no data.
//!
//! Before that layout was made, a header of 1024 bytes with a description of the fields bore the
//! same magic number. Such a file is refused by name.

use crate::format::lis::bare_meta;
use crate::format::packed::{Packed, eight, four};
use crate::format::text::{Parse, check_request, expected, left_out, shown};
use crate::format::{Entry, Format, Options};
use crate::input::Input;
use crate::{Error, Meta, Op, Reader, Reason, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "lcs",
        about: "libCacheSim binary with a header, versions 1 to 8",
        extensions: &["lcs"],
        options: "",
        writable: false,
    },
    fits: |sample| sample.bytes.starts_with(&MAGIC).into(),
    open,
    create: None,
};

const MAGIC: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();
const HEADER: usize = 8192;
/// Where the version and the number of records are.
const VERSION: usize = 8;
const RECORDS: usize = 24;
/// Bytes of a record, by version.
const SIZES: [usize; 9] = [0, 24, 28, 36, 40, 44, 52, 68, 100];

fn open(mut input: Input, _: &mut Options) -> Result<Box<dyn Reader>, Error> {
    let bytes = input.peek(HEADER)?;
    if !bytes.starts_with(&MAGIC) {
        let found = shown(&bytes[..bytes.len().min(16)]);
        return Err(input.damaged("the magic number of lcs", found));
    }
    if bytes.get(VERSION) == Some(&b'<') {
        let why = "this is lcs as it was before its header had a version: write it anew with \
                   libCacheSim";
        return Err(Error::Format(format!("{}: {why}", input.path().display())));
    }
    if bytes.len() < HEADER {
        let found = format!("{} bytes to the end of the file", bytes.len());
        return Err(input.damaged(format!("a header of {HEADER} bytes"), found));
    }
    let version = eight(bytes, VERSION);
    let count = eight(bytes, RECORDS);
    if bytes[HEADER - MAGIC.len()..HEADER] != MAGIC {
        return Err(input.damaged("the magic number at the end of the header too", "another"));
    }
    let size = usize::try_from(version).ok().and_then(|version| SIZES.get(version).copied());
    let Some(size) = size.filter(|&size| size > 0) else {
        return Err(input.damaged("version 1 to 8 of lcs", version.to_string()));
    };
    input.consume(HEADER);
    let meta = Meta { has_ops: version > 1, has_time: true, ..bare_meta("lcs") };
    Ok(Packed::boxed(input, meta, size, count, move |bytes: &[u8]| parse(bytes, version)))
}

fn parse(bytes: &[u8], version: u64) -> Parse<Record> {
    let operation = match version {
        1 => 0,
        2 => bytes[16],
        _ => bytes[20],
    };
    let op = match operation {
        0 | 1 | 2 | 12 => Op::Read,
        3..=8 | 10 | 11 | 13 | 14 => Op::Write,
        9 => return left_out(Reason::Operation),
        other => {
            return expected("an operation from 0 to 14", other.to_string().as_bytes());
        }
    };
    let time_ns = u64::from(u32::from_le_bytes(four(bytes, 0))) * 1_000_000_000;
    let address = eight(bytes, 4);
    check_request(Unit::Blocks, address, 1)?;
    Ok(Record { time_ns, op, space: 0, address, length: 1, buffer: None, client: 0 })
}
