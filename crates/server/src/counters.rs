//! The counters of a volume. The names that scripts rely on are those of the simulator.
//!
//! Counters of blocks are in the shards, under the lock that a reference holds anyway. Latencies
//! and counters without relation to a shard are atomics.

use serde::Serialize;
use undercroft_cache::{ClientCounts, Counts};
use undercroft_nbd::{COMMANDS, CommandKind};

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

/// The counters of a shard beside those of its policy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardCounters {
    pub(crate) joined_reads: u64,
    pub(crate) served_around: u64,
    pub(crate) prefetched: u64,
    pub(crate) read_ahead: u64,
    pub(crate) store_reads: u64,
    pub(crate) store_writes: u64,
    pub(crate) written_back: u64,
    pub(crate) bounded_writes: u64,
    pub(crate) read_failures: u64,
    pub(crate) write_failures: u64,
}

macro_rules! named_stats {
    ($(#[doc = $about:literal])* $stats:ident {
        $($(#[doc = $doc:literal])* $kind:ident $name:ident;)*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $stats {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl $stats {
            /// Name, meaning, whether it only grows, and value of each number.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, bool, u64)> {
                [$((stringify!($name), concat!($($doc),*), stringify!($kind) == "counter",
                    self.$name)),*].into_iter()
            }

            /// Adds the numbers of another shard or volume.
            pub fn sum(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

named_stats! {
    /// What a volume counts that tells the server below what leaves its cache, in blocks where not
    /// said otherwise.
    TellStats {
    /// Messages sent to the server below, in messages.
    counter messages;
    /// Those that it refused, or that were lost with the connection, in messages.
    counter messages_refused;
    /// Blocks that it was told have left.
    counter evictions;
    /// Those of them that were sent with it.
    counter handed_over;
    /// Blocks that it was never told of since too many waited.
    counter lost;
    /// Blocks that it was not told of since it took no hints.
    counter unheard;
    /// Servers below that take hints now.
    gauge listening;
    }
}

named_stats! {
    /// What a volume with eviction-based or global placement counts, in blocks where not said
    /// otherwise.
    CooperationStats {
    /// Mailbox messages that were understood, in messages.
    counter hint_messages;
    /// Bytes of these.
    counter hint_bytes;
    /// Messages that were refused, in messages.
    counter hint_messages_refused;
    /// Evictions told by clients, all of them.
    counter hints;
    /// Those known too late to be of use.
    counter late_hints;
    /// Those of blocks that were read again after the eviction.
    counter stale_hints;
    /// Those of blocks that another client holds.
    counter held_by_others;
    /// Hints for which there is no use here, or beyond the limit of a message.
    counter ignored_hints;
    /// Evictions that became known in time, told or emulated.
    counter known_evictions;
    /// Evictions that were foreseen.
    counter foreseen_evictions;
    /// Evicted blocks that were resident.
    counter already_resident;
    /// Blocks placed by being read back.
    counter reloads;
    /// Blocks placed that a client sent.
    counter demotions_in;
    /// Blocks placed from the staging area.
    counter staged;
    /// Reads served from the staging area.
    counter staged_hits;
    /// Read hits of blocks that a client had sent.
    counter demoted_hits;
    /// Read hits of blocks that had been read back.
    counter reloaded_hits;
    /// Read hits of blocks that had been placed from the staging area.
    counter restaged_hits;
    /// Evicted blocks that were not worth a reload.
    counter skipped;
    /// Demotions whose data the client must have had as the store has it.
    counter demotions_accepted;
    /// Demotions whose data was dropped, for one of the following reasons.
    counter demotions_refused;
    /// Of those: what the volume holds of the block was not known.
    counter demotions_refused_unknown;
    /// Of those: the volume held other data.
    counter demotions_refused_changed;
    /// Of those: an operation, a reload or a range of the block was in progress.
    counter demotions_refused_busy;
    /// Of those: the data was shorter or longer than the block.
    counter demotions_refused_malformed;
    /// Of those: the sender may not write the volume.
    counter demotions_refused_forbidden;
    /// Refused demotions that were remembered, to be placed when a write brings their data.
    counter demotions_awaited;
    /// Of those: blocks that were placed with the data of that write.
    counter demotions_written;
    /// Blocks that are remembered now for a write to come.
    gauge demotions_awaiting;
    /// Blocks that clients said to want soon.
    counter promoted;
    /// Blocks that clients said to keep.
    counter held;
    /// Blocks that entered the queue of reloads.
    counter reloads_queued;
    /// Blocks that were in it already.
    counter reloads_duplicate;
    /// Left the queue since a client asked for them.
    counter reloads_demanded;
    /// Dropped since they were written, or changed in any way while they were being read.
    counter reloads_written;
    /// Dropped since they were trimmed or zeroed.
    counter reloads_discarded;
    /// Dropped since the queue was full.
    counter reloads_overflowed;
    /// Dropped since they were resident when their turn came.
    counter reloads_resident;
    /// Dropped since something was going on with them when their turn came.
    counter reloads_busy;
    /// Dropped since no frame was free.
    counter reloads_without_frame;
    /// Reloads that the store failed.
    counter reloads_failed;
    /// Reloads under way that a read took over.
    counter reloads_joined;
    /// Blocks that wait for their reload now.
    gauge reloads_waiting;
    /// Requests that were served as if placement were access-based, for want of an emulation that
    /// is good enough.
    counter estimate_fallbacks;
    /// Blocks that the emulated clients are believed to hold now.
    gauge estimated_client_blocks;
    /// Blocks that may be staged now.
    gauge staging_blocks;
    /// Shards that place blocks at their eviction now; the others place them at the access.
    gauge shards_by_eviction;
    /// With `auto`: the share of evictions that came with contents, when these were asked for, in
    /// percent; summed over the shards.
    gauge contents_percent_sum;
    }
}

named_stats! {
    /// What a volume counts that goes by what its clients hold, or whose clients go by what it
    /// holds; in blocks where not said otherwise.
    AwareStats {
    /// Evictions of blocks that a client was believed to hold too.
    counter held_evictions;
    /// Reads by clients of what they were believed to hold.
    counter mistaken;
    /// Evictions told by clients, all of them.
    counter hints;
    /// Those known too late to be of use.
    counter late_hints;
    /// Those of blocks that were read again after the eviction.
    counter stale_hints;
    /// Those of blocks that another client holds.
    counter held_by_others;
    /// Hints for which there is no use here, or beyond the limit of a message.
    counter ignored_hints;
    /// Mailbox messages that were understood, in messages.
    counter hint_messages;
    /// Bytes of these.
    counter hint_bytes;
    /// Messages that were refused, in messages.
    counter hint_messages_refused;
    /// Summaries published by clients, in summaries.
    counter summaries;
    /// Bytes of these.
    counter summary_bytes;
    /// Summaries that could not be used, in summaries.
    counter summaries_unusable;
    /// Share of false positives of the worst of these as it is now, in millionths.
    gauge false_positives_ppm;
    /// Requests of clients that say nothing while their emulation was not trusted.
    counter distrusted;
    /// Blocks that the emulated clients are believed to hold now.
    gauge emulated_blocks;
    /// Clients now that go by what this cache holds, in clients.
    gauge followers;
    /// Answers to them, in answers.
    counter news;
    /// Bytes of what these said.
    counter news_bytes;
    /// Summaries of this cache published to them, in summaries.
    counter published;
    /// Times that all of them had to begin anew, since too much had changed unread.
    counter restarts;
    }
}

impl AwareStats {
    /// Adds the counts of a message.
    pub(crate) fn hear(&mut self, count: &CooperationStats) {
        self.hints += count.hints;
        self.late_hints += count.late_hints;
        self.ignored_hints += count.ignored_hints;
        self.hint_messages += count.hint_messages;
        self.hint_bytes += count.hint_bytes;
        self.hint_messages_refused += count.hint_messages_refused;
    }

    /// Adds what the level counted.
    pub(crate) fn with(self, counts: &ClientCounts) -> Self {
        Self {
            held_evictions: counts.held_evictions,
            mistaken: counts.mistaken,
            held_by_others: counts.held_by_others,
            stale_hints: counts.stale_hints,
            summaries: counts.summaries,
            summary_bytes: counts.summary_bytes,
            summaries_unusable: counts.summaries_unusable,
            false_positives_ppm: counts.false_positives_ppm,
            distrusted: counts.distrusted,
            emulated_blocks: counts.emulated_blocks,
            ..self
        }
    }
}

named_stats! {
    /// What a volume counts that is one level of a scheme of movement, in blocks where not said
    /// otherwise.
    MovementStats {
    /// Blocks that came from above, with their data.
    counter demotions_in;
    /// Blocks that came from below to stay.
    counter promotions_in;
    /// Of those, blocks that nobody had asked for.
    counter exchanges_in;
    /// Blocks that went up.
    counter promotions_out;
    /// Blocks from above that were not taken: changed since, never delivered, or here already.
    counter demotions_refused;
    /// Blocks that should have gone down and did not, since something was going on with them.
    counter demotions_unsent;
    /// Blocks that came up in exchange and were not taken, since something had happened to them.
    counter exchanges_refused;
    /// Messages from above that were understood, in messages.
    counter messages;
    /// Bytes of these.
    counter message_bytes;
    /// Messages from above that were refused, in messages.
    counter messages_refused;
    /// Blocks in the protected queue now (HFA).
    gauge hot_blocks;
    /// Blocks that it may have now (HFA).
    gauge hot_target;
    }
}

named_stats! {
    /// What a volume counts whose store runs the next level of a scheme of movement, in blocks
    /// where not said otherwise.
    LowerStats {
    /// Messages to the level below, in messages.
    counter messages;
    /// Bytes of these.
    counter message_bytes;
    /// Messages that it refused, or that were lost with the connection, in messages.
    counter messages_refused;
    /// Blocks that were sent down.
    counter demotions;
    /// Requests of which the level below was told.
    counter asks;
    /// Answers of the level below to requests.
    counter answers;
    /// Blocks that came up in exchange.
    counter exchanges;
    /// Blocks that were not sent down since too many waited.
    counter lost;
    /// Blocks and requests of which the server below was not told, since it runs no such level.
    counter unheard;
    /// Servers below that run the next level now.
    gauge listening;
    }
}

/// The counters of a volume. All numbers count since its start, except those of the present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Blocks read by clients.
    pub reads: u64,
    /// Reads that were hits.
    pub read_hits: u64,
    /// Blocks written by clients; each request counts a block that it touches once.
    pub writes: u64,
    /// Writes that were hits.
    pub write_hits: u64,
    /// Reads of blocks never referenced before; 0 where that is not known.
    pub cold_reads: u64,
    /// Blocks evicted by replacement.
    pub evictions: u64,
    /// Blocks read or written past the cache, because they belong to a recognised stream and were
    /// not resident.
    pub streamed: u64,
    /// Read hits that had to wait: the block was being fetched for another request, being written,
    /// or not read again since a warm restart.
    pub joined_reads: u64,
    /// Blocks read or written without a place in the cache because no frame was free; frames are
    /// then held by clients that do not read their replies.
    pub served_around: u64,
    /// Blocks fetched for CACHE requests or by a warm restart.
    pub prefetched: u64,
    /// Blocks fetched by sequential read-ahead.
    pub read_ahead: u64,
    /// Blocks read from the store, for any reason.
    pub store_reads: u64,
    /// Blocks written to the store, whole or in part, for any reason.
    pub store_writes: u64,
    /// Those of them that were dirty and written out after their answer.
    pub written_back: u64,
    /// Blocks whose write was answered when the store had it, although the volume writes back,
    /// because a bound of dirty data was reached.
    pub bounded_writes: u64,
    /// Blocks whose read from the store failed.
    pub read_failures: u64,
    /// Blocks whose write to the store failed; dirty blocks are tried again.
    pub write_failures: u64,
    /// Flushes that failed, also since a change before them was not taken: what was answered before
    /// may not be durable.
    pub flush_failures: u64,
    /// Requests answered with EIO because the store did not answer in time.
    pub store_timeouts: u64,
    /// Requests to the store that failed, of any kind; the store's size and status count too.
    pub store_failures: u64,
    /// 1 while the store answers all kinds of requests, otherwise 0.
    pub store_up: u64,
    /// Requests that were recorded.
    pub recorded: u64,
    /// Requests that were left out of the recording, for want of time or after an error.
    pub unrecorded: u64,
    /// Blocks resident now.
    pub resident: u64,
    /// Capacity in blocks.
    pub capacity_blocks: u64,
    /// Blocks of the cache's share, which the configuration gives and `share=auto` moves: more than
    /// its capacity while it lends room to other volumes, and fewer while it borrows.
    pub share_blocks: u64,
    /// Blocks resident now whose data have not been read again since a warm restart.
    pub unloaded: u64,
    /// Blocks with an operation in progress now, or a change that is being written out.
    pub in_progress: u64,
    /// Those of them that wait for a free frame.
    pub starved: u64,
    /// Blocks that are dirty now.
    pub dirty: u64,
    /// Seconds since the oldest change that the store does not have; 0 if it has all. Of several
    /// volumes, the largest.
    pub dirty_age_s: u64,
    /// Counters of cooperation, unless placement is access-based.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooperation: Option<CooperationStats>,
    /// Counters of content awareness, if the policy or a client uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aware: Option<AwareStats>,
    /// Counters of the reports to the server below, if it is told what leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tells: Option<TellStats>,
    /// Counters of the level, if the volume is one level of a movement scheme.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub movement: Option<MovementStats>,
    /// Counters of the link to the level below, if the server below runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower: Option<LowerStats>,
}

impl Stats {
    pub(crate) fn add(&mut self, counts: &Counts, own: &ShardCounters) {
        self.reads += counts.reads;
        self.read_hits += counts.read_hits;
        self.writes += counts.writes;
        self.write_hits += counts.write_hits;
        self.cold_reads += counts.cold_reads;
        self.evictions += counts.evictions;
        self.streamed += counts.streamed;
        self.joined_reads += own.joined_reads;
        self.served_around += own.served_around;
        self.prefetched += own.prefetched;
        self.read_ahead += own.read_ahead;
        self.store_reads += own.store_reads;
        self.store_writes += own.store_writes;
        self.written_back += own.written_back;
        self.bounded_writes += own.bounded_writes;
        self.read_failures += own.read_failures;
        self.write_failures += own.write_failures;
    }

    /// Adds the counters of another volume.
    pub fn sum(&mut self, other: &Stats) {
        self.reads += other.reads;
        self.read_hits += other.read_hits;
        self.writes += other.writes;
        self.write_hits += other.write_hits;
        self.cold_reads += other.cold_reads;
        self.evictions += other.evictions;
        self.streamed += other.streamed;
        self.joined_reads += other.joined_reads;
        self.served_around += other.served_around;
        self.prefetched += other.prefetched;
        self.read_ahead += other.read_ahead;
        self.store_reads += other.store_reads;
        self.store_writes += other.store_writes;
        self.written_back += other.written_back;
        self.bounded_writes += other.bounded_writes;
        self.read_failures += other.read_failures;
        self.write_failures += other.write_failures;
        self.flush_failures += other.flush_failures;
        self.store_timeouts += other.store_timeouts;
        self.store_failures += other.store_failures;
        self.store_up += other.store_up;
        self.recorded += other.recorded;
        self.unrecorded += other.unrecorded;
        self.resident += other.resident;
        self.capacity_blocks += other.capacity_blocks;
        self.share_blocks += other.share_blocks;
        self.unloaded += other.unloaded;
        self.in_progress += other.in_progress;
        self.starved += other.starved;
        self.dirty += other.dirty;
        self.dirty_age_s = self.dirty_age_s.max(other.dirty_age_s);
        if let Some(other) = &other.cooperation {
            self.cooperation.get_or_insert_default().sum(other);
        }
        if let Some(other) = &other.aware {
            self.aware.get_or_insert_default().sum(other);
        }
        if let Some(other) = &other.tells {
            self.tells.get_or_insert_default().sum(other);
        }
        if let Some(other) = &other.movement {
            self.movement.get_or_insert_default().sum(other);
        }
        if let Some(other) = &other.lower {
            self.lower.get_or_insert_default().sum(other);
        }
    }

    /// Read hits / reads; 0 where nothing was read.
    pub fn read_hit_ratio(&self) -> f64 {
        if self.reads == 0 { 0.0 } else { self.read_hits as f64 / self.reads as f64 }
    }
}
