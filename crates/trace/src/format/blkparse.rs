//! Text of `blkparse`: `major,minor cpu sequence seconds.ns pid action rwbs sector + sectors
//! [process]`. Each request shows up once for every stage that it passes, so one action only is
//! counted: `Q` (what the file system asked), or `D` (what reached the disk) for a trace without
//! `Q`, as its first 256 KiB tell; the option `action` overrides. A space is a device, called
//! `major,minor`.
//!
//! Events of the counted action that move no data (discards, flushes, zone management, and those
//! without `sector + sectors`) are left out and counted. All other events, and the summary that
//! `blkparse` writes at the end, are no requests.

use crate::format::fiu::device_key;
use crate::format::spaces::Spaces;
use crate::format::spc::disk_meta;
use crate::format::text::{
    Fields, Lines, Parse, TextFormat, TextReader, check_request, expected, sectors, whole,
};
use crate::format::{Entry, Format, Options, Sample};
use crate::input::Input;
use crate::{Error, Op, Reader, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "blkparse",
        about: "blkparse text, one action counted (Q, or D where there is no Q)",
        extensions: &["blkparse"],
        options: "action=Q|D|... (default: Q, or D where there is no Q)",
        writable: false,
    },
    fits,
    open,
    create: None,
};

/// How far ahead a `Q` is looked for.
const LOOK_AHEAD: usize = 256 << 10;

fn fits(sample: &Sample) -> bool {
    let mut events = sample.lines().take_while(|line| !is_summary(line)).take(20).peekable();
    events.peek().is_some() && events.all(|line| event(line).is_ok())
}

fn open(input: Input, options: &mut Options) -> Result<Box<dyn Reader>, Error> {
    let mut lines = Lines::new(input);
    let (action, sure) = match options.take("action") {
        Some(action) if action.len() == 1 && action.as_bytes()[0].is_ascii_uppercase() => {
            (action.as_bytes()[0], true)
        }
        Some(other) => return Err(options.wrong("action", &other, "one letter, as Q or D")),
        None => {
            let ahead = lines.look_ahead(LOOK_AHEAD)?;
            let sample = Sample::new(&ahead[..ahead.len().min(LOOK_AHEAD)], false);
            let has = |action| {
                let mut events = sample.lines().filter_map(|line| event(line).ok().flatten());
                events.any(|event| event.action == [action])
            };
            (if !has(b'Q') && has(b'D') { b'D' } else { b'Q' }, false)
        }
    };
    let format = BlkParse { action, sure, ..BlkParse::default() };
    Ok(TextReader::boxed(lines, format, disk_meta("blkparse"), Spaces::default()))
}

#[derive(Default)]
struct BlkParse {
    action: u8,
    /// The action was asked for, not guessed.
    sure: bool,
    /// Behind the last event.
    in_summary: bool,
    events: u64,
    counted: u64,
    left_out: u64,
    key: Vec<u8>,
}

struct Event<'a> {
    major: &'a [u8],
    minor: &'a [u8],
    time_ns: u64,
    action: &'a [u8],
    rest: Fields<'a>,
}

/// Reads the part that all events share. `None`: a line of the summary or about an input file.
#[inline]
fn event(line: &[u8]) -> Parse<Option<Event<'_>>> {
    let mut fields = Fields::blanks(line);
    let device = fields.text();
    let comma = memchr::memchr(b',', device);
    let pair = comma.map(|comma| (&device[..comma], &device[comma + 1..]));
    let number = |field| whole(field).is_some();
    let Some((major, minor)) = pair.filter(|&(major, minor)| number(major) && number(minor)) else {
        if is_summary(line) || line.starts_with(b"Input file ") {
            return Ok(None);
        }
        return expected("device as major,minor, or the summary", line);
    };
    fields.number("cpu")?;
    fields.number("sequence number")?;
    let time_ns = fields.decimal("time in seconds", 9)?;
    fields.number("process id")?;
    let action = fields.text();
    if action.is_empty() || action.len() > 2 {
        return expected("action of one or two letters", action);
    }
    Ok(Some(Event { major, minor, time_ns, action, rest: fields }))
}

fn is_summary(line: &[u8]) -> bool {
    line.starts_with(b"CPU") || line.starts_with(b"Total (")
}

impl TextFormat for BlkParse {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        if self.in_summary {
            return Ok(None);
        }
        let Some(mut event) = event(line)? else {
            self.in_summary = is_summary(line);
            return Ok(None);
        };
        self.events += 1;
        if event.action != [self.action] {
            if !self.sure && event.action == b"Q" {
                let wish = "no Q event, as in the first 256 KiB (option action=Q or action=D)";
                return expected(wish, line);
            }
            return Ok(None);
        }
        self.counted += 1;
        let op = direction(event.rest.text());
        let Some((sector, count)) = place(&mut event.rest)? else {
            self.left_out += 1;
            return Ok(None);
        };
        let Some(op) = op else {
            self.left_out += 1;
            return Ok(None);
        };
        let (address, length) = (sectors(sector)?, sectors(count)?);
        check_request(Unit::Bytes, address, length)?;
        device_key(&mut self.key, event.major, event.minor);
        let space = spaces.number(&self.key)?;
        let time_ns = event.time_ns;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }

    fn end(&self) -> Parse<()> {
        if self.events == 0 || self.counted > 0 {
            return Ok(());
        }
        let action = char::from(self.action);
        let found = format!("{} other events", self.events);
        expected(format!("events of action {action} (see option action)"), found.as_bytes())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// The first letter of rwbs is the operation; `F` before another letter is a flush before it.
#[inline]
pub(crate) fn direction(rwbs: &[u8]) -> Option<Op> {
    let operation = match rwbs {
        [b'F', operation, ..] => operation,
        [operation, ..] => operation,
        [] => return None,
    };
    match operation {
        b'R' => Some(Op::Read),
        b'W' => Some(Op::Write),
        _ => None,
    }
}

/// `sector + sectors`; `None` where the event has no such place or moves nothing.
#[inline]
fn place(fields: &mut Fields) -> Parse<Option<(u64, u64)>> {
    let sector = fields.text();
    if fields.text() != b"+" {
        return Ok(None);
    }
    let count = fields.number("number of sectors")?;
    match whole(sector) {
        Some(_) if count == 0 => Ok(None),
        Some(sector) => Ok(Some((sector, count))),
        None => expected("first sector, a whole number", sector),
    }
}
