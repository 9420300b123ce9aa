//! Reads a volume twice through a cache, and says what the cache was worth:
//!
//! ```text
//! cargo run --release -p undercroft-client --example cached -- URI [BLOCKS] [POLICY]
//! ```

use std::error::Error;

use undercroft_client::{CachedClient, CachedOptions, Report, Spec, Uri};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let uri: Uri = arguments.next().ok_or("say which server: nbd://HOST/EXPORT")?.parse()?;
    let blocks: u32 = arguments.next().map_or(Ok(1000), |blocks| blocks.parse())?;
    let policy: Spec = arguments.next().unwrap_or_else(|| "lru".to_owned()).parse()?;
    // Any NBD server will do; `Report::Evictions` needs one that takes hints.
    let options = CachedOptions { report: Report::Nothing, ..CachedOptions::new(blocks, policy) };
    let client = CachedClient::connect(&uri, &options).await?;
    let block_bytes = u64::from(client.block_bytes());
    let most = u64::from(blocks).min(client.size() / block_bytes);
    for _ in 0..2 {
        for block in 0..most {
            client.read(block * block_bytes, block_bytes as usize).await?;
        }
    }
    let stats = client.stats();
    println!("{} reads, {} of them from the cache", stats.reads, stats.read_hits);
    Ok(())
}
