//! Alibaba's block traces (2020): `device_id,opcode,offset,length,timestamp`, with or without that
//! line as a header. The opcode is `R` or `W`, offset and length are bytes, the time is in
//! microseconds.

use crate::format::spaces::Spaces;
use crate::format::spc::open_disk;
use crate::format::text::{
    Fields, Parse, TextFormat, check_request, expected, whole, without_zeros,
};
use crate::format::{Entry, Format};
use crate::{Op, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "alibaba",
        about: "Alibaba's block traces: device, R or W, byte offset, bytes, microseconds",
        extensions: &["alibaba", "csv"],
        options: "",
        writable: false,
    },
    fits: |sample| sample.parses(Alibaba),
    open: |input, _| open_disk(input, "alibaba", Alibaba),
    create: None,
};

struct Alibaba;

impl TextFormat for Alibaba {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        if line == b"device_id,opcode,offset,length,timestamp" {
            return Ok(None);
        }
        let mut fields = Fields::split(line, b',');
        let device = fields.text();
        if whole(device).is_none() {
            return expected("device, a whole number", device);
        }
        let op = match fields.text() {
            b"R" => Op::Read,
            b"W" => Op::Write,
            other => return expected("opcode R or W", other),
        };
        let address = fields.number("byte offset")?;
        let length = fields.number("length in bytes")?;
        let time_ns = fields.decimal("time in microseconds", 3)?;
        fields.end()?;
        check_request(Unit::Bytes, address, length)?;
        let space = spaces.number(without_zeros(device))?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }
}
