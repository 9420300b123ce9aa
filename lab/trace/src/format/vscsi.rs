//! `.vscsi`, the binary format of the CloudPhysics traces (virtual SCSI disks of VMware): packed
//! little-endian records without a header, in two versions.
//!
//! | | version 1, 32 bytes | version 2, 40 bytes |
//! |---|---|---|
//! | u16 SCSI opcode, u16 version (in the high byte) | at 12 | at 0 |
//! | u32 serial number, not ascending | at 0 | at 4 |
//! | u32 length in bytes | at 4 | at 8 |
//! | u32 scatter-gather elements | at 8 | at 12 |
//! | u64 first sector of 512 bytes | at 16 | at 16 |
//! | u64 time in microseconds | at 24 | at 24 |
//! | u64 response time | | at 32 |
//!
//! Commands that are neither a read nor a write, and transfers of length zero, which SCSI defines
//! as legal and as moving nothing, are left out and counted.

use crate::format::packed::{Packed, eight, four};
use crate::format::spc::disk_meta;
use crate::format::text::{Parse, check_request, expected, left_out, sectors, shown};
use crate::format::{Entry, Format};
use crate::input::Input;
use crate::{Error, Op, Reader, Reason, Record, Unit};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "vscsi",
        about: "CloudPhysics binary, versions 1 and 2",
        extensions: &["vscsi"],
        options: "",
        writable: false,
    },
    fits: |sample| layout(sample.bytes, 8).is_some().into(),
    open,
    create: None,
};

/// Where the fields of a version are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layout {
    version: u8,
    size: usize,
    opcode: usize,
    length: usize,
}

const VERSION_1: Layout = Layout { version: 1, size: 32, opcode: 12, length: 4 };
const VERSION_2: Layout = Layout { version: 2, size: 40, opcode: 0, length: 8 };

/// The version whose mark all of the first `count` records bear.
fn layout(bytes: &[u8], count: usize) -> Option<Layout> {
    [VERSION_2, VERSION_1].into_iter().find(|layout| {
        let mut records = bytes.chunks_exact(layout.size).take(count).peekable();
        records.peek().is_some()
            && records.all(|record| {
                let [code, zero, _, version] = four(record, layout.opcode);
                version == layout.version && zero == 0 && (code != 0 || version == 1)
            })
    })
}

fn open(mut input: Input, _: &mut super::Options) -> Result<Box<dyn Reader>, Error> {
    let bytes = input.peek(2 * VERSION_2.size)?;
    let found = shown(&bytes[..bytes.len().min(16)]);
    let layout = match layout(bytes, 2) {
        Some(layout) => layout,
        // Nothing at all is a trace without records.
        None if bytes.is_empty() => VERSION_1,
        None => {
            return Err(input.damaged("vscsi records, marked as version 1 or 2", found));
        }
    };
    let parse = move |bytes: &[u8]| parse(bytes, layout);
    Ok(Packed::boxed(input, disk_meta("vscsi"), layout.size, 0, parse))
}

fn parse(bytes: &[u8], layout: Layout) -> Parse<Record> {
    let [code, zero, _, version] = four(bytes, layout.opcode);
    if version != layout.version || zero != 0 {
        let mark = &bytes[layout.opcode..layout.opcode + 4];
        return expected(format!("a SCSI opcode and the mark of version {}", layout.version), mark);
    }
    let op = match code {
        // READ of 6, 10, 12 and 16 bytes.
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        // WRITE, and WRITE AND VERIFY.
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Op::Write,
        _ => return left_out(Reason::Operation),
    };
    let length = u64::from(u32::from_le_bytes(four(bytes, layout.length)));
    if length == 0 {
        return left_out(Reason::Empty);
    }
    let address = sectors(eight(bytes, 16))?;
    let micros = eight(bytes, 24);
    let Some(time_ns) = micros.checked_mul(1000) else {
        return expected("a time below 2^54 us", micros.to_string().as_bytes());
    };
    check_request(Unit::Bytes, address, length)?;
    Ok(Record { time_ns, op, space: 0, address, length, buffer: None, client: 0 })
}
