//! Puts a load on a server, and says what came of it:
//!
//! ```text
//! cargo run --release --example load -- nbd+unix:///?socket=/tmp/floor.sock [DEPTH] [CONNECTIONS]
//! ```

use std::error::Error;

use undercroft_nbd::ClientOptions;
use undercroft_tools::Load;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().ok_or("say which server: nbd+unix:///?socket=/tmp/floor.sock")?;
    let mut load = Load::default();
    if let Some(depth) = arguments.next() {
        load.depth = depth.parse()?;
    }
    if let Some(connections) = arguments.next() {
        load.connections = connections.parse()?;
    }
    let report = load.run(&uri.parse()?, &ClientOptions::default())?;
    let reads = &report.reads;
    println!("{:.0} reads a second", report.requests_per_second());
    println!("{:.0} MiB a second", report.bytes_per_second() / f64::from(1 << 20));
    for percent in [50.0, 99.0, 99.9] {
        println!("{percent} percent below {:.1} us", reads.percentile_us(percent));
    }
    Ok(())
}
