//! What `biosnoop` of bcc prints: a line with the names of its columns, then for each request
//! `TIME(s) COMM PID DISK T SECTOR BYTES`, and times that are not used. The name of the program may
//! have blanks in it, so that a line is read from its end. A space is a disk. Requests whose disk
//! the kernel did not tell have none in their row, which is a word shorter: together they are one
//! space, `no disk`.
//!
//! Requests that move no data (T is neither `R` nor `W`, or there are no bytes) are left out and
//! counted. The line of names may come again: several outputs in one file.

use crate::format::blkparse::direction;
use crate::format::spaces::Spaces;
use crate::format::spc::open_disk;
use crate::format::text::{
    Parse, TextFormat, check_request, expected, fraction, left_out, sectors, whole,
};
use crate::format::{Entry, Format};
use crate::{Reason, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "biosnoop",
        about: "output of bcc's biosnoop, with its line of column names",
        extensions: &["biosnoop"],
        options: "",
        writable: false,
    },
    fits: |sample| sample.parses(Biosnoop::default()),
    open: |input, _| open_disk(input, "biosnoop", Biosnoop::default()),
    create: None,
};

#[derive(Default)]
struct Biosnoop {
    /// Columns from the name of the disk to the end; `None` before the line of names.
    columns: Option<usize>,
}

impl TextFormat for Biosnoop {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let fields: Vec<_> = words.collect();
        let disk = fields.iter().position(|&word| word == b"DISK");
        let names = disk.map_or(&[][..], |disk| &fields[disk..]);
        if names.starts_with(&[b"DISK", b"T", b"SECTOR", b"BYTES"]) {
            self.columns = Some(names.len());
            return Ok(None);
        }
        let Some(columns) = self.columns else {
            let wish = "column names, as TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)";
            return expected(wish, line);
        };
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
        let Some(operation) = direction(rwbs) else {
            return expected("T, an operation as R, WS or D", rwbs);
        };
        let Some(op) = operation else {
            return left_out(Reason::Operation);
        };
        if length == 0 {
            return left_out(Reason::Empty);
        }
        let Some(sector) = whole(sector) else {
            return expected("sector, a whole number", sector);
        };
        let address = sectors(sector)?;
        check_request(Unit::Bytes, address, length)?;
        // Where there is no disk, the process id is in its place, and no disk is called a number.
        let disk = if whole(disk).is_some() { b"no disk" } else { disk };
        let space = spaces.number(disk)?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }
}
