//! What `biosnoop` of bcc prints: a line with the names of its columns, then for each request
//! `TIME(s) COMM PID DISK T SECTOR BYTES`, and times that are not used. The name of the program may
//! have blanks in it, so that a line is read from its end. A space is a disk.
//!
//! Requests that move no data (T is neither `R` nor `W`, or there are no bytes) are left out and
//! counted.

use crate::format::blkparse::direction;
use crate::format::spaces::Spaces;
use crate::format::spc::disk_meta;
use crate::format::text::{
    Lines, Parse, TextFormat, TextReader, check_request, expected, fraction, sectors, whole,
};
use crate::format::{Entry, Format};
use crate::{Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "biosnoop",
        about: "output of bcc's biosnoop, with its line of column names",
        extensions: &["biosnoop"],
        options: "",
        writable: false,
    },
    fits: |sample| sample.parses(Biosnoop::default()),
    open: |input, _| {
        let meta = disk_meta("biosnoop");
        Ok(TextReader::boxed(Lines::new(input), Biosnoop::default(), meta, Spaces::default()))
    },
    create: None,
};

#[derive(Default)]
struct Biosnoop {
    /// Columns from the name of the disk to the end; `None` before the line of names.
    columns: Option<usize>,
    left_out: u64,
}

impl TextFormat for Biosnoop {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let words = || line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(columns) = self.columns else {
            let wish = "column names, as TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)";
            let names: Vec<_> = words().skip_while(|word| *word != b"DISK").collect();
            if !names.starts_with(&[b"DISK", b"T", b"SECTOR", b"BYTES"]) {
                return expected(wish, line);
            }
            self.columns = Some(names.len());
            return Ok(None);
        };
        let fields: Vec<_> = words().collect();
        let Some(start) = fields.len().checked_sub(columns).filter(|&start| start >= 2) else {
            return expected("time, program, process, disk, T, sector, bytes", line);
        };
        let &[disk, rwbs, sector, bytes, ..] = &fields[start..] else {
            return expected("disk, T, sector, bytes", line);
        };
        let Some(time_ns) = fraction(fields[0], 9) else {
            return expected("time in seconds, a decimal number in range", fields[0]);
        };
        let Some(length) = whole(bytes) else {
            return expected("bytes, a whole number", bytes);
        };
        let Some((op, sector)) = direction(rwbs).zip(whole(sector)).filter(|_| length > 0) else {
            self.left_out += 1;
            return Ok(None);
        };
        let address = sectors(sector)?;
        check_request(Unit::Bytes, address, length)?;
        let space = spaces.number(disk)?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}
