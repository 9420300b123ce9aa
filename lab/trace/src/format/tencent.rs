//! Tencent's block traces (SNIA, 2018): `Timestamp,Offset,Size,IOType,VolumeID`, with or without
//! that line as a header. The time is in seconds since 1970, offset and size are sectors of 512
//! bytes, the type is 0 for a read and 1 for a write.

use crate::format::spaces::Spaces;
use crate::format::spc::open_disk;
use crate::format::text::{
    Fields, Parse, TextFormat, check_request, expected, sectors, whole, without_zeros,
};
use crate::format::{Entry, FIRST_LINES, Fit, Format, Sample};
use crate::{Op, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "tencent",
        about: "Tencent's block traces: seconds, sector, sectors, 0 or 1 (a write), volume",
        extensions: &["tencent", "csv"],
        options: "",
        writable: false,
    },
    fits,
    open: |input, _| open_disk(input, "tencent", Tencent),
    create: None,
};

const HEADER: &[u8] = b"Timestamp,Offset,Size,IOType,VolumeID";

/// Five numbers may be anything: the first must be a time since 2014.
fn fits(sample: &Sample) -> Fit {
    let is_time = |line: &[u8]| {
        let seconds = Fields::split(line, b',').number("").unwrap_or_default();
        line == HEADER || (1_400_000_000..2_200_000_000).contains(&seconds)
    };
    sample.parses(Tencent).min(Fit::of(sample.lines().take(FIRST_LINES).map(is_time)))
}

struct Tencent;

impl TextFormat for Tencent {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        if line == HEADER {
            return Ok(None);
        }
        let mut fields = Fields::split(line, b',');
        let time_ns = fields.decimal("time in seconds", 9)?;
        let address = sectors(fields.number("sector")?)?;
        let length = sectors(fields.number("number of sectors")?)?;
        let op = match fields.text() {
            b"0" => Op::Read,
            b"1" => Op::Write,
            other => return expected("type 0 or 1", other),
        };
        let volume = fields.text();
        if whole(volume).is_none() {
            return expected("volume, a whole number", volume);
        }
        fields.end()?;
        check_request(Unit::Bytes, address, length)?;
        let space = spaces.number(without_zeros(volume))?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }
}
