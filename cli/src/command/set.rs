//! `undercroft set`: changes a volume of a running server.

use std::io::{Write, stdout};

use undercroft_nbd::Uri;
use undercroft_server::process::{SetError, set_over_nbd};

use super::keys;
use crate::error::Error;
use crate::tls::TlsOptions;

/// Changes hold until the server starts again or is reloaded (SIGHUP).
#[derive(clap::Args)]
#[command(after_help = keys::live())]
pub(crate) struct Args {
    /// NBD URI of the server, as nbd+unix:///?socket=PATH (its own user and root) or nbds://HOST (a
    /// certificate among its `administrators`)
    uri: String,
    /// Name of the volume
    volume: String,
    /// What to change, with the keys below, as in a volume of `undercroft serve`; KEY=default: as
    /// if it were not in the configuration
    #[arg(required = true, value_name = "KEY=VALUE")]
    options: Vec<String>,
    #[command(flatten)]
    tls: TlsOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let uri: Uri = args.uri.parse().map_err(|error| Error::Usage(format!("{error}")))?;
    let options = args.tls.client(Some(&uri))?;
    print_answer(set_over_nbd(&uri, &options, &args.volume, &args.options))
}

/// Prints what a server answers to an order.
pub(super) fn print_answer(
    answer: impl Future<Output = Result<String, SetError>>,
) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told = runtime.block_on(answer).map_err(|error| match error {
        SetError::Wrong(why) => Error::Usage(why),
        other => Error::Work(other.to_string()),
    })?;
    writeln!(stdout().lock(), "{told}")?;
    Ok(())
}
