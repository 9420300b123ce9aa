//! `undercroft unwritten`: the blocks that a store had not taken when its server ended, as the
//! server kept them (`serve --unwritten DIR`).

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::sync::Arc;

use undercroft_server::process::{UnwrittenError, show_unwritten, write_unwritten};
use undercroft_store::StoreSpec;

use crate::error::Error;
use crate::signals::EndSignals;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// What is in a file: of which volume, why it was not written, which bytes
    Show {
        /// The file, NAME-TIME.unwritten
        file: PathBuf,
    },
    /// Write the blocks of a file to their volume's store, which nobody may serve meanwhile.
    /// Refused if anybody has opened the volume for writing since. Waits for a slow store; Ctrl-C
    /// ends it, and it may be tried again
    Write {
        /// The file, NAME-TIME.unwritten
        file: PathBuf,
        /// Where the store is now, if it has moved
        #[arg(long, value_name = "STORE")]
        store: Option<StoreSpec>,
    },
}

pub(crate) fn run(command: &Command) -> Result<(), Error> {
    let failed = |error: UnwrittenError| Error::Work(error.to_string());
    let mut out = stdout().lock();
    match command {
        Command::Show { file } => {
            let (head, blocks) = show_unwritten(file).map_err(failed)?;
            let (volume, store) = (&head.volume, &head.store);
            writeln!(out, "volume {volume}  {} bytes  {store}", head.volume_bytes)?;
            writeln!(out, "{} blocks, not written because: {}", head.blocks, head.why)?;
            let adjoin = |one: &(u64, usize), next: &(u64, usize)| one.0 + one.1 as u64 == next.0;
            for run in blocks.chunk_by(adjoin) {
                let (first, (last, length)) = (run[0].0, run[run.len() - 1]);
                writeln!(out, "  bytes {first} to {}", last + length as u64 - 1)?;
            }
        }
        Command::Write { file, store } => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let written = runtime.block_on(async {
                let mut end = EndSignals::new()?;
                let on_warning = Arc::new(|what: &str| eprintln!("undercroft: {what}"));
                write_unwritten(file, store.clone(), end.next(), on_warning).await.map_err(failed)
            });
            // A request that its store never answers must not keep it.
            runtime.shutdown_background();
            let head = written?;
            writeln!(
                out,
                "volume {}: {} blocks are written and durable",
                head.volume, head.blocks
            )?;
        }
    }
    Ok(())
}
