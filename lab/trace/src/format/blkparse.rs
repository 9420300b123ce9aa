//! Text of `blkparse`: `major,minor cpu sequence seconds.ns pid action rwbs sector + sectors
//! [process]`. Each request shows up once for every stage that it passes, so one action only is
//! counted: `Q` (what the file system asked), or `D` (what reached the disk) for a trace without
//! `Q`, as its first 256 KiB tell; the option `action` overrides. A space is a device, called
//! `major,minor`.
//!
//! Events of the counted action that move no data (discards, flushes, zone management, and those
//! without `sector + sectors`) are left out and counted. All other events, and the summary that
//! `blkparse` writes at the end, are no requests. Events behind a summary are those of another
//! output, read as well. What an event must have shows where a line was cut: `sector + sectors`,
//! and a `[process]` if others have one.

use crate::format::fiu::device_key;
use crate::format::spaces::Spaces;
use crate::format::spc::disk_meta;
use crate::format::text::{
    Fields, Lines, Parse, TextFormat, TextReader, check_request, expected, left_out, sectors, whole,
};
use crate::format::{Entry, FIRST_LINES, Fit, Format, Options, Sample};
use crate::input::Input;
use crate::{Error, Op, Reader, Reason, Record, Unit};

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

fn fits(sample: &Sample) -> Fit {
    let lines = sample.lines().take_while(|line| !is_summary(line));
    Fit::of(lines.take(FIRST_LINES).map(|line| event(line).is_ok()))
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
    /// Behind the events of an output.
    in_summary: bool,
    /// Counted events have said which process they are of.
    has_processes: bool,
    events: u64,
    counted: u64,
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
    let Some((major, minor)) = device(&mut fields) else {
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

/// `major,minor`, if the next field is that.
#[inline]
fn device<'a>(fields: &mut Fields<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let device = fields.text();
    let comma = memchr::memchr(b',', device)?;
    let (major, minor) = (&device[..comma], &device[comma + 1..]);
    whole(major).and(whole(minor)).map(|_| (major, minor))
}

/// Whether a summary begins here: of a processor, a device, or a process with its number.
fn is_summary(line: &[u8]) -> bool {
    let is_process = || {
        let number = line.strip_suffix(b")")?.rsplit(|&byte| byte == b'(').next()?;
        whole(number.strip_suffix(b", ...").unwrap_or(number))
    };
    line.starts_with(b"CPU") || line.starts_with(b"Total (") || is_process().is_some()
}

/// Whether a line can be one within a summary: a name in front of numbers, or a process.
fn is_in_summary(line: &[u8]) -> bool {
    memchr::memchr2(b':', b'(', line).is_some()
}

impl TextFormat for BlkParse {
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        if self.in_summary && device(&mut Fields::blanks(line)).is_none() {
            if is_in_summary(line) {
                return Ok(None);
            }
            return expected("a line of the summary, or an event of another output", line);
        }
        let Some(mut event) = event(line)? else {
            self.in_summary = is_summary(line);
            return Ok(None);
        };
        self.in_summary = false;
        self.events += 1;
        if event.action != [self.action] {
            if !self.sure && event.action == b"Q" {
                let wish = "no Q event, as in the first 256 KiB (option action=Q or action=D)";
                return expected(wish, line);
            }
            return Ok(None);
        }
        self.counted += 1;
        let rwbs = event.rest.text();
        let Some(op) = direction(rwbs) else {
            return expected("an operation of blkparse, as R, WS or D", rwbs);
        };
        let has_process = memchr::memchr(b']', event.rest.rest()).is_some();
        let place = place(&mut event.rest)?;
        if self.has_processes && !has_process {
            return expected("[process] at the end, as on other lines", line);
        }
        self.has_processes |= has_process;
        let Some((op, (sector, count))) = op.zip(place) else {
            return left_out(Reason::Operation);
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
}

/// What an rwbs says: a flush before it (`F`), the operation, and marks, each at most once. Inside
/// `None`: an operation that moves no data. `None`: it is no rwbs.
#[inline]
pub(crate) fn direction(rwbs: &[u8]) -> Option<Option<Op>> {
    match rwbs {
        b"R" | b"RA" | b"RS" => Some(Some(Op::Read)),
        b"W" | b"WS" => Some(Some(Op::Write)),
        _ => any_direction(rwbs),
    }
}

fn any_direction(rwbs: &[u8]) -> Option<Option<Op>> {
    let rest = match rwbs {
        [b'F', rest @ ..] if matches!(rest.first(), Some(b'R' | b'W' | b'D' | b'N' | b'F')) => rest,
        _ => rwbs,
    };
    let (op, marks) = match rest {
        [b'R', marks @ ..] => (Some(Op::Read), marks),
        [b'W', marks @ ..] => (Some(Op::Write), marks),
        // Zones: append, reset, reset all, open, close, finish.
        [b'Z', b'A', marks @ ..] => (Some(Op::Write), marks),
        [b'Z', b'R' | b'O' | b'C' | b'F', marks @ ..] => (None, marks),
        // Discard, nothing, flush.
        [b'D' | b'N' | b'F', marks @ ..] => (None, marks),
        _ => return None,
    };
    // Sync, metadata, FUA, read-ahead, barrier, secure erase, atomic.
    let is_mark =
        |(at, byte): (usize, &u8)| b"SMFABEU".contains(byte) && !marks[..at].contains(byte);
    marks.iter().enumerate().all(is_mark).then_some(op)
}

/// `sector + sectors`; `None` where the event has no such place or moves nothing. What has no place
/// goes on with its `[process]`, or is a command of other bytes `(in brackets)`.
#[inline]
fn place(fields: &mut Fields) -> Parse<Option<(u64, u64)>> {
    let sector = match fields.text() {
        [b'[' | b'(', ..] => return Ok(None),
        field => match whole(field) {
            Some(sector) => sector,
            None => return expected("first sector, a whole number, or [process]", field),
        },
    };
    match fields.text() {
        b"+" => {}
        [b'[' | b'(', ..] => return Ok(None),
        other => return expected("+ and a number of sectors behind the first sector", other),
    }
    let count = fields.number("number of sectors")?;
    Ok((count > 0).then_some((sector, count)))
}
