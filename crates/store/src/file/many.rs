//! Many small writes as one job of an I/O thread; neighbours are joined. A write to the kernel's
//! page cache takes about a microsecond; passing it to a thread and waking the waiting task takes
//! ten.

use std::io;

use super::Inner;
use crate::medium::pieces_bytes;
use crate::store::ManyWrite;

/// Makes the writes; returns their results in the given order.
pub(super) fn write(inner: &Inner, writes: &[ManyWrite]) -> Vec<io::Result<()>> {
    let mut order: Vec<usize> = (0..writes.len()).collect();
    order.sort_by_key(|&index| writes[index].offset);
    let mut results: Vec<_> = writes.iter().map(|_| Ok(())).collect();
    let follows = |&before: &usize, &next: &usize| {
        let before = &writes[before];
        before.offset + pieces_bytes(&before.data) == writes[next].offset
    };
    for run in order.chunk_by(follows) {
        if let [_, _, ..] = run {
            let data: Vec<_> = run.iter().flat_map(|&index| writes[index].data.clone()).collect();
            let offset = writes[run[0]].offset;
            let all = inner.medium.check_change("write", offset, pieces_bytes(&data));
            if all.and_then(|()| inner.io.write(offset, &data)).is_ok() {
                continue;
            }
        }
        // Each by itself, so that a bad place fails only the writes that touch it.
        for &index in run {
            let ManyWrite { offset, data } = &writes[index];
            let length = pieces_bytes(data);
            let fault = |error| inner.medium.fault("write", *offset, length, error);
            let checked = inner.medium.check_change("write", *offset, length);
            results[index] = checked.and_then(|()| inner.io.write(*offset, data).map_err(fault));
        }
    }
    results
}
