//! The table of counters: each number of a volume once, with its unit, its names and its help. The
//! JSON of `/stats`, `/metrics`, the tables of `undercroft stats`, the live page and the tables of
//! the documents come from it. The names that scripts rely on are those of the simulator.
//!
//! Counters of blocks are in the shards, under the lock that a reference holds anyway. Latencies
//! and counters without relation to a shard are atomics.

mod row;

use serde::Serialize;
use undercroft_flash::FlashCounts;
use undercroft_hints::{ClientStat, PolicyName};
use undercroft_level::ClientCounts;
use undercroft_nbd::{COMMANDS, CommandKind};
use undercroft_policy::Counts;
use undercroft_store::Backlog;

pub use self::row::{Counter, Group, Kind, Page, Unit};
use self::row::{counter, counters, gauge, largest};
use crate::histogram::Histogram;

/// Where the blocks of a request came from. The slowest block determines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// All were in memory. Commands that read or write no blocks always count as this.
    Hit,
    /// At least one was resident but not available at once: it was being fetched for an earlier
    /// request, busy with one, or not read again since a warm restart.
    Joined,
    /// At least one was not resident.
    Miss,
}

impl Source {
    /// All sources with their names in metrics.
    pub const ALL: [(Self, &str); 3] =
        [(Self::Hit, "hit"), (Self::Joined, "joined"), (Self::Miss, "miss")];
}

/// Latencies from the arrival of a request to its answer, by command and source.
#[derive(Default)]
pub struct Latencies([[Histogram; 3]; COMMANDS.len()]);

impl Latencies {
    /// The histogram of one kind of request.
    pub fn of(&self, operation: CommandKind, source: Source) -> &Histogram {
        &self.0[operation as usize][source as usize]
    }
}

counters! {
    /// The counters of a volume. All count since its start, except those of the present state.
    Stats {
    /// Blocks that clients read.
    reads: counter(Unit::Blocks, "read_blocks").stats("reads").page(Page::PlainAndBytes);
    /// Blocks that clients read and that were resident, or were being fetched already.
    read_hits: counter(Unit::Blocks, "read_hit_blocks").stats("read hits").page(Page::Plain);
    /// Blocks that clients wrote; a request counts each block that it touches once.
    writes: counter(Unit::Blocks, "written_blocks").stats("writes").page(Page::PlainAndBytes);
    /// Blocks that clients wrote and that were resident.
    write_hits: counter(Unit::Blocks, "write_hit_blocks").stats("write hits");
    /// Blocks that clients read and that were not referenced since the start, nor known from the
    /// saved state; 0 where that is not known.
    cold_reads: counter(Unit::Blocks, "cold_read_blocks");
    /// Blocks read or written past the cache, because they continue a sequential stream and were
    /// not resident.
    streamed: counter(Unit::Blocks, "streamed_blocks").stats("streamed");
    /// Blocks that replacement removed from the cache.
    evictions: counter(Unit::Blocks, "evicted_blocks").stats("evictions");
    /// Read hits that had to wait: the block was being fetched for another request, being written,
    /// or not loaded again since a warm restart.
    joined_reads: counter(Unit::Blocks, "joined_read_blocks").page(Page::Plain);
    /// Blocks read or written without a place in the cache because no frame was free: replies that
    /// clients do not read, or requests that the store does not answer, hold all frames.
    served_around: counter(Unit::Blocks, "served_around_blocks").page(Page::Plain);
    /// Blocks fetched for CACHE requests or by a warm restart.
    prefetched: counter(Unit::Blocks, "prefetched_blocks");
    /// Blocks fetched ahead of a sequential reader.
    read_ahead: counter(Unit::Blocks, "read_ahead_blocks");
    /// Blocks read from the store, for any reason.
    store_reads: counter(Unit::Blocks, "store_read_blocks").page(Page::Bytes);
    /// Blocks written to the store, whole or in part, for any reason.
    store_writes: counter(Unit::Blocks, "store_written_blocks").page(Page::Bytes);
    /// Dirty blocks written to the store after the client's write was answered.
    written_back: counter(Unit::Blocks, "written_back_blocks");
    /// Blocks whose write was answered when the store had it, although the volume writes back,
    /// because dirty-max-percent or dirty-max-age-s was reached.
    bounded_writes: counter(Unit::Blocks, "bounded_write_blocks").page(Page::Plain);
    /// Blocks whose read from the store failed.
    read_failures: counter(Unit::Blocks, "failed_read_blocks");
    /// Blocks whose write to the store failed; dirty blocks are tried again.
    write_failures: counter(Unit::Blocks, "failed_write_blocks");
    /// Flushes that failed at the store, or because a change before them was refused or lost: what
    /// was answered before may not be durable.
    flush_failures: counter(Unit::Of("flushes"), "failed_flushes");
    /// Requests that were recorded.
    recorded: counter(Unit::Of("requests"), "recorded_requests");
    /// Requests that were left out of the recording, for want of time or after an error.
    unrecorded: counter(Unit::Of("requests"), "unrecorded_requests");
    /// Blocks resident in the cache now.
    resident: gauge(Unit::Blocks, "resident_blocks").stats("resident").page(Page::Bytes);
    /// Blocks that the cache has room for now.
    capacity_blocks: gauge(Unit::Blocks, "capacity_blocks").page(Page::Bytes);
    /// Blocks of the cache's share, which the configuration gives and share=auto moves: more than
    /// its capacity while it lends memory to other volumes, and fewer while it borrows.
    share_blocks: gauge(Unit::Blocks, "share_blocks");
    /// Blocks resident now whose data have not been loaded again since a warm restart.
    unloaded: gauge(Unit::Blocks, "unloaded_blocks");
    /// Blocks with an operation in progress now, or a change that is being written out.
    in_progress: gauge(Unit::Blocks, "in_progress_blocks").page(Page::Plain);
    /// Blocks whose operation waits for a free frame now.
    starved: gauge(Unit::Blocks, "starved_blocks").page(Page::Plain);
    /// Blocks with a change that the store does not have yet.
    dirty: gauge(Unit::Blocks, "dirty_blocks").stats("dirty").page(Page::Bytes);
    /// Seconds since the oldest change that the store does not have; 0 if it has all. Of several
    /// volumes, the largest.
    dirty_age_s: largest(Unit::Seconds, "dirty_age_seconds").page(Page::Plain);
    /// Requests of clients answered with EIO because the store did not answer within
    /// store-timeout-s.
    store_timeouts: counter(Unit::Of("requests"), "timed_out_requests");
    /// Requests to the store that failed, of any kind; those for its size and its status count too.
    store_failures: counter(Unit::Of("requests"), "failed_store_requests")
        .stats("failures").page(Page::Plain);
    /// 0 while the store is failing, down or away, otherwise 1; of several volumes, how many
    /// have 1.
    store_up: gauge(Unit::YesOrNo, "store_up");
    /// Seconds since the store has been waited for, while it is waiting or down; otherwise 0. Of
    /// several volumes, the largest.
    store_waiting_seconds: largest(Unit::Seconds, "store_waiting_seconds");
    /// Seconds since the oldest request began that the store has not answered, also while it
    /// answers others; 0 without one. Of several volumes, the largest.
    store_oldest_request_seconds: largest(Unit::Seconds, "store_oldest_request_seconds")
        .page(Page::Plain);

    [
    /// Counters of cooperation, unless placement is access-based.
    "cooperation_" cooperation: CooperationStats;
    /// Counters of content awareness, if the policy or a client uses it.
    "content_" aware: AwareStats;
    /// Counters of the reports to the server below, if it is told what leaves.
    "tells_" tells: TellStats;
    /// Counters of the level on flash, if there is one.
    "flash_" flash: FlashStats;
    /// What waits in the write log of the store, if it has one.
    "log_" log: LogStats;
    ]
    }
}

counters! {
    /// What waits in the write log of a volume's store.
    LogStats {
    /// Bytes of the write log that hold changes which the store does not have yet.
    used_bytes: gauge(Unit::Bytes, "used_bytes").stats("in the log").page(Page::Plain);
    /// Bytes of the write log.
    capacity_bytes: gauge(Unit::Bytes, "capacity_bytes");
    /// Seconds since the oldest change came to the write log that the store does not have yet; 0
    /// if it has all. Of several volumes, the largest.
    age_seconds: largest(Unit::Seconds, "age_seconds");
    }
}

counters! {
    /// What a volume with eviction-based or global placement counts.
    CooperationStats {
    /// Messages of clients with hints that were understood.
    hint_messages: counter(Unit::Of("messages"), "hint_messages");
    /// Bytes of the messages of clients with hints that were understood.
    hint_bytes: counter(Unit::Bytes, "hint_bytes");
    /// Messages of clients with hints that were damaged, or refused for another reason.
    hint_messages_refused: counter(Unit::Of("messages"), "refused_hint_messages");
    /// Evictions that clients told.
    hints: counter(Unit::Blocks, "told_eviction_blocks").page(Page::Plain);
    /// Evictions that clients told too late to be of use.
    late_hints: counter(Unit::Blocks, "late_eviction_blocks").stats("late").page(Page::Plain);
    /// Evictions that clients told of blocks that they had read again since.
    stale_hints: counter(Unit::Blocks, "stale_eviction_blocks").stats("stale").page(Page::Plain);
    /// Evictions that clients told of blocks that another client holds.
    held_by_others: counter(Unit::Blocks, "held_by_others_blocks");
    /// Hints that the server cannot use, that lie beyond the volume's end, or that exceed the limit
    /// of a message.
    ignored_hints: counter(Unit::Blocks, "ignored_hint_blocks");
    /// Evictions by clients that became known in time, told or emulated.
    known_evictions: counter(Unit::Blocks, "known_eviction_blocks").stats("evictions told");
    /// Evictions by clients that were only predicted.
    foreseen_evictions: counter(Unit::Blocks, "foreseen_eviction_blocks");
    /// Blocks that a client evicted while they were resident here.
    already_resident: counter(Unit::Blocks, "already_resident_blocks");
    /// Blocks that a client evicted and that were placed by reading them from the store again.
    reloads: counter(Unit::Blocks, "reloaded_blocks").stats("reloads");
    /// Blocks that were placed with the data that a client sent.
    demotions_in: counter(Unit::Blocks, "demoted_blocks").stats("demoted");
    /// Blocks that were placed from the staging area.
    staged: counter(Unit::Blocks, "staged_blocks").stats("staged");
    /// Blocks that clients read from the staging area.
    staged_hits: counter(Unit::Blocks, "staged_hit_blocks").stats("staged hits").page(Page::Plain);
    /// Read hits of blocks that had been placed with the data that a client sent.
    demoted_hits: counter(Unit::Blocks, "demoted_hit_blocks").page(Page::Plain);
    /// Read hits of blocks that had been placed by a reload.
    reloaded_hits: counter(Unit::Blocks, "reloaded_hit_blocks").page(Page::Plain);
    /// Read hits of blocks that had been placed from the staging area.
    restaged_hits: counter(Unit::Blocks, "restaged_hit_blocks").page(Page::Plain);
    /// Blocks that a client evicted and that were not worth a reload.
    skipped: counter(Unit::Blocks, "skipped_blocks");
    /// Blocks whose data a client sent and that were accepted: they are what the store has.
    demotions_accepted: counter(Unit::Blocks, "accepted_demotion_blocks");
    /// Blocks whose data a client sent and that were refused, for any reason.
    demotions_refused: counter(Unit::Blocks, "refused_demotion_blocks").stats("refused");
    /// Blocks whose data a client sent and that were refused because the volume's data was not
    /// known.
    demotions_refused_unknown: counter(Unit::Blocks, "refused_demotion_unknown_blocks");
    /// Blocks whose data a client sent and that were refused because the volume has other data.
    demotions_refused_changed: counter(Unit::Blocks, "refused_demotion_changed_blocks");
    /// Blocks whose data a client sent and that were refused because an operation, a reload or a
    /// range of the block was in progress.
    demotions_refused_busy: counter(Unit::Blocks, "refused_demotion_busy_blocks");
    /// Blocks whose data a client sent and that were refused because the data was shorter or longer
    /// than the block.
    demotions_refused_malformed: counter(Unit::Blocks, "refused_demotion_malformed_blocks");
    /// Blocks whose data a client sent and that were refused because the client may not write the
    /// volume.
    demotions_refused_forbidden: counter(Unit::Blocks, "refused_demotion_forbidden_blocks");
    /// Blocks whose data a client sent before the write that brings them, and that were remembered
    /// for that write.
    demotions_awaited: counter(Unit::Blocks, "awaited_demotion_blocks");
    /// Blocks that were placed with the data of the write for which they had been remembered.
    demotions_written: counter(Unit::Blocks, "written_demotion_blocks").stats("with write");
    /// Blocks that are remembered now for a write to come.
    demotions_awaiting: gauge(Unit::Blocks, "awaiting_demotion_blocks");
    /// Blocks that clients said to want soon (PROMOTE).
    promoted: counter(Unit::Blocks, "promoted_blocks");
    /// Blocks that clients said to keep (HOLD).
    held: counter(Unit::Blocks, "held_blocks");
    /// Blocks that entered the queue of reloads.
    reloads_queued: counter(Unit::Blocks, "reload_queued_blocks");
    /// Blocks whose reload was requested while they were in the queue of reloads already.
    reloads_duplicate: counter(Unit::Blocks, "reload_duplicate_blocks");
    /// Blocks that left the queue of reloads because a client asked for them.
    reloads_demanded: counter(Unit::Blocks, "reload_demanded_blocks");
    /// Reloads that were dropped because the block was written, or changed in any way while it was
    /// being read.
    reloads_written: counter(Unit::Blocks, "reload_written_blocks");
    /// Reloads that were dropped because the block was trimmed or zeroed.
    reloads_discarded: counter(Unit::Blocks, "reload_discarded_blocks");
    /// Reloads that were dropped because the queue was full.
    reloads_overflowed: counter(Unit::Blocks, "reload_overflowed_blocks");
    /// Reloads that were dropped because the block was resident when its turn came.
    reloads_resident: counter(Unit::Blocks, "reload_resident_blocks");
    /// Reloads that were dropped because an operation on the block was in progress when its turn
    /// came.
    reloads_busy: counter(Unit::Blocks, "reload_busy_blocks");
    /// Reloads that were dropped because no frame was free.
    reloads_without_frame: counter(Unit::Blocks, "reload_without_frame_blocks");
    /// Reloads that the store failed.
    reloads_failed: counter(Unit::Blocks, "reload_failed_blocks");
    /// Reloads under way that a read took over.
    reloads_joined: counter(Unit::Blocks, "reload_joined_blocks");
    /// Blocks that wait for their reload now.
    reloads_waiting: gauge(Unit::Blocks, "reload_waiting_blocks").page(Page::Plain);
    /// Requests that were served as if placement were access-based, because the emulation of
    /// clients was not good enough.
    estimate_fallbacks: counter(Unit::Of("requests"), "estimate_fallback_requests");
    /// Blocks that the emulated clients are believed to hold now.
    estimated_client_blocks: gauge(Unit::Blocks, "estimated_client_blocks");
    /// Blocks that may be in the staging area now.
    staging_blocks: gauge(Unit::Blocks, "staging_blocks");
    /// Shards that place blocks at their eviction now; with placement auto, the others place them
    /// at the access.
    shards_by_eviction: gauge(Unit::Of("shards"), "eviction_placing_shards");
    /// With placement auto, the share of evictions that came with contents when these were asked
    /// for, in percent, summed over the shards.
    contents_percent_sum: gauge(Unit::Percent, "contents_sum_ratio");
    }
}

counters! {
    /// What a volume counts that goes by what its clients hold, or whose clients go by what it
    /// holds.
    AwareStats {
    /// Evictions of blocks that a client was believed to hold too.
    held_evictions: counter(Unit::Blocks, "held_evicted_blocks").stats("held evictions");
    /// Blocks that a client read although it was believed to hold them.
    mistaken: counter(Unit::Blocks, "mistaken_blocks").stats("mistaken");
    /// Evictions that clients told.
    hints: counter(Unit::Blocks, "told_eviction_blocks").stats("told").page(Page::Plain);
    /// Evictions that clients told too late to be of use.
    late_hints: counter(Unit::Blocks, "late_eviction_blocks").page(Page::Plain);
    /// Evictions that clients told of blocks that they had read again since.
    stale_hints: counter(Unit::Blocks, "stale_eviction_blocks").page(Page::Plain);
    /// Evictions that clients told of blocks that another client holds.
    held_by_others: counter(Unit::Blocks, "held_by_others_blocks");
    /// Hints that the server cannot use, that lie beyond the volume's end, or that exceed the limit
    /// of a message.
    ignored_hints: counter(Unit::Blocks, "ignored_hint_blocks");
    /// Messages of clients with hints that were understood.
    hint_messages: counter(Unit::Of("messages"), "hint_messages");
    /// Bytes of the messages of clients with hints that were understood.
    hint_bytes: counter(Unit::Bytes, "hint_bytes");
    /// Messages of clients with hints that were damaged, or refused for another reason.
    hint_messages_refused: counter(Unit::Of("messages"), "refused_hint_messages");
    /// Summaries of their caches (filters and changes of them) that clients published.
    summaries: counter(Unit::Of("summaries"), "summaries").stats("summaries");
    /// Bytes of the summaries that clients published.
    summary_bytes: counter(Unit::Bytes, "summary_bytes");
    /// Summaries of clients that could not be used: damaged, too large, or following a lost one.
    summaries_unusable: counter(Unit::Of("summaries"), "unusable_summaries");
    /// False positive rate of the worst summary of a client at its present fill, in millionths; of
    /// several volumes, the largest.
    false_positives_ppm: largest(Unit::Millionths, "false_positive_ratio").stats("false positives");
    /// Requests during which the emulation of clients that tell nothing was not trusted.
    distrusted: counter(Unit::Of("requests"), "distrusted_requests");
    /// Blocks that the emulated clients are believed to hold now.
    emulated_blocks: gauge(Unit::Blocks, "emulated_blocks").stats("emulated");
    /// Clients that follow the content of this cache now.
    followers: gauge(Unit::Of("clients"), "following_clients").stats("followers");
    /// Answers to clients that follow the content of this cache.
    news: counter(Unit::Of("answers"), "news_answers");
    /// Bytes of what the answers to clients said that follow the content of this cache.
    news_bytes: counter(Unit::Bytes, "news_bytes").stats("news");
    /// Summaries of this cache that were published to clients that follow it.
    published: counter(Unit::Of("summaries"), "published_summaries").stats("published");
    /// Times that all clients that follow this cache had to begin anew, since too much had changed
    /// unread.
    restarts: counter(Unit::Of("restarts"), "follower_restarts");
    }
}

counters! {
    /// What a volume counts that tells the server below what leaves its cache.
    TellStats {
    /// Messages sent to the server below.
    messages: counter(Unit::Of("messages"), "messages").stats("messages");
    /// Messages that the server below refused, or that were lost with the connection.
    messages_refused: counter(Unit::Of("messages"), "refused_messages").stats("refused");
    /// Blocks of which the server below was told that they have left this cache.
    evictions: counter(Unit::Blocks, "evicted_blocks").stats("told below");
    /// Blocks that were sent to the server below when they left this cache.
    handed_over: counter(Unit::Blocks, "handed_over_blocks").stats("handed over");
    /// Blocks that left and of which the server below was never told since too many waited.
    lost: counter(Unit::Blocks, "lost_blocks").stats("lost");
    /// Blocks that left and of which the server below was not told since it takes no hints.
    unheard: counter(Unit::Blocks, "unheard_blocks").stats("unheard");
    /// Servers below that take hints now: 1, or 0.
    listening: gauge(Unit::Of("servers"), "listening_servers");
    }
}

counters! {
    /// What a volume with a level on flash counts.
    FlashStats {
    /// Blocks that clients read, that missed in memory, and that were looked for on flash.
    reads: counter(Unit::Blocks, "read_blocks");
    /// Blocks that clients read, that missed in memory, and that lay on flash.
    hits: counter(Unit::Blocks, "hit_blocks").stats("flash hits").page(Page::Plain);
    /// Blocks written to flash.
    written: counter(Unit::Blocks, "written_blocks").stats("flash writes").page(Page::Bytes);
    /// Blocks written to flash that lay there until a write ended their copy.
    rewritten: counter(Unit::Blocks, "rewritten_blocks");
    /// Blocks that left memory while a good copy lay on flash.
    kept: counter(Unit::Blocks, "kept_blocks");
    /// Copies on flash that a write, a TRIM or a loss ended.
    ended: counter(Unit::Blocks, "ended_blocks");
    /// Blocks that left flash for others.
    evicted: counter(Unit::Blocks, "evicted_blocks");
    /// Blocks that left memory and were not written to flash, since nothing spoke for them.
    without_evidence: counter(Unit::Blocks, "without_evidence_blocks");
    /// Blocks not written to flash because they belonged to a sequential stream.
    sequential: counter(Unit::Blocks, "sequential_blocks");
    /// Blocks not written to flash because they were worth less than a write cost while the budget
    /// was short.
    too_dear: counter(Unit::Blocks, "too_dear_blocks");
    /// Blocks not written to flash because the budget was spent.
    over_budget: counter(Unit::Blocks, "over_budget_blocks").stats("over budget");
    /// Blocks not written to flash because it was too slow, or failed.
    given_up: counter(Unit::Blocks, "given_up_blocks").stats("given up");
    /// Blocks whose read from flash failed, or took too long: they were read from the store.
    failed_reads: counter(Unit::Blocks, "failed_read_blocks");
    /// Blocks that came back from flash changed: they were read from the store.
    damaged: counter(Unit::Blocks, "damaged_blocks");
    /// Blocks whose write to flash failed.
    failed_writes: counter(Unit::Blocks, "failed_write_blocks");
    /// Blocks on flash that the server finds there after a restart.
    durable: gauge(Unit::Blocks, "durable_blocks");
    /// Pages of 4 KiB that were written to flash so that they are found.
    journal_pages: counter(Unit::Of("pages"), "journal_pages");
    /// Blocks that the volume's part of flash has room for.
    capacity_blocks: gauge(Unit::Blocks, "capacity_blocks");
    /// Shards whose flash is used: none after too many failures.
    up: gauge(Unit::Of("shards"), "using_shards");
    }
}

/// Adds numbers that have the same names in both.
macro_rules! add_named {
    ($own:ident += $other:ident: $($name:ident)*) => { $($own.$name += $other.$name;)* };
}
pub(crate) use add_named;

impl AwareStats {
    /// Adds the counts of a message.
    pub(crate) fn receive_hints(&mut self, count: &CooperationStats) {
        add_named!(self += count: hints late_hints ignored_hints hint_messages hint_bytes
            hint_messages_refused);
    }

    /// What the level of a shard counted.
    pub(crate) fn of(counts: &ClientCounts) -> Self {
        let mut own = Self::default();
        add_named!(own += counts: held_evictions mistaken held_by_others stale_hints summaries
            summary_bytes summaries_unusable false_positives_ppm distrusted emulated_blocks);
        own
    }
}

impl FlashStats {
    /// Adds what the level on flash of a shard counted.
    pub(crate) fn add(&mut self, counts: &FlashCounts) {
        add_named!(self += counts: reads hits written rewritten kept ended evicted
            without_evidence sequential too_dear over_budget given_up);
    }
}

impl LogStats {
    pub(crate) fn of(log: Backlog) -> Self {
        Self {
            used_bytes: log.bytes,
            capacity_bytes: log.capacity,
            age_seconds: log.age.map_or(0, |age| age.as_secs()),
        }
    }
}

impl Stats {
    /// Adds what the level of a shard counted.
    pub(crate) fn add(&mut self, counts: &Counts) {
        add_named!(self += counts: reads read_hits writes write_hits cold_reads evictions streamed);
    }

    /// The counters that a cache reports to a server below.
    pub(crate) fn for_server_below(&self, latencies: &Latencies, policy: &str) -> ClientStat {
        let of = |source| latencies.of(CommandKind::Read, source).sum_ns();
        let read_ns: u64 = [Source::Hit, Source::Joined, Source::Miss].map(of).iter().sum();
        ClientStat {
            reads: self.reads,
            read_hits: self.read_hits,
            writes: self.writes,
            write_hits: self.write_hits,
            evictions: self.evictions,
            capacity_blocks: self.capacity_blocks,
            read_us_total: read_ns / 1000,
            tracking: None,
            policy: PolicyName::new(policy),
        }
    }

    /// Read hits / reads; 0 where nothing was read.
    pub fn read_hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.read_hits as f64 / self.reads as f64 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_row_can_be_read_alone_and_has_names_of_its_own() {
        let mut names = BTreeSet::new();
        for group in COUNTERS {
            for row in group.rows {
                let what = format!("{} {}: {}", group.json, row.name, row.help);
                assert!(row.help.ends_with('.') && !row.help.contains('\n'), "{what}");
                let leans = ["Those ", "Of ", "The same", "As ", "Their", "They "];
                assert!(!leans.iter().any(|word| row.help.starts_with(word)), "{what}");
                assert!(row.metric.ends_with(row.unit.suffix()), "{what}: {}", row.metric);
                assert!(
                    row.page == Page::No || row.page == Page::Plain || row.unit == Unit::Blocks
                );
                let mut own = BTreeSet::from([row.name, row.metric]).into_iter();
                assert!(own.all(|name| names.insert(format!("{}{name}", group.prefix))), "{what}");
            }
        }
        assert!(names.len() > 150, "{}", names.len());
    }

    #[test]
    fn values_are_in_the_order_of_the_rows_and_the_largest_is_no_sum() {
        let (mut one, mut other) = (Stats::default(), Stats::default());
        (one.reads, one.dirty_age_s, one.dirty) = (3, 40, 5);
        (other.reads, other.dirty_age_s, other.dirty) = (4, 9, 6);
        other.aware =
            Some(AwareStats { false_positives_ppm: 7, hints: 2, ..AwareStats::default() });
        one.sum(&other);
        one.sum(&Stats { aware: other.aware, ..Stats::default() });
        let of = |group: &str, name: &str| {
            let group = COUNTERS.iter().find(|one| one.json == group).unwrap();
            let at = group.rows.iter().position(|row| row.name == name).unwrap();
            (group.values)(&one).map(|values| values[at])
        };
        assert_eq!((of("", "reads"), of("", "dirty")), (Some(7), Some(11)));
        assert_eq!((of("", "dirty_age_s"), of("", "store_up")), (Some(40), Some(0)));
        assert_eq!((of("aware", "false_positives_ppm"), of("aware", "hints")), (Some(7), Some(4)));
        assert_eq!(of("cooperation", "hints"), None);
        // What is in JSON is what the rows say.
        let json = serde_json::to_value(one).unwrap();
        for group in COUNTERS.iter().filter(|group| !group.json.is_empty()) {
            let own = json.get(group.json).and_then(|own| own.as_object());
            assert!(own.is_none_or(|own| own.len() == group.rows.len()), "{}", group.json);
        }
        assert_eq!(json.as_object().unwrap().len(), Stats::ROWS.len() + 1);
    }
}
