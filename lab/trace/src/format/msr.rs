//! MSR Cambridge csv (SNIA): `timestamp,host,disk,type,offset,size,response`, without a header.
//! The timestamp is a Windows FILETIME (100 ns since 1601), kept as nanoseconds of that origin;
//! type is `Read` or `Write`; offset and size are bytes; the response time is not used.
//!
//! Disk numbers repeat across hosts: a space is a host and a disk, called `host_disk` as the files
//! of the set are.

use std::io::Write;
use std::path::Path;

use crate::format::spaces::Spaces;
use crate::format::spc::open_disk;
use crate::format::text::{
    Fields, Parse, TextFormat, check_request, expected, whole, without_zeros,
};
use crate::format::{Entry, Format};
use crate::write::{Labels, Refusal, TextWrite, TextWriter, want_unit};
use crate::{Error, Meta, Op, Record, Unit};
use undercroft_recording::Writer;

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "msr",
        about: "MSR Cambridge csv: FILETIME, host, disk, Read or Write, byte offset, bytes",
        extensions: &["msr", "csv"],
        options: "",
        writable: true,
    },
    fits: |sample| sample.parses(Msr::default()),
    open: |input, _| open_disk(input, "msr", Msr::default()),
    create: Some(create),
};

#[derive(Default)]
struct Msr {
    key: Vec<u8>,
}

impl TextFormat for Msr {
    #[inline]
    fn line(&mut self, line: &[u8], spaces: &mut Spaces) -> Parse<Option<Record>> {
        let mut fields = Fields::split(line, b',');
        let filetime = fields.number("timestamp, a FILETIME")?;
        let Some(time_ns) = filetime.checked_mul(100) else {
            return expected("a FILETIME before the year 2185", filetime.to_string().as_bytes());
        };
        let (host, disk) = (fields.text(), fields.text());
        if host.is_empty() || whole(disk).is_none() {
            return expected("a host name and a disk number", line);
        }
        let op = match fields.text() {
            b"Read" => Op::Read,
            b"Write" => Op::Write,
            other => return expected("type Read or Write", other),
        };
        let address = fields.number("byte offset")?;
        let length = fields.number("size in bytes")?;
        fields.number("response time")?;
        fields.end()?;
        check_request(Unit::Bytes, address, length)?;
        self.key.clear();
        self.key.extend_from_slice(host);
        self.key.push(b'_');
        self.key.extend_from_slice(without_zeros(disk));
        let space = spaces.number(&self.key)?;
        Ok(Some(Record { time_ns, op, space, address, length, buffer: None, client: 0 }))
    }
}

fn create(path: &Path, meta: &Meta) -> Result<Box<dyn Writer>, Error> {
    want_unit(path, "msr", Unit::Bytes, meta)?;
    TextWriter::boxed(path, MsrWrite::default(), b"")
}

/// Spaces that are called `host_disk` keep host and disk, others become disks of `undercroft`.
#[derive(Default)]
struct MsrWrite {
    disks: Labels,
}

/// `host_disk` as the two fields, if it is such a name and can stand in a csv.
fn host_and_disk(name: &str) -> Option<String> {
    let (host, disk) = name.rsplit_once('_')?;
    let plain = host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    let number = whole(disk.as_bytes())?;
    (plain && !host.is_empty()).then(|| format!("{host},{number}"))
}

impl TextWrite for MsrWrite {
    fn line(
        &mut self,
        record: &Record,
        spaces: &[String],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let spare = |free| format!("undercroft,{free}");
        let disk = self.disks.label(record.space, spaces, host_and_disk, spare);
        let op = if record.op == Op::Read { "Read" } else { "Write" };
        let (time, offset, size) = (record.time_ns / 100, record.address, record.length);
        writeln!(out, "{time},{disk},{op},{offset},{size},0").map_err(|error| error.to_string())
    }
}
