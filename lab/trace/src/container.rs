//! Files that have a trace inside and are none: archives, compressions that are not read here, and
//! the binary output of blktrace. They are recognised to say what to do with them.

use crate::Error;
use crate::input::Input;

/// Bytes of a header in a tar archive.
const TAR_HEADER: usize = 512;

/// What a file begins with, what it is, and what to do.
const KNOWN: &[(&[u8], &str, &str)] = &[
    (b"PK\x03\x04", "a zip archive", "unpack it, as with unzip"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it, as with 7z x"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it"),
    (b"\x04\x22\x4d\x18", "compressed by lz4", "give what lz4 -dc FILE prints"),
    (b"LZIP", "compressed by lzip", "give what lzip -dc FILE prints"),
    (b"\x1f\x9d", "compressed by compress", "give what zcat FILE prints"),
    (b"PAR1", "a Parquet file", "write its rows as csv"),
    (b"SQLite format 3\0", "an SQLite database", "write its rows as csv"),
    (b"\x07tae", "binary output of blktrace", "give what blkparse -i FILE prints"),
    (b"\x08tae", "binary output of blktrace", "give what blkparse -i FILE prints"),
];

/// Refuses a content that is no trace but has one inside.
///
/// # Errors
/// It is such a content: the error says which, and what to do. Or it cannot be read.
pub(crate) fn refuse_containers(input: &mut Input) -> Result<(), Error> {
    let bytes = input.peek(TAR_HEADER)?;
    let known = KNOWN.iter().find(|(begin, ..)| bytes.starts_with(begin));
    let (what, advice) = match known {
        Some((_, what, advice)) => (*what, (*advice).to_owned()),
        None if is_tar(bytes) => {
            let member = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
            let member = member[..member.len().min(100)].escape_ascii();
            let advice = format!(
                "unpack it with tar -xf, or give one of its files as tar -xOf ARCHIVE {member} | \
                 undercroft trace info -"
            );
            ("a tar archive", advice)
        }
        None => return Ok(()),
    };
    let (path, packed) = (input.path().display(), input.compression());
    let packed = packed.map(|name| format!(", compressed by {name}")).unwrap_or_default();
    Err(Error::Format(format!("{path}: this is {what}{packed}, not a trace: {advice}")))
}

/// Whether a header of a tar archive begins here: its bytes add up to what it says, those of the
/// sum counted as blanks.
fn is_tar(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..TAR_HEADER) else { return false };
    let sum = &header[148..156];
    let text = sum.split(|byte| matches!(byte, 0 | b' ')).find(|part| !part.is_empty());
    let told = text.and_then(|text| std::str::from_utf8(text).ok());
    let told = told.and_then(|text| u32::from_str_radix(text, 8).ok());
    let blanks = u32::from(b' ') * sum.len() as u32;
    let all: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    let own: u32 = sum.iter().map(|&byte| u32::from(byte)).sum();
    header[0] != 0 && told == Some(all - own + blanks)
}
