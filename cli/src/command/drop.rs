//! `undercroft drop`: has a volume of a running server drop what it has cached.

use std::io::{Write, stdout};

use undercroft_nbd::Uri;
use undercroft_server::process::{SetError, drop_over_nbd};

use crate::error::Error;
use crate::tls::TlsOptions;

/// For a store that was changed from outside, past the server: a file that was restored, a disk
/// that another machine has written. What clients read from then on comes from the store. Refused
/// while blocks are dirty, which are newer than the store; clients stay connected, and have caches
/// of their own.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// NBD URI of the volume, as nbd+unix:///NAME?socket=PATH (the server's own user and root) or
    /// nbds://HOST/NAME (a certificate among its `administrators`)
    uri: Uri,
    #[command(flatten)]
    tls: TlsOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let options = args.tls.client(Some(&args.uri))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told =
        runtime.block_on(drop_over_nbd(&args.uri, &options)).map_err(|error| match error {
            SetError::Wrong(why) => Error::Usage(why),
            other => Error::Work(other.to_string()),
        })?;
    writeln!(stdout().lock(), "{told}")?;
    Ok(())
}
