//! fio's log of its requests (`--write_iolog`): a line with the version, then `file action` and
//! `file action offset length`, in version 3 with microseconds in front. Offset and length are
//! bytes. A space is a file.
//!
//! Opening and closing a file and waiting are no requests. The forms of `sync`, and `trim`, move no
//! data: they are left out and counted. The first line may come again: several logs in one file.

use crate::format::spaces::Spaces;
use crate::format::spc::disk_meta;
use crate::format::text::{
    Fields, Lines, Parse, TextFormat, TextReader, check_request, expected, left_out, shown,
};
use crate::format::{Entry, Format, Options};
use crate::input::Input;
use crate::{Error, Meta, Op, Reader, Reason, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "iolog",
        about: "fio's log of requests (write_iolog), version 2 or 3",
        extensions: &["iolog"],
        options: "",
        writable: false,
    },
    fits: |sample| sample.lines().next().and_then(has_times).is_some().into(),
    open,
    create: None,
};

/// Whether lines begin with a time, as the first line of the file tells; `None`: it is another
/// file.
fn has_times(first: &[u8]) -> Option<bool> {
    match first.trim_ascii() {
        b"fio version 2 iolog" => Some(false),
        b"fio version 3 iolog" => Some(true),
        _ => None,
    }
}

fn open(input: Input, _: &mut Options) -> Result<Box<dyn Reader>, Error> {
    let mut lines = Lines::new(input);
    let first = lines.next()?.unwrap_or_default();
    let Some(has_time) = has_times(first) else {
        let found = shown(first);
        let why = format!("expected \"fio version 2 iolog\", or 3, as the first line, not {found}");
        return Err(lines.unfit(&why));
    };
    let meta = Meta { has_time, ..disk_meta("iolog") };
    Ok(TextReader::boxed(lines, Iolog { has_time }, meta, Spaces::default()))
}

struct Iolog {
    has_time: bool,
}

impl TextFormat for Iolog {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        if let Some(has_time) = has_times(line) {
            let version = if self.has_time { "fio version 3 iolog" } else { "fio version 2 iolog" };
            return if has_time == self.has_time { Ok(None) } else { expected(version, line) };
        }
        let mut fields = Fields::blanks(line);
        let time_ns = if self.has_time { fields.decimal("time in microseconds", 3)? } else { 0 };
        let file = fields.text();
        let op = match fields.text() {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"sync" | b"datasync" | b"sync_file_range" | b"syncfs" | b"trim" => {
                return left_out(Reason::Operation);
            }
            b"add" | b"open" | b"close" | b"wait" => return Ok(None),
            other => return expected("an action of fio, as read or write", other),
        };
        let address = fields.number("byte offset")?;
        let length = fields.number("length in bytes")?;
        fields.end()?;
        check_request(Unit::Bytes, address, length)?;
        let space = spaces.number(file)?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }
}
