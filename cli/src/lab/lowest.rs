//! The options of the lowest level of a simulation: what a server's cache does beside replacement.

use clap::Args;
use undercroft_sim::{Lowest, WriteBack, WriteBackCounts};
use undercroft_text::Bytes;

use crate::table::count;

/// Streams that pass the lowest level, and write-back.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "The lowest level")]
pub(crate) struct LowestOptions {
    /// Sequential streams pass the lowest level beyond this size, as 4MiB; 0: they are cached
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    stream_cutoff: u64,
    /// Count the disk's writes as write-back at the lowest level makes them: a dirty block is
    /// written when it is evicted, and at the end; earlier with age=REFERENCES and percent=SHARE,
    /// as --write-back=age=100000,percent=25
    #[arg(long, value_name = "RULES", num_args = 0..=1, require_equals = true,
        default_missing_value = "")]
    write_back: Option<WriteBack>,
}

fn size(text: &str) -> Result<u64, String> {
    let size = text.parse().map(|Bytes(bytes)| bytes);
    size.map_err(|_| "expected a size, as 4MiB, 512K or 1MB".into())
}

impl LowestOptions {
    /// What the lowest level does.
    pub(crate) fn lowest(&self) -> Lowest {
        let (stream_cutoff_bytes, write_back) = (self.stream_cutoff, self.write_back);
        Lowest { stream_cutoff_bytes, write_back }
    }
}

/// How write-back came to its writes, for a person.
pub(crate) fn write_back_text(counts: &WriteBackCounts, writes: u64) -> String {
    let mut parts = vec![
        format!("{} when evicted", count(counts.evicted)),
        format!("{} at the end", count(counts.left)),
    ];
    let others = [(counts.early, "before that, by the rules"), (counts.around, "past the cache")];
    let others = others.into_iter().filter(|(number, _)| *number > 0);
    parts.extend(others.map(|(number, when)| format!("{} {when}", count(number))));
    format!("write-back     {} with write-through; {}", count(writes), parts.join(", "))
}
