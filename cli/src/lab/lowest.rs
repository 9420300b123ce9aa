//! The options of the lowest level of a simulation: what a server's cache does beside replacement.

use clap::Args;
use undercroft_sim::{FlashLevel, FlashReport, Lowest, WriteBack, WriteBackCounts};
use undercroft_text::Bytes;

use crate::table::{bytes, count, percent};

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
    /// A flash level between the lowest level and the disk: SIZE, and rule=evidence, access or
    /// second-miss, budget=SIZE/day, rate=REQUESTS (a second), sequential=SIZE, order=POLICY,
    /// times=READ_US:WRITE_US:CHANNELS, as 64GiB,budget=64GiB/day,rate=5000
    /// (docs/user/flash.md); a sweep takes several
    #[arg(long, value_name = "FLASH")]
    pub(crate) flash: Vec<FlashLevel>,
}

fn size(text: &str) -> Result<u64, String> {
    let size = text.parse().map(|Bytes(bytes)| bytes);
    size.map_err(|_| "expected a size, as 4MiB, 512K or 1MB".into())
}

impl LowestOptions {
    /// What the lowest level does.
    pub(crate) fn lowest(&self) -> Lowest {
        let (stream_cutoff_bytes, write_back) = (self.stream_cutoff, self.write_back);
        Lowest { stream_cutoff_bytes, write_back, flash: self.flash.first().cloned() }
    }
}

/// The flash level in the table of levels.
pub(crate) fn flash_row(flash: &FlashReport, block_bytes: u64) -> Vec<String> {
    let size = u64::from(flash.capacity_blocks);
    let (_, rules) = flash.flash.split_once(',').unwrap_or_default();
    vec![
        "flash".into(),
        rules.into(),
        format!("{} blocks", count(size)),
        bytes(size * block_bytes),
        percent(flash.read_hits as f64 / flash.reads.max(1) as f64),
        percent(flash.share_of_reads),
    ]
}

/// What was written to flash and what it brought, for a person.
pub(crate) fn flash_text(flash: &FlashReport) -> String {
    let mut text = format!(
        "flash          {} blocks written: {:.1} for 1,000 reads, {:.2} for a hit; {} reads spared \
         the disk for a GB written",
        count(flash.written),
        flash.written_per_1000_reads,
        flash.written_per_hit,
        count(flash.hits_per_gb_written as u64),
    );
    if flash.reloads > 0 {
        text += &format!("; {} reloaded from it", count(flash.reloads));
    }
    if let Some((gb, writes)) = flash.gb_a_day.zip(flash.drive_writes_a_day) {
        let lasts = match flash.years {
            None => String::new(),
            Some(years) if years < 1.0 => format!(": {:.1} days", 365.0 * years),
            Some(years) => format!(": {years:.1} years"),
        };
        text += &format!(
            "\nwear           {gb:.2} GB and {writes:.2} writes of the whole level a day{lasts}"
        );
    }
    if let Some((read_ms, [reads, writes])) = flash.read_ms.zip(flash.busy) {
        let (reads, writes) = (percent(reads), percent(writes));
        text +=
            &format!("\nchannels       {read_ms:.3} ms a read, {reads} reading, {writes} writing");
    }
    let kept = [
        (flash.kept, "had a copy still"),
        (flash.without_evidence, "without evidence"),
        (flash.sequential, "in sequential streams"),
        (flash.too_dear, "not worth their price"),
        (flash.over_budget, "beyond the budget"),
    ];
    let kept = kept.iter().filter(|(blocks, _)| *blocks > 0);
    let kept: Vec<_> = kept.map(|(blocks, why)| format!("{} {why}", count(*blocks))).collect();
    let lead = if kept.is_empty() { "" } else { "\nnot written    " };
    text + lead + &kept.join(", ")
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
