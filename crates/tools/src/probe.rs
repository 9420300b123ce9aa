//! Finding out by asking what cache a server has: how many blocks it keeps, and whether it goes by
//! when they were used. Works on any NBD server, and never writes. It takes the cache over while it
//! runs, and is of use on a quiet server only.
//!
//! Not here: finding it out from requests that are made anyway
//! (`undercroft_cache::content::Prober`).

use std::time::Instant;

use serde::Serialize;
use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};

/// Blocks by which fast and slow replies are told apart.
const SAMPLES: u64 = 64;

/// Slow replies take so many times as long as fast ones, at least.
const RATIO_MIN: f64 = 1.5;

/// What takes less than this share of a slow reply's time is fast.
const SLOW_SHARE: f64 = 0.5;

/// Of so many blocks behind a slow one three of four are slow, or the one was an accident.
const CONFIRMING: u64 = 24;

/// How often a search for the size begins anew because of a late reply.
const TRIES_AGAIN: u32 = 4;

/// Times that the order of replacement is asked for.
const ROUNDS: usize = 3;

/// How to probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Blocks that are looked at, at most: a larger cache is not told from one of so many.
    pub blocks_max: u64,
    /// Bytes of a block; none: what the server prefers.
    pub block_bytes: Option<u32>,
    /// Which blocks are read first.
    pub seed: u64,
    /// How to connect.
    pub options: ClientOptions,
}

/// What a server's cache is like.
#[derive(Clone, Debug, Serialize)]
pub struct Probed {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Median microseconds of a first read, and of a second one at once.
    pub slow_us: f64,
    /// Of a second read at once.
    pub fast_us: f64,
    /// Blocks that stay; none if first and second reads are alike: there is no cache, or it holds
    /// all that was asked for already, or the disk is as fast.
    pub blocks: Option<u64>,
    /// Whether no block had gone: there is room for so many at least.
    pub is_least: bool,
    /// Whether a block stays longer that was used again, as with LRU and unlike FIFO.
    pub is_by_recency: Option<bool>,
    /// Blocks that were read.
    pub reads: u64,
}

struct Probe {
    client: Client,
    block_bytes: u64,
    blocks: u64,
    start: u64,
    step: u64,
    /// Fresh blocks that were read so far.
    used: u64,
    border_us: f64,
    reads: u64,
}

/// Asks a server.
///
/// # Errors
/// It cannot be reached, fails, or the volume is too small to say anything.
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
    // From one block to the next is a jump, so that nothing is read ahead; and all differ.
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
    // A reply may take longer than it needs to, so a busy machine makes fast ones slow; no slow one
    // is fast.
    probe.border_us = (slow_us * fast_us).sqrt().max(SLOW_SHARE * slow_us);
    let most = how.blocks_max.clamp(SAMPLES, blocks - SAMPLES);
    let (found, is_least) = probe.size(most).await?;
    let is_by_recency = if is_least { None } else { probe.recency(found).await? };
    let (blocks, reads) = (Some(found), probe.reads);
    Ok(Probed { blocks, is_least, is_by_recency, reads, ..none })
}

impl Probe {
    /// The block of a number: all numbers below that of the blocks are different blocks.
    fn block(&self, number: u64) -> u64 {
        let jump = u128::from(number) * u128::from(self.step) + u128::from(self.start);
        (jump % u128::from(self.blocks)) as u64
    }

    /// Reads a block: microseconds.
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

    /// Reads so many blocks that were never asked for: the number of the first.
    async fn read_fresh(&mut self, count: u64) -> Result<u64, ClientError> {
        let first = self.used;
        for number in first..first + count {
            self.time(number).await?;
        }
        self.used += count;
        Ok(first)
    }

    /// How long first reads take, and second ones.
    async fn calibrate(&mut self) -> Result<(f64, f64), ClientError> {
        let (mut slow, mut fast) = (Vec::new(), Vec::new());
        for number in 0..SAMPLES {
            slow.push(self.time(number).await?);
            fast.push(self.time(number).await?);
        }
        self.used = SAMPLES;
        Ok((median(slow), median(fast)))
    }

    /// Blocks that stay: reads ever more, and goes back from the last one until one has gone. Each
    /// time all anew: going back has used the blocks again, in another order. So it begins anew,
    /// too, if a reply was late: asking whether the block was gone has brought others in.
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

    /// Whether those before a block have gone, too.
    async fn is_gone(&mut self, first: u64, number: u64) -> Result<bool, ClientError> {
        let before = (first..number).rev().take(CONFIRMING as usize);
        let (mut slow, mut all) = (0, 0);
        for number in before {
            slow += u64::from(!self.is_fast(number).await?);
            all += 1;
        }
        Ok(4 * slow >= 3 * all)
    }

    /// Fills the cache, uses the first block again, fills half of it anew: whether that block is
    /// still there. None if the volume has not enough blocks for that.
    async fn recency(&mut self, blocks: u64) -> Result<Option<bool>, ClientError> {
        let mut stayed = 0;
        for round in 0..ROUNDS {
            // All but a few: the estimate may be a little too high.
            let (fill, anew) = (blocks - blocks / 16, blocks / 2 + blocks / 8 + 1);
            if self.blocks - self.used < fill + anew {
                // Those of the beginning have long gone.
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
