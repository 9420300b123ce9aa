//! Measures how fast traces are read: `read_speed FILE...` prints, for each, format, records,
//! seconds, millions of records a second, and a sum over all records so that no work is left away.
//! The whole way is measured: file, decompression, parsing.

use std::path::Path;
use std::time::Instant;

use undercroft_trace::{OpenOptions, open};

fn main() -> Result<(), undercroft_trace::Error> {
    for name in std::env::args().skip(1) {
        let start = Instant::now();
        let mut reader = open(Path::new(&name), &OpenOptions::default())?;
        let (mut count, mut sum) = (0_u64, 0_u64);
        let mut records = Vec::new();
        loop {
            records.clear();
            reader.read(&mut records)?;
            if records.is_empty() {
                break;
            }
            count += records.len() as u64;
            for record in &records {
                sum = sum.wrapping_mul(31).wrapping_add(record.address ^ record.length);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let rate = count as f64 / seconds / 1e6;
        let format = reader.meta().format;
        println!("{name}: {format}, {count} records, {seconds:.3} s, {rate:.1} M/s, {sum:016x}");
    }
    Ok(())
}
