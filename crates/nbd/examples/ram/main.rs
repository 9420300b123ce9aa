//! Serves an empty disk in memory until it is interrupted:
//!
//! ```text
//! cargo run --release --example ram -- unix:/tmp/ram.sock 1073741824
//! nbdcopy disk.img nbd+unix:///?socket=/tmp/ram.sock
//! ```
//!
//! The address is `unix:PATH` or `HOST:PORT`; the size is in bytes.

mod export;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use export::Ram;
use undercroft_nbd::{Listener, Server, ServerOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:10809".to_owned());
    let size = arguments.next().map_or(Ok(1 << 30), |size| size.parse())?;
    let listener = match address.strip_prefix("unix:") {
        Some(path) => Listener::unix(path)?,
        None => Listener::tcp(&address).await?,
    };
    let server = Server::new(Arc::new(Ram::new("ram", size)), ServerOptions::default());
    println!("{address}: {size} bytes; ctrl-c ends it");
    tokio::select! {
        () = server.listen(listener) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    server.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
