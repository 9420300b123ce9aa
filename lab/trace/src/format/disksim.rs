//! DiskSim ASCII: `time device sector sectors flags`, separated by blanks. Sectors are of 512
//! bytes; bit 0 of the flags is set for a read, other bits are ignored.
//!
//! DiskSim itself writes the time in milliseconds with decimals; the same layout is in use with
//! whole nanoseconds (by MQSim). The first line decides: a decimal point there means milliseconds,
//! none means nanoseconds. A decimal point later in a file of whole nanoseconds is damage.

use crate::format::spaces::Spaces;
use crate::format::spc::open_disk;
use crate::format::text::{
    Fields, Parse, TextFormat, check_request, expected, sectors, whole, without_zeros,
};
use crate::format::{Entry, Format};
use crate::{Op, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "disksim",
        about: "DiskSim ASCII: time (ms with decimals, else ns), device, sector, sectors, flags",
        extensions: &["trace", "disksim", "ascii"],
        options: "",
        writable: false,
    },
    fits: |sample| sample.parses(DiskSim::default()),
    open: |input, _| open_disk(input, "disksim", DiskSim::default()),
    create: None,
};

#[derive(Default)]
struct DiskSim {
    /// Decimal places that turn the time into nanoseconds, once the first line has told.
    places: Option<u32>,
}

impl TextFormat for DiskSim {
    #[inline]
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let places = *self
            .places
            .get_or_insert_with(|| if Fields::blanks(line).text().contains(&b'.') { 6 } else { 0 });
        let mut fields = Fields::blanks(line);
        let time_ns = match places {
            0 => fields.number("time in ns, as on the first line")?,
            _ => fields.decimal("time in ms", places)?,
        };
        let device = fields.text();
        if whole(device).is_none() {
            return expected("device, a whole number", device);
        }
        let address = sectors(fields.number("first sector")?)?;
        let length = sectors(fields.number("number of sectors")?)?;
        let op = if fields.number("flags")? & 1 == 1 { Op::Read } else { Op::Write };
        fields.end()?;
        check_request(Unit::Bytes, address, length)?;
        let space = spaces.number(without_zeros(device))?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }
}
