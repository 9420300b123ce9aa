//! Any csv, with a description of its columns, from the options or from the header line.
//!
//! `time=1,id=2,size=3,op=4,space=5,delimiter=;,header=true` gives the columns, counted from 1.
//! The names that libCacheSim uses (`time-col`, `obj-id-col`, `obj-size-col`, `has-header`,
//! `obj-id-is-num`, ...) are understood too, and every name is also one for a header line.
//!
//! | column | content |
//! |---|---|
//! | `time`, `time_s`, `time_ms`, `time_us`, `time_ns` | time, decimals allowed |
//! | `op` | r, w, read, write, get, set, put, 0, 1, false, true, SCSI 28, 2a, `rwbs` as WS |
//! | `space` | device or file: any text; several columns together |
//! | `id`, `block`, `first_block` | a block number |
//! | `byte`, `first_byte`, `offset` | a byte address |
//! | `sector`, `lba`, `lbn` | an address in 512-byte sectors |
//! | `blocks`; `bytes`; `sectors` | length |
//! | `size`, `length` | bytes; with a block number the size of the object, which is not used |
//! | `buffer` | the client's buffer address |
//!
//! `csv/columns.rs` has further names for these. A header line with a column that seems to hold the
//! direction or the device and is not understood is refused; without any, all are reads. A time
//! without a unit is seconds, or milli-, micro- or nanoseconds since 1970, a FILETIME, or a date
//! and time in UTC.
//!
//! An id is one block, as in libCacheSim, unless `blocks` says how many. Ids are numbers, decimal
//! or with 0x; with `id-is-num=false` any text, which is hashed to 64 bits. Delimiters are a
//! character or `comma`, `tab`, `semicolon`, `pipe`, `blank`; without one given, the first line
//! tells. A header is one that has no number for the address. Quotes around a field are undone.

mod columns;

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use memchr::memchr;
use undercroft_random::fibonacci;

use crate::format::blkparse::direction;
use crate::format::spaces::Spaces;
use crate::format::text::{
    Lines, Parse, SECTOR, TextFormat, TextReader, check_request, expected, fraction, hex, sectors,
    shown, whole,
};
use crate::format::{Entry, Format, Options, Sample};
use crate::input::Input;
use crate::write::{Refusal, TextWrite, TextWriter, Writer, space_name};
use crate::{Error, Meta, Op, Reader, Record, Unit};

use columns::{Clock, Role, check_roles, description, header_roles, misunderstood, role};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "csv",
        about: "csv by its header line or a description of its columns, as libCacheSim's",
        extensions: &["csv", "tsv"],
        options: "time=N,op=N,space=N,id|byte|sector=N,blocks|bytes|sectors|size=N,buffer=N,\
                  delimiter=C,header=true|false,id-is-num=true|false (columns from 1)",
        writable: true,
    },
    fits: |sample: &Sample| {
        sample.lines().next().is_some_and(|line| {
            let names = texts(line, detect_delimiter(line));
            check_roles(&header_roles(&names)).is_ok()
        })
    },
    open,
    create: Some(create),
};

/// The fields of a line as texts.
fn texts(line: &[u8], delimiter: u8) -> Vec<String> {
    let fields = Split { rest: Some(line), delimiter };
    fields.map(|field| String::from_utf8_lossy(&field).into_owned()).collect()
}

fn detect_delimiter(line: &[u8]) -> u8 {
    let known = [b',', b'\t', b';', b'|', b' '];
    known.into_iter().find(|&delimiter| line.contains(&delimiter)).unwrap_or(b',')
}

fn open(input: Input, options: &mut Options) -> Result<Box<dyn Reader>, Error> {
    let mut lines = Lines::new(input);
    let first = lines.peek()?.unwrap_or_default().to_owned();
    let delimiter = match options.take("delimiter") {
        Some(text) => named_delimiter(&text)
            .ok_or_else(|| options.wrong("delimiter", &text, "one character or its name"))?,
        None => detect_delimiter(&first),
    };
    let header = flag(options, &["header", "has-header"])?;
    let ids_are_text = flag(options, &["id-is-num", "obj-id-is-num"])? == Some(false);
    let mut roles = described(options)?;
    let by_header = roles.is_empty();
    let names = if by_header { texts(&first, delimiter) } else { Vec::new() };
    if by_header {
        roles = header_roles(&names);
    }
    let unit = check_roles(&roles).map_err(|reason| {
        let line = shown(&first);
        let known = description(&roles);
        let known = if known.is_empty() { known } else { format!("; understood here is {known}") };
        lines.unfit(&format!(
            "csv needs to know its columns, {reason}: describe them, counted from 1, as --format \
            csv,time=1,space=2,sector=3,bytes=4,op=5 (or byte=3 for an address in bytes, id=3 for \
            a block number), or name them in a header line (line 1 is {line}{known})"
        ))
    })?;
    if by_header {
        let ahead = lines.look_ahead(LOOK_AHEAD)?;
        let sample = Sample::new(&ahead[..ahead.len().min(LOOK_AHEAD)], false);
        let values: Vec<_> = sample.lines().skip(1).map(|line| texts(line, delimiter)).collect();
        let has_ops = |column: usize| {
            let mut values = values.iter().filter_map(|line| line.get(column)).peekable();
            let is_op = |value: &String| {
                let is_flag = ["true", "false"].iter().any(|flag| value.eq_ignore_ascii_case(flag));
                let is_word = value.starts_with(|c: char| c.is_alphabetic());
                is_word && !is_flag && op(value.as_bytes()).is_ok()
            };
            values.peek().is_some() && values.all(is_op)
        };
        if let Some(what) = misunderstood(&names, &roles, has_ops) {
            return Err(lines.unfit(&what));
        }
    }
    let clock = roles.iter().find_map(|role| match role {
        Role::Time(clock) => Some(*clock),
        _ => None,
    });
    let is_unused = |(_, role): &(&String, &Role)| **role == Role::Skip;
    let unused = names.iter().zip(&roles).filter(is_unused);
    let unused = unused.map(|(name, _)| name.trim().to_owned()).collect();
    let format = Csv {
        whole_sectors: roles.contains(&Role::Sector),
        clock: clock.unwrap_or(Clock::Unknown),
        roles,
        delimiter,
        unit,
        ids_are_text,
        unused,
        space: Vec::new(),
        left_out: 0,
    };
    if header.unwrap_or(by_header || format.is_header(&first)) {
        lines.next()?;
    }
    let has = |wanted: fn(&Role) -> bool| format.roles.iter().any(wanted);
    let meta = Meta {
        format: "csv",
        unit,
        block_bytes: None,
        has_ops: has(|role| *role == Role::Op),
        has_time: has(|role| matches!(role, Role::Time(_))),
        has_buffers: has(|role| *role == Role::Buffer),
        has_evictions: false,
    };
    let has_spaces = has(|role| *role == Role::Space);
    let spaces = if has_spaces { Spaces::default() } else { Spaces::single() };
    Ok(TextReader::boxed(lines, format, meta, spaces))
}

/// How far ahead values are looked at.
const LOOK_AHEAD: usize = 16 << 10;

fn named_delimiter(text: &str) -> Option<u8> {
    Some(match text {
        // The comma is what separates options, so nothing is left of it.
        "" | "comma" => b',',
        "tab" | "\\t" => b'\t',
        "semicolon" => b';',
        "pipe" => b'|',
        "blank" => b' ',
        _ if text.len() == 1 => text.as_bytes()[0],
        _ => return None,
    })
}

fn flag(options: &mut Options, names: &[&str]) -> Result<Option<bool>, Error> {
    let found = names.iter().find_map(|name| Some((name, options.take(name)?)));
    let found = found.or_else(|| {
        names.iter().find_map(|name| Some((name, options.take(&name.replace('-', "_"))?)))
    });
    let Some((name, value)) = found else { return Ok(None) };
    match value.to_lowercase().as_str() {
        "true" | "yes" | "y" | "1" => Ok(Some(true)),
        "false" | "no" | "n" | "0" => Ok(Some(false)),
        _ => Err(options.wrong(name, &value, "true or false")),
    }
}

/// The columns that the options describe; none: there is no description.
fn described(options: &mut Options) -> Result<Vec<Role>, Error> {
    const MOST: usize = 1024;
    let mut roles = Vec::new();
    for (key, value) in options.take_all() {
        let Some(role) = role(&key) else {
            let known = ENTRY.info.options;
            return Err(Error::Format(format!("format csv has no option {key}: {known}")));
        };
        let column = match value.parse() {
            Ok(column) if (1..=MOST).contains(&column) => column,
            _ => return Err(options.wrong(&key, &value, "a column from 1 to 1024")),
        };
        if roles.len() < column {
            roles.resize(column, Role::Skip);
        }
        if roles[column - 1] != Role::Skip {
            return Err(options.wrong(&key, &value, "a column that has no other use"));
        }
        roles[column - 1] = role;
    }
    Ok(roles)
}

struct Csv {
    roles: Vec<Role>,
    delimiter: u8,
    unit: Unit,
    ids_are_text: bool,
    /// What times count; unknown before the first one.
    clock: Clock,
    /// Addresses are sectors, so that a size in bytes is a multiple of these.
    whole_sectors: bool,
    /// Names of the columns that are not used.
    unused: Vec<String>,
    /// The name of the space that is being read.
    space: Vec<u8>,
    left_out: u64,
}

impl Csv {
    /// Whether the first line names columns: it has no number for the address.
    fn is_header(&self, line: &[u8]) -> bool {
        let fields = Split { rest: Some(line), delimiter: self.delimiter };
        let address = fields.zip(&self.roles).find(|(_, role)| role.is_address());
        address.is_some_and(|(field, _)| {
            let known = role(&String::from_utf8_lossy(&field)).is_some();
            let letter = field.first().is_some_and(u8::is_ascii_alphabetic);
            known || letter && !self.ids_are_text
        })
    }
}

impl TextFormat for Csv {
    fn left_out(&self) -> u64 {
        self.left_out
    }

    fn unused(&self) -> &[String] {
        &self.unused
    }

    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let mut names = 0;
        let mut moves_data = true;
        let mut fields = Split { rest: Some(line), delimiter: self.delimiter };
        let mut record = Record {
            time_ns: 0,
            op: Op::Read,
            space: 0,
            address: 0,
            length: 1,
            buffer: None,
            client: 0,
        };
        for (index, &role) in self.roles.iter().enumerate() {
            let Some(field) = fields.next() else {
                return expected(format!("column {}", index + 1), line);
            };
            let field = field.as_ref();
            match role {
                Role::Skip => {}
                Role::Time(_) => {
                    if self.clock == Clock::Unknown {
                        self.clock = clock_of(field);
                    }
                    record.time_ns = time(self.clock, field)?;
                }
                Role::Op => match op(field)? {
                    Some(op) => record.op = op,
                    None => moves_data = false,
                },
                Role::Space => {
                    if names == 0 {
                        self.space.clear();
                    } else {
                        self.space.push(b'_');
                    }
                    names += 1;
                    self.space.extend_from_slice(field);
                }
                Role::Block if self.ids_are_text => record.address = hash(field),
                Role::Block | Role::Byte => record.address = number(field, "address")?,
                Role::Sector => record.address = sectors(number(field, "sector")?)?,
                Role::Blocks | Role::Bytes => record.length = number(field, "length")?,
                Role::Sectors => record.length = sectors(number(field, "sectors")?)?,
                Role::Size if self.unit == Unit::Bytes => {
                    record.length = number(field, "size")?;
                    if self.whole_sectors && record.length % SECTOR != 0 {
                        let wish = "size, bytes of whole sectors (describe the column as \
                                    sectors=N or bytes=N if it counts these)";
                        return expected(wish, field);
                    }
                }
                Role::Size => drop(number(field, "size")?),
                Role::Buffer => record.buffer = Some(number(field, "buffer address")?),
            }
        }
        if !moves_data {
            self.left_out += 1;
            return Ok(None);
        }
        check_request(self.unit, record.address, record.length)?;
        if names > 0 {
            record.space = spaces.number(&self.space)?;
        }
        Ok(Some(record))
    }
}

fn number(field: &[u8], what: &str) -> Parse<u64> {
    let value = match field {
        [b'0', b'x' | b'X', digits @ ..] => hex(digits),
        _ => whole(field),
    };
    match value {
        Some(value) => Ok(value),
        None => expected(format!("{what}, a whole number below 2^64"), field),
    }
}

/// Read or write; `None`: a request that moves no data.
fn op(field: &[u8]) -> Parse<Option<Op>> {
    let is = |words: &[&str]| words.iter().any(|word| field.eq_ignore_ascii_case(word.as_bytes()));
    let is_rwbs = |byte: &u8| b"RWDFNSMAE".contains(&byte.to_ascii_uppercase());
    if is(&["r", "read", "get", "0", "false", "28", "0x28", "88", "0x88"]) {
        Ok(Some(Op::Read))
    } else if is(&["w", "write", "set", "put", "1", "true", "2a", "0x2a", "8a", "0x8a"]) {
        Ok(Some(Op::Write))
    } else if is(&["discard", "trim", "unmap", "flush", "fsync", "sync"]) {
        Ok(None)
    } else if (1..=6).contains(&field.len()) && field.iter().all(is_rwbs) {
        Ok(direction(&field.to_ascii_uppercase()))
    } else {
        expected("op r, w, read, write, get, set, put, 0, 1, false, true, or rwbs as WS", field)
    }
}

/// What times count, as the first one tells: numbers since 1970 are told by their size.
fn clock_of(field: &[u8]) -> Clock {
    let digits = field.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match digits {
        4 if field.get(4) == Some(&b'-') => Clock::Calendar,
        0..=11 => Clock::Decimal(9),
        12..=14 => Clock::Decimal(6),
        15..=17 => Clock::Decimal(3),
        18 => Clock::Filetime,
        _ => Clock::Decimal(0),
    }
}

/// Nanoseconds.
fn time(clock: Clock, field: &[u8]) -> Parse<u64> {
    let (time, wish) = match clock {
        Clock::Decimal(places) => (fraction(field, places), "time, a decimal number in range"),
        Clock::Unknown => (fraction(field, 9), "time, a decimal number in range"),
        Clock::Filetime => {
            (whole(field).and_then(|time| time.checked_mul(100)), "time, a FILETIME before 2185")
        }
        Clock::Calendar => (calendar(field), "time in UTC, as 2026-01-31T12:00:00.5Z"),
    };
    time.map_or_else(|| expected(wish, field), Ok)
}

/// Nanoseconds since 1970 of a date and time in UTC.
fn calendar(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let text = text.strip_suffix("+00:00").unwrap_or(text);
    let time = humantime::parse_rfc3339_weak(text).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// FNV-1a, and a last mix since its high bits change little. The largest value, which would end a
/// request beyond 2^64, is given away.
fn hash(text: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let hash = fibonacci(hash ^ (hash >> 32));
    (hash ^ (hash >> 29)) >> 1
}

/// Fields of a line, without blanks and quotes around them.
struct Split<'a> {
    rest: Option<&'a [u8]>,
    delimiter: u8,
}

impl<'a> Iterator for Split<'a> {
    type Item = Cow<'a, [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Cow<'a, [u8]>> {
        let line = self.rest?;
        if line.first() == Some(&b'"') {
            return Some(self.quoted(line));
        }
        let (field, rest) = match memchr(self.delimiter, line) {
            Some(end) => (&line[..end], Some(&line[end + 1..])),
            None => (line, None),
        };
        self.rest = rest;
        Some(Cow::Borrowed(field.trim_ascii()))
    }
}

impl<'a> Split<'a> {
    /// A field in quotes, in which two quotes stand for one. Without an end it is the whole rest.
    #[cold]
    fn quoted(&mut self, line: &'a [u8]) -> Cow<'a, [u8]> {
        let mut field = Vec::new();
        let mut at = 1;
        while let Some(found) = memchr(b'"', &line[at..]) {
            field.extend_from_slice(&line[at..at + found]);
            at += found + 1;
            if line.get(at) != Some(&b'"') {
                let tail = &line[at..];
                self.rest = memchr(self.delimiter, tail).map(|end| &tail[end + 1..]);
                return Cow::Owned(field);
            }
            field.push(b'"');
            at += 1;
        }
        self.rest = None;
        Cow::Borrowed(line)
    }
}

fn create(path: &Path, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    let mut head = String::new();
    head.push_str(if meta.has_time { "time_ns," } else { "" });
    head.push_str(if meta.has_ops { "op," } else { "" });
    head.push_str(match meta.unit {
        Unit::Bytes => "space,first_byte,bytes",
        Unit::Blocks => "space,first_block,blocks",
    });
    head.push_str(if meta.has_buffers { ",buffer\n" } else { "\n" });
    TextWriter::boxed(path, CsvWrite { meta: meta.clone() }, head.as_bytes())
}

struct CsvWrite {
    meta: Meta,
}

impl TextWrite for CsvWrite {
    fn line(
        &mut self,
        record: &Record,
        spaces: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let name = space_name(record.space, spaces);
        if name.contains(['\n', '\r']) {
            return Err("the name of its device or file has a line break in it".into());
        }
        let mut write = || -> std::io::Result<()> {
            if self.meta.has_time {
                write!(out, "{},", record.time_ns)?;
            }
            match (self.meta.has_ops, record.op) {
                (true, Op::Read) => write!(out, "r,")?,
                (true, Op::Write) => write!(out, "w,")?,
                (false, _) | (true, Op::Evict) => {}
            }
            let plain = |byte: u8| byte.is_ascii_graphic() && !b",\"".contains(&byte);
            if name.bytes().all(plain) {
                write!(out, "{name},")?;
            } else {
                write!(out, "\"{}\",", name.replace('"', "\"\""))?;
            }
            write!(out, "{},{}", record.address, record.length)?;
            match record.buffer {
                Some(buffer) if self.meta.has_buffers => writeln!(out, ",{buffer:#x}"),
                _ => writeln!(out),
            }
        };
        if self.meta.has_buffers && record.buffer.is_none() {
            return Err("it has no buffer address, and others have".into());
        }
        if !self.meta.has_ops && record.op == Op::Write {
            return Err("it is a write in a trace that is said to mark none".into());
        }
        write().map_err(|error| error.to_string())
    }
}
