//! What the fuzz target of the trace readers does with its bytes. The ordinary tests do the same
//! with random ones.

use std::io::Write;

use undercroft_trace::{BlockOptions, BlockStream, OpenOptions, formats, open};

/// Records that are read of a trace: a compressed one may have billions.
const RECORDS_MAX: usize = 1 << 20;

/// The bytes are a trace: of the format that the first byte chooses, or of one that is recognised.
/// Whatever they are, reading ends, in records or in an error that says where.
pub(crate) fn readers(bytes: &[u8]) {
    let Some((&choice, content)) = bytes.split_first() else { return };
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(content).expect("a written file");
    let names: Vec<_> = formats().map(|format| format.name).collect();
    let format = names.get(usize::from(choice) % (names.len() + 1)).map(|name| name.to_string());
    let options = OpenOptions { format };
    if let Ok(mut reader) = open(file.path(), &options) {
        let (mut records, mut all) = (Vec::new(), 0);
        while all < RECORDS_MAX {
            records.clear();
            let end = reader.read(&mut records);
            all += records.len();
            if end.is_err() || records.is_empty() {
                break;
            }
        }
    }
    // Once more, split into blocks and renumbered.
    let Ok(reader) = open(file.path(), &options) else { return };
    let Ok(mut stream) = BlockStream::new(reader, &BlockOptions::default()) else { return };
    let (mut refs, mut all) = (Vec::new(), 0);
    while all < RECORDS_MAX {
        refs.clear();
        if !matches!(stream.next_chunk(&mut refs), Ok(true)) {
            break;
        }
        all += refs.len();
    }
}
