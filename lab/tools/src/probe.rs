//! Finds out what cache a server has: its capacity in blocks, and whether it evicts by recency of
//! use. Works with any NBD server, and never writes. The probe replaces the content of the cache,
//! and gives useful results on an otherwise idle server only.
//!
//! Not here: learning the same from regular requests (`undercroft_level::content::Prober`).

use std::time::Instant;

use serde::Serialize;
use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};

/// Blocks read to tell fast from slow replies.
const SAMPLES: u64 = 64;

/// Slow replies must take at least this many times as long as fast ones.
const RATIO_MIN: f64 = 1.5;

/// Replies below this share of a slow reply's time count as fast.
const SLOW_SHARE: f64 = 0.5;

/// Blocks read after a slow one, to confirm that blocks have left: three of four must be slow, or
/// the slow reply counts as an accident.
const CONFIRMING: u64 = 24;

/// How often the search for the size restarts because of a late reply.
const TRIES_AGAIN: u32 = 4;

/// How often the order of replacement is measured.
const ROUNDS: usize = 3;

/// Options of a probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Most blocks that are tried; larger caches are reported as this large.
    pub blocks_max: u64,
    /// Most bytes of the blocks that are tried.
    pub bytes_max: u64,
    /// Bytes of a block; `None`: the size that the server prefers.
    pub block_bytes: Option<u32>,
    /// Seed that selects which blocks are read first.
    pub seed: u64,
    /// How to connect.
    pub options: ClientOptions,
}

/// The findings of a probe.
#[derive(Clone, Debug, Serialize)]
pub struct Probed {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Median time of a first read, in microseconds.
    pub slow_us: f64,
    /// Median time of an immediate second read, in microseconds.
    pub fast_us: f64,
    /// Capacity in blocks; `None` if first and second reads take equally long: there is no cache,
    /// it already held all blocks, or the disk is as fast as it.
    pub blocks: Option<u64>,
    /// Whether no block had left: the capacity is at least `blocks`.
    pub is_least: bool,
    /// Whether using a block again keeps it longer, as with LRU and unlike FIFO.
    pub is_by_recency: Option<bool>,
    /// Number of reads made.
    pub reads: u64,
}

struct Probe {
    client: Client,
    block_bytes: u64,
    blocks: u64,
    start: u64,
    step: u64,
    /// Number of blocks read for the first time so far.
    used: u64,
    border_us: f64,
    reads: u64,
}

/// Probes a server.
///
/// # Errors
/// The server cannot be reached or fails, or the volume is too small.
pub async fn probe(uri: &Uri, how: &ProbeOptions) -> Result<Probed, ClientError> {
    let client = Client::connect(uri, &how.options).await?;
    let info = client.remote().info.clone();
    let preferred = info.preferred_block.clamp(512, 64 << 10);
    let block_bytes = how.block_bytes.unwrap_or(preferred).max(info.min_block);
    let blocks = info.size / u64::from(block_bytes);
    if blocks < 4 * SAMPLES {
        let text = format!("{blocks} blocks of {block_bytes} bytes are too few to say anything");
        return Err(ClientError::Refused(text));
    }
    // Successive blocks lie far apart, so that the server does not read ahead, and all are
    // distinct.
    let mut step = (blocks as f64 * 0.618_034) as u64 | 1;
    while gcd(step, blocks) > 1 {
        step += 2;
    }
    let mut probe = Probe {
        client,
        block_bytes: block_bytes.into(),
        blocks,
        start: how.seed % blocks,
        step,
        used: 0,
        border_us: 0.0,
        reads: 0,
    };
    let (slow_us, fast_us) = probe.calibrate().await?;
    let none = Probed {
        block_bytes,
        slow_us,
        fast_us,
        blocks: None,
        is_least: false,
        is_by_recency: None,
        reads: 0,
    };
    if slow_us < RATIO_MIN * fast_us {
        return Ok(Probed { reads: probe.reads, ..none });
    }
    // On a busy machine a fast reply may come late, but no slow reply comes fast.
    probe.border_us = (slow_us * fast_us).sqrt().max(SLOW_SHARE * slow_us);
    let most = how.blocks_max.min(how.bytes_max / probe.block_bytes);
    let most = most.clamp(SAMPLES, blocks - SAMPLES);
    let (found, is_least) = probe.size(most).await?;
    let is_by_recency = if is_least { None } else { probe.recency(found).await? };
    let (blocks, reads) = (Some(found), probe.reads);
    Ok(Probed { blocks, is_least, is_by_recency, reads, ..none })
}

impl Probe {
    /// The block with this number. Numbers below the number of blocks give distinct blocks.
    fn block(&self, number: u64) -> u64 {
        let jump = u128::from(number) * u128::from(self.step) + u128::from(self.start);
        (jump % u128::from(self.blocks)) as u64
    }

    /// Reads a block; returns the time in microseconds.
    async fn time(&mut self, number: u64) -> Result<f64, ClientError> {
        let offset = self.block(number) * self.block_bytes;
        let buffer = vec![0_u8; self.block_bytes as usize];
        self.reads += 1;
        let began = Instant::now();
        let (_, result) = self.client.read(offset, vec![Box::new(buffer)]).await;
        result?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }

    async fn is_fast(&mut self, number: u64) -> Result<bool, ClientError> {
        Ok(self.time(number).await? < self.border_us)
    }

    /// Reads `count` blocks that were never read before; returns the number of the first.
    async fn read_fresh(&mut self, count: u64) -> Result<u64, ClientError> {
        let first = self.used;
        for number in first..first + count {
            self.time(number).await?;
        }
        self.used += count;
        Ok(first)
    }

    /// Median times of first and of second reads.
    async fn calibrate(&mut self) -> Result<(f64, f64), ClientError> {
        let (mut slow, mut fast) = (Vec::new(), Vec::new());
        for number in 0..SAMPLES {
            slow.push(self.time(number).await?);
            fast.push(self.time(number).await?);
        }
        self.used = SAMPLES;
        Ok((median(slow), median(fast)))
    }

    /// The capacity: reads more and more blocks, and goes back from the last one until one has
    /// left. Each round uses fresh blocks, since going back changes the order of use. It also
    /// restarts after a late reply, since the check whether the block had left has loaded others.
    async fn size(&mut self, most: u64) -> Result<(u64, bool), ClientError> {
        let mut count = SAMPLES.min(most);
        let mut again = TRIES_AGAIN;
        'anew: loop {
            let first = self.read_fresh(count).await?;
            let mut stayed = 0;
            while stayed < count {
                let number = first + count - 1 - stayed;
                if !self.is_fast(number).await? {
                    if self.is_gone(first, number).await? {
                        return Ok((stayed, false));
                    }
                    if again > 0 && self.blocks - self.used >= 2 * count {
                        again -= 1;
                        continue 'anew;
                    }
                }
                stayed += 1;
            }
            let next = (2 * count).min(most).min(self.blocks - self.used);
            if next <= count {
                return Ok((count, true));
            }
            count = next;
        }
    }

    /// Whether most blocks before this one have left, too.
    async fn is_gone(&mut self, first: u64, number: u64) -> Result<bool, ClientError> {
        let before = (first..number).rev().take(CONFIRMING as usize);
        let (mut slow, mut all) = (0, 0);
        for number in before {
            slow += u64::from(!self.is_fast(number).await?);
            all += 1;
        }
        Ok(4 * slow >= 3 * all)
    }

    /// Fills the cache, uses the first block again, and replaces half of the cache. True if that
    /// block is still cached; `None` if the volume has too few blocks.
    async fn recency(&mut self, blocks: u64) -> Result<Option<bool>, ClientError> {
        let mut stayed = 0;
        for round in 0..ROUNDS {
            // Not quite all: the estimate may be slightly too high.
            let (fill, anew) = (blocks - blocks / 16, blocks / 2 + blocks / 8 + 1);
            if self.blocks - self.used < fill + anew {
                // The blocks of the beginning have left long ago.
                self.used =
                    if round == 0 && self.blocks < 4 * blocks { return Ok(None) } else { 0 };
            }
            let first = self.read_fresh(fill).await?;
            self.time(first).await?;
            self.read_fresh(anew).await?;
            stayed += usize::from(self.is_fast(first).await?);
        }
        Ok(Some(2 * stayed > ROUNDS))
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
