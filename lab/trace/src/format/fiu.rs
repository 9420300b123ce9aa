//! FIU text (the I/O deduplication traces): `time-ns pid process sector sectors R|W major minor
//! [md5]`, separated by blanks. Sectors are of 512 bytes; the MD5 of the content is not used. A
//! space is a device, called `major,minor`.
//!
//! A process name can hold blanks, so a line is read from both ends.

use crate::format::spaces::Spaces;
use crate::format::spc::open_disk;
use crate::format::text::{
    Fields, Parse, TextFormat, check_request, expected, sectors, whole, without_zeros,
};
use crate::format::{Entry, Format};
use crate::{Op, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "fiu",
        about: "FIU text: ns, pid, process, sector, sectors, R or W, major, minor, md5",
        extensions: &["fiu", "blkparse"],
        options: "",
        writable: false,
    },
    fits: |sample| sample.parses(Fiu::default()),
    open: |input, _| open_disk(input, "fiu", Fiu::default()),
    create: None,
};

#[derive(Default)]
struct Fiu {
    key: Vec<u8>,
}

impl TextFormat for Fiu {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let mut fields = Fields::blanks(line);
        let time_ns = fields.number("time in ns")?;
        fields.number("process id")?;
        let [sector, count, op, major, minor] = tail(fields.rest())?;
        let number = |field, what: &str| match whole(field) {
            Some(number) => Ok(number),
            None => expected(format!("{what}, a whole number"), field),
        };
        let address = sectors(number(sector, "first sector")?)?;
        let length = sectors(number(count, "number of sectors")?)?;
        let op = match op {
            b"R" | b"r" => Op::Read,
            b"W" | b"w" => Op::Write,
            other => return expected("R or W", other),
        };
        number(major, "major device number")?;
        number(minor, "minor device number")?;
        check_request(Unit::Bytes, address, length)?;
        device_key(&mut self.key, major, minor);
        let space = spaces.number(&self.key)?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }
}

/// The five fields before the content hash, behind a process name that is not empty.
fn tail(rest: &[u8]) -> Parse<[&[u8]; 5]> {
    let blank = |byte: &u8| byte.is_ascii_whitespace();
    let mut words = rest.rsplit(blank).filter(|word| !word.is_empty()).peekable();
    let is_hash = |word: &&[u8]| word.len() == 32 && word.iter().all(u8::is_ascii_hexdigit);
    words.next_if(is_hash);
    let mut fields = [&b""[..]; 5];
    for field in fields.iter_mut().rev() {
        *field = words.next().unwrap_or_default();
    }
    if words.next().is_none() {
        return expected("process, sector, sectors, R or W, major, minor", rest);
    }
    Ok(fields)
}

/// Canonical name of a device.
#[inline]
pub(crate) fn device_key(key: &mut Vec<u8>, major: &[u8], minor: &[u8]) {
    key.clear();
    key.extend_from_slice(without_zeros(major));
    key.push(b',');
    key.extend_from_slice(without_zeros(minor));
}
