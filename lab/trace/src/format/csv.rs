//! Any csv, with a description of its columns, from the options or from the header line.
//!
//! `time=1,id=2,size=3,op=4,space=5,delimiter=;,header=true` gives the columns, counted from 1.
//! The names that libCacheSim uses (`time-col`, `obj-id-col`, `obj-size-col`, `has-header`,
//! `obj-id-is-num`, ...) are understood too, and every name is also one for a header line.
//!
//! | column | content |
//! |---|---|
//! | `time`, `time_s`, `time_ms`, `time_us`, `time_ns` | time, decimals allowed |
//! | `op` | r, w, read, write, get, set, put, false, true, SCSI 28, 2a, `rwbs` as WS, ... |
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
//! Operations in numbers mean different things in different traces. 0 is a read and 1 a write, as
//! in Linux, of an address in bytes or sectors, and in a column called so, as `is_write`. Codes of
//! objects are refused unless `op-read=1/2/5,op-write=3/4/6,op-none=100` says what they mean, as is
//! every other code. A request without an operation was never answered (Systor '17): it is left out
//! and counted, as are operations that move no data.
//!
//! Lines that begin with `#` are comments, or name the columns if no other line does before. The
//! line of names may come again. Blanks as delimiters stand in runs.
//!
//! An id is one block, as in libCacheSim, unless `blocks` says how many. Ids are numbers, decimal
//! or with 0x; with `id-is-num=false` any text, which is hashed to 64 bits. Delimiters are a
//! character or `comma`, `tab`, `semicolon`, `pipe`, `blank`; without one given, the first line
//! tells. A header is one that has no number for the address. Quotes around a field are undone.

mod columns;
mod values;

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use memchr::{memchr, memchr2};

use crate::format::spaces::Spaces;
use crate::format::text::{
    Fault, Lines, Parse, SECTOR, TextFormat, TextReader, check_request, expected, sectors, shown,
};
use crate::format::{Entry, Format, Options, Sample};
use crate::input::Input;
use crate::write::{Refusal, TextWrite, TextWriter};
use crate::{Error, Meta, Op, Reader, Record, Unit};
use undercroft_recording::{Writer, space_name};

use columns::{Clock, Role, check_roles, description, header_roles, is_flag, misunderstood, role};
use values::{Codes, Ops, clock_of, hash, is_word_of_op, number, time};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "csv",
        about: "csv by its header line or a description of its columns, as libCacheSim's",
        extensions: &["csv", "tsv"],
        options: "time=N,op=N,space=N,id|byte|sector=N,blocks|bytes|sectors|size=N,buffer=N,\
                  delimiter=C,header=true|false,id-is-num=true|false (columns from 1), op-read=A/B, \
                  op-write=C, op-none=D (codes of op)",
        writable: true,
    },
    fits: |sample: &Sample| {
        let first = sample.lines().find(|line| line[0] != b'#' || names_columns(line));
        first.is_some_and(names_columns).into()
    },
    open,
    create: Some(create),
};

/// A line without the marks of a comment.
fn bare(line: &[u8]) -> &[u8] {
    let marks = line.iter().take_while(|&&byte| byte == b'#').count();
    line[marks..].trim_ascii()
}

/// Whether a line has the names of columns that make a record.
fn names_columns(line: &[u8]) -> bool {
    let names = texts(bare(line), detect_delimiter(bare(line)));
    check_roles(&header_roles(&names)).is_ok()
}

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
    let header = flag(options, &["header", "has-header"])?;
    let ids_are_text = flag(options, &["id-is-num", "obj-id-is-num"])? == Some(false);
    let codes = codes(options)?;
    let delimiter = options.take("delimiter");
    let mut roles = described(options)?;
    let by_header = roles.is_empty();
    let is_text = roles.first().is_some_and(|role| role.is_text(ids_are_text));
    let first = loop {
        let line = lines.peek()?.unwrap_or_default();
        let is_comment =
            line.first() == Some(&b'#') && !is_text && !(by_header && names_columns(line));
        if !is_comment && !line.trim_ascii().is_empty() || lines.peek()?.is_none() {
            break lines.peek()?.unwrap_or_default().to_owned();
        }
        lines.next()?;
    };
    let head = if by_header { bare(&first) } else { &first[..] };
    let delimiter = match delimiter {
        Some(text) => named_delimiter(&text)
            .ok_or_else(|| options.wrong("delimiter", &text, "one character or its name"))?,
        None => detect_delimiter(head),
    };
    let names = if by_header { texts(head, delimiter) } else { Vec::new() };
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
        let rows = sample.lines().skip(1).filter(|line| line[0] != b'#');
        let values: Vec<_> = rows.map(|line| texts(line, delimiter)).collect();
        let has_ops = |column: usize| {
            let mut values = values.iter().filter_map(|line| line.get(column)).peekable();
            values.peek().is_some() && values.all(|value| is_word_of_op(value))
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
    let has_header = header.unwrap_or_else(|| {
        by_header || is_header(Split { rest: Some(&first), delimiter }, &roles, ids_are_text)
    });
    let op_column = roles.iter().position(|&role| role == Role::Op);
    let ops = match (codes, op_column) {
        (Some(_), None) => {
            return Err(lines.unfit("op-read, op-write and op-none need a column of operations"));
        }
        (Some(ops), _) => ops,
        (None, column) => {
            let named = column.filter(|_| has_header);
            let name = named.and_then(|column| texts(head, delimiter).into_iter().nth(column));
            Ops::Words { flags: unit == Unit::Bytes || name.is_some_and(|name| is_flag(&name)) }
        }
    };
    let header = if has_header { lines.next()?.map(<[u8]>::to_owned) } else { None };
    let format = Csv {
        ops,
        header,
        is_text,
        whole_sectors: roles.contains(&Role::Sector),
        clock: clock.unwrap_or(Clock::Unknown),
        roles,
        delimiter,
        unit,
        ids_are_text,
        unused,
        space: Vec::new(),
    };
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

/// What the options say of the codes of operations; none: they say nothing.
fn codes(options: &mut Options) -> Result<Option<Ops>, Error> {
    let mut all = [Codes::new(), Codes::new(), Codes::new()];
    let mut any = false;
    for (key, codes) in ["op-read", "op-write", "op-none"].into_iter().zip(&mut all) {
        let Some(value) = options.take(key) else { continue };
        any = true;
        codes.extend(value.split('/').map(|code| code.trim().to_owned()));
        if codes.iter().any(String::is_empty) {
            return Err(options.wrong(key, &value, "codes of operations, as 1/2/5"));
        }
    }
    let [reads, writes, others] = all;
    Ok(any.then_some(Ops::Codes { reads, writes, others }))
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
    ops: Ops,
    /// The line that names the columns, which may come again.
    header: Option<Vec<u8>>,
    /// The first column is any text, so that `#` may begin it.
    is_text: bool,
    /// Names of the columns that are not used.
    unused: Vec<String>,
    /// The name of the space that is being read.
    space: Vec<u8>,
}

/// Whether the first line names columns: it has no number for the address.
fn is_header(fields: Split, roles: &[Role], ids_are_text: bool) -> bool {
    let address = fields.zip(roles).find(|(_, role)| role.is_address());
    address.is_some_and(|(field, _)| {
        let known = role(&String::from_utf8_lossy(&field)).is_some();
        let letter = field.first().is_some_and(u8::is_ascii_alphabetic);
        known || letter && !ids_are_text
    })
}

impl TextFormat for Csv {
    fn unused(&self) -> &[String] {
        &self.unused
    }

    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let is_comment = line.first() == Some(&b'#') && !self.is_text;
        if is_comment || self.header.as_deref() == Some(line) {
            return Ok(None);
        }
        match self.row(line, spaces) {
            Err(fault) => self.excused(line, fault),
            record => record,
        }
    }
}

impl Csv {
    /// What moves no data may have nothing in the other columns, but a line that was cut is damage.
    #[cold]
    fn excused(&self, line: &[u8], fault: Box<Fault>) -> Parse<Option<Record>> {
        let mut fields = Split { rest: Some(line), delimiter: self.delimiter };
        let mut reason = None;
        for (index, &role) in self.roles.iter().enumerate() {
            let Some(field) = fields.next() else {
                return expected(format!("column {}", index + 1), line);
            };
            if role == Role::Op {
                reason = self.ops.op(&field).err();
            }
        }
        match reason {
            Some(reason) if matches!(*reason, Fault::LeftOut(_)) => Err(reason),
            _ => Err(fault),
        }
    }

    #[inline(always)]
    fn row(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let mut names = 0;
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
                Role::Op => record.op = self.ops.op(field)?,
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
        check_request(self.unit, record.address, record.length)?;
        if names > 0 {
            record.space = spaces.number(&self.space)?;
        }
        Ok(Some(record))
    }
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
        if self.delimiter == b' ' {
            return self.run(line);
        }
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
    /// A field between blanks and tabs.
    #[inline(never)]
    fn run(&mut self, line: &'a [u8]) -> Option<Cow<'a, [u8]>> {
        let line = line.trim_ascii_start();
        match line.first() {
            None => {
                self.rest = None;
                return None;
            }
            Some(b'"') => return Some(self.quoted(line)),
            Some(_) => {}
        }
        let end = memchr2(b' ', b'\t', line).unwrap_or(line.len());
        self.rest = Some(&line[end..]);
        Some(Cow::Borrowed(line[..end].trim_ascii()))
    }

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
