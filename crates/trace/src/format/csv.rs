//! Any csv, with a description of its columns, from the options or from the header line.
//!
//! `time=1,id=2,size=3,op=4,space=5,delimiter=;,header=true` gives the columns, counted from 1.
//! The names that libCacheSim uses (`time-col`, `obj-id-col`, `obj-size-col`, `has-header`,
//! `obj-id-is-num`, ...) are understood too, and every name is also one for a header line.
//!
//! | column | content |
//! |---|---|
//! | `time` (s, decimals allowed), `time_ms`, `time_us`, `time_ns` | time |
//! | `op` | r, w, read, write, get, set, put, SCSI 28, 2a, in any case; without it all reads |
//! | `space` | device or file: any text |
//! | `id`, `block`, `first_block` | a block number |
//! | `byte`, `first_byte`, `offset` | a byte address |
//! | `sector`, `lba`, `lbn` | an address in 512-byte sectors |
//! | `blocks`; `bytes`; `sectors` | length |
//! | `size` | length in bytes; with a block number the size of the object, which is not used |
//! | `buffer` | the client's buffer address |
//!
//! An id is one block, as in libCacheSim, unless `blocks` says how many. Ids are numbers, decimal
//! or with 0x; with `id-is-num=false` any text, which is hashed to 64 bits. Delimiters are a
//! character or `comma`, `tab`, `semicolon`, `pipe`, `blank`; without one given, the first line
//! tells. A header is one that has no number for the address. Quotes around a field are undone.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use memchr::memchr;
use undercroft_random::fibonacci;

use crate::format::spaces::Spaces;
use crate::format::text::{
    Lines, Parse, TextFormat, TextReader, check_request, expected, fraction, hex, sectors, shown,
    whole,
};
use crate::format::{Entry, Format, Options, Sample};
use crate::input::Input;
use crate::write::{Refusal, TextWrite, TextWriter, Writer, space_name};
use crate::{Error, Meta, Op, Reader, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "csv",
        about: "csv by its header line or a description of its columns, as libCacheSim's",
        extensions: &["csv"],
        options: "time=N,op=N,space=N,id|byte|sector=N,blocks|bytes|sectors|size=N,buffer=N,\
                  delimiter=C,header=true|false,id-is-num=true|false (columns from 1)",
        writable: true,
    },
    fits: |sample: &Sample| {
        sample.lines().next().is_some_and(|line| {
            let roles = header_roles(line, detect_delimiter(line));
            check_roles(&roles).is_ok()
        })
    },
    open,
    create: Some(create),
};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Skip,
    /// Decimal places that turn the number into nanoseconds.
    Time(u32),
    Op,
    Space,
    Block,
    Byte,
    Sector,
    Blocks,
    Bytes,
    Sectors,
    /// Bytes if the address counts bytes, else of no account.
    Size,
    Buffer,
}

impl Role {
    fn is_address(self) -> bool {
        matches!(self, Role::Block | Role::Byte | Role::Sector)
    }

    fn is_length(self) -> bool {
        matches!(self, Role::Blocks | Role::Bytes | Role::Sectors | Role::Size)
    }
}

/// The role that a name of an option or of a header stands for.
fn role(name: &str) -> Option<Role> {
    let name = name.trim().to_lowercase().replace('_', "-");
    let name = name.strip_suffix("-col").or(name.strip_suffix("-field")).unwrap_or(&name);
    Some(match name {
        "time" | "time-s" | "timestamp" | "ts" => Role::Time(9),
        "time-ms" => Role::Time(6),
        "time-us" => Role::Time(3),
        "time-ns" => Role::Time(0),
        "op" | "type" => Role::Op,
        "space" | "device" | "volume" | "file" => Role::Space,
        "id" | "obj-id" | "object" | "key" | "block" | "first-block" => Role::Block,
        "byte" | "offset" | "first-byte" => Role::Byte,
        "sector" | "first-sector" | "lba" | "lbn" => Role::Sector,
        "blocks" => Role::Blocks,
        "bytes" => Role::Bytes,
        "sectors" => Role::Sectors,
        "size" | "obj-size" => Role::Size,
        "buffer" | "buf" => Role::Buffer,
        _ => return None,
    })
}

fn header_roles(line: &[u8], delimiter: u8) -> Vec<Role> {
    let names = Split { rest: Some(line), delimiter };
    names.map(|name| role(&String::from_utf8_lossy(&name)).unwrap_or(Role::Skip)).collect()
}

/// Checks that the columns make a record, and finds its unit.
fn check_roles(roles: &[Role]) -> Result<Unit, String> {
    let once = |what: &str, is: &dyn Fn(Role) -> bool| {
        let mut found = roles.iter().copied().filter(|&role| is(role));
        let first = found.next();
        if found.next().is_some() { Err(format!("two columns for the {what}")) } else { Ok(first) }
    };
    once("time", &|role| matches!(role, Role::Time(_)))?;
    once("op", &|role| role == Role::Op)?;
    once("space", &|role| role == Role::Space)?;
    once("buffer", &|role| role == Role::Buffer)?;
    let address = once("address", &|role| role.is_address())?;
    match (address, once("length", &|role| role.is_length())?) {
        (None, _) => Err("no column for the address (id, byte or sector)".into()),
        (Some(Role::Block), None | Some(Role::Blocks | Role::Size)) => Ok(Unit::Blocks),
        (Some(Role::Block), _) => Err("a block number needs its length in blocks".into()),
        (Some(_), Some(Role::Bytes | Role::Sectors | Role::Size)) => Ok(Unit::Bytes),
        (Some(_), _) => Err("a byte or sector address needs a length (bytes, sectors)".into()),
    }
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
    if by_header {
        roles = header_roles(&first, delimiter);
    }
    let unit = check_roles(&roles).map_err(|reason| {
        let line = shown(&first);
        lines.unfit(&format!(
            "csv needs to know its columns, {reason}: name them by options as \
            csv,time=1,id=2,size=3, or in a header line (line 1 is {line})"
        ))
    })?;
    let format = Csv { roles, delimiter, unit, ids_are_text };
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
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
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
                Role::Time(places) => match fraction(field, places) {
                    Some(time) => record.time_ns = time,
                    None => return expected("time, a decimal number in range", field),
                },
                Role::Op => record.op = op(field)?,
                Role::Space => record.space = spaces.number(field)?,
                Role::Block if self.ids_are_text => record.address = hash(field),
                Role::Block | Role::Byte => record.address = number(field, "address")?,
                Role::Sector => record.address = sectors(number(field, "sector")?)?,
                Role::Blocks | Role::Bytes => record.length = number(field, "length")?,
                Role::Sectors => record.length = sectors(number(field, "sectors")?)?,
                Role::Size if self.unit == Unit::Bytes => record.length = number(field, "size")?,
                Role::Size => drop(number(field, "size")?),
                Role::Buffer => record.buffer = Some(number(field, "buffer address")?),
            }
        }
        check_request(self.unit, record.address, record.length)?;
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

fn op(field: &[u8]) -> Parse<Op> {
    let is = |words: &[&str]| words.iter().any(|word| field.eq_ignore_ascii_case(word.as_bytes()));
    if is(&["r", "read", "get", "28", "0x28"]) {
        Ok(Op::Read)
    } else if is(&["w", "write", "set", "put", "2a", "0x2a"]) {
        Ok(Op::Write)
    } else {
        expected("op r, w, read, write, get, set or put", field)
    }
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
