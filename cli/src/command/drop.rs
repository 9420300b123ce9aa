//! `undercroft drop`: has a volume of a running server drop what it has cached.

use undercroft_nbd::Uri;
use undercroft_server::process::drop_over_nbd;

use super::set::print_answer;
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
    print_answer(drop_over_nbd(&args.uri, &options))
}
