//! A client of an NBD server with its own cache, for use in programs: [`CachedClient`]. It can tell
//! the server which blocks leave its cache, and learn what the server's cache holds.
//!
//! ```no_run
//! use undercroft_client::{CachedClient, CachedOptions, Spec, Uri};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let uri: Uri = "nbd://127.0.0.1/disk".parse()?;
//! let policy: Spec = "arc".parse()?;
//! let client = CachedClient::connect(&uri, &CachedOptions::new(10_000, policy)).await?;
//! let block = client.read(0, 4096).await?;
//! client.write(8192, block, false).await?;
//! client.flush().await?;
//! println!("{} of {} reads were hits", client.stats().read_hits, client.stats().reads);
//! # Ok(())
//! # }
//! ```
//!
//! Not here: the protocol (`undercroft-nbd`), the format of hints (`undercroft-hints`), replay of
//! traces (`undercroft-tools`, of the laboratory).
#![forbid(unsafe_code)]

mod cached;

pub use cached::{CachedClient, CachedOptions, CachedStats};
pub use undercroft_hints::{ClientId, Report};
pub use undercroft_level::Below;
pub use undercroft_nbd::{ClientError, ClientOptions, ClientTlsFiles, Failure, Uri};
pub use undercroft_policy::{Spec, WriteMode};
