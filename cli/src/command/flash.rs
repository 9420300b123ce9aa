//! `undercroft flash`: files and devices for the cache on flash (`serve --flash`), and write logs
//! (`log(PATH,size=SIZE):STORE`).

use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};
use undercroft_nbd::Uri;
use undercroft_server::process::{
    FirstPage, FlashChange, check_part, first_page, flash_over_nbd, format, parts,
};
use undercroft_store::{Backlog, FileOptions, FileStore, LogStore, OpenOptions, StoreSpec};
use undercroft_text::Bytes;

use super::set::print_answer;
use crate::error::Error;
use crate::tls::TlsOptions;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Prepare a file or device; what is there is lost
    Format {
        /// The file, which is made if it does not exist, or the device
        path: PathBuf,
        /// Bytes of it to use
        #[arg(long, value_name = "SIZE", value_parser = size)]
        size: Bytes,
        /// Also if it holds something else
        #[arg(long)]
        force: bool,
    },
    /// What a file or device is
    Info {
        /// The file or device
        path: PathBuf,
    },
    /// Read the blocks that a restart would find on a file or device, and compare them with their
    /// checks: whether the drive has changed any
    Check {
        /// The file or device, which no server uses now
        path: PathBuf,
    },
    /// Have a running server use its device again, which was removed, was dead, or had failed: the
    /// level begins empty
    Add(ServerArgs),
    /// Have a running server use its device no more, dead or not, and close it: no client notices
    Remove(ServerArgs),
    /// Let a store be served without its write log, which is lost or broken
    AcceptLoss {
        /// The store, as in `--volume NAME=STORE`, without the log
        store: StoreSpec,
        /// Do it; otherwise only what would be lost is said
        #[arg(long)]
        yes: bool,
    },
}

/// The server whose level on flash comes or goes.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// NBD URI of the server, as nbd+unix:///?socket=PATH (the server's own user and root) or
    /// nbds://HOST (a certificate among its `administrators`)
    uri: Uri,
    #[command(flatten)]
    tls: TlsOptions,
}

impl ServerArgs {
    fn ask(&self, change: FlashChange) -> Result<(), Error> {
        let options = self.tls.client(Some(&self.uri))?;
        print_answer(flash_over_nbd(&self.uri, &options, change))
    }
}

fn size(text: &str) -> Result<Bytes, String> {
    text.parse().map_err(|_| "expected a size, as 64GiB".to_owned())
}

pub(crate) fn run(command: &Command) -> Result<(), Error> {
    let mut out = stdout().lock();
    match command {
        Command::Add(server) => server.ask(FlashChange::Add)?,
        Command::Remove(server) => server.ask(FlashChange::Remove)?,
        Command::Format { path, size, force } => {
            let name = path.display();
            let failed = |what: String| Error::Work(format!("{name}: {what}"));
            let is_foreign =
                path.exists() && first_page(path).map_err(failed)? == FirstPage::Foreign;
            if is_foreign && !force {
                let why = "holds something else, which would be lost; --force does it";
                return Err(failed(why.to_owned()));
            }
            format(path, size.0).map_err(failed)?;
            writeln!(out, "{name}: {size} for flash")?;
        }
        Command::Check { path } => check(&mut out, path)?,
        Command::AcceptLoss { store, yes } => accept_loss(&mut out, store, *yes)?,
        Command::Info { path } => {
            let name = path.display();
            let page = first_page(path).map_err(|what| Error::Work(format!("{name}: {what}")))?;
            let what = match page {
                FirstPage::Ours(own) => {
                    format!("{} for flash, identity {:016x}", Bytes(own.bytes), own.id)
                }
                FirstPage::OtherVersion(version) => format!("flash with layout {version}"),
                FirstPage::Damaged => "flash, and its first page is damaged".to_owned(),
                FirstPage::Empty => "empty".to_owned(),
                FirstPage::Foreign => match write_log(path)? {
                    Some(log) => format!(
                        "a write log of {}, with {} that its store does not have",
                        Bytes(log.capacity),
                        Bytes(log.bytes)
                    ),
                    None => "not for flash".to_owned(),
                },
            };
            writeln!(out, "{name}: {what}")?;
            if let FirstPage::Ours(own) = page {
                let parts = parts(path, own.bytes);
                for part in parts.map_err(|what| Error::Work(format!("{name}: {what}")))?.all() {
                    let (size, block) = (Bytes(part.bytes), Bytes(part.block_bytes.into()));
                    writeln!(out, "  {size} of volume {}, in blocks of {block}", part.name)?;
                }
            }
        }
    }
    Ok(())
}

/// Reads and compares the blocks of all parts.
fn check(out: &mut impl Write, path: &Path) -> Result<(), Error> {
    let name = path.display();
    let failed = |what: String| Error::Work(format!("{name}: {what}"));
    let FirstPage::Ours(own) = first_page(path).map_err(failed)? else {
        return Err(failed("is no flash of this version, so nothing can be checked".to_owned()));
    };
    let options = FileOptions { read_only: true, must_exist: true, ..FileOptions::default() };
    let device = FileStore::open(path, &options).map_err(|error| failed(error.to_string()))?;
    let (parts, mut wrong) = (parts(path, own.bytes).map_err(failed)?, 0);
    if parts.all().is_empty() {
        writeln!(out, "{name}: nothing that a restart would find")?;
    }
    for part in parts.all() {
        match runtime()?.block_on(check_part(&device, part)) {
            Ok((blocks, damaged)) => {
                wrong += damaged;
                let found = match blocks {
                    0 => "nothing: it is empty, or its journal is lost".to_owned(),
                    _ => format!("{blocks} blocks, {damaged} damaged"),
                };
                writeln!(out, "{name}: volume {}: {found}", part.name)?;
            }
            Err(why) => {
                wrong += 1;
                writeln!(out, "{name}: volume {}: {why}", part.name)?;
            }
        }
    }
    if wrong == 0 { Ok(()) } else { Err(failed("is not as it was written".to_owned())) }
}

/// What waits in a write log. `None`: the file is none.
fn write_log(path: &Path) -> Result<Option<Backlog>, Error> {
    let failed = |error: io::Error| Error::Work(error.to_string());
    let options = FileOptions { read_only: true, must_exist: true, ..FileOptions::default() };
    let medium = FileStore::open(path, &options).map_err(failed)?;
    runtime()?.block_on(async { LogStore::look(Arc::new(medium)).await.map_err(failed) })
}

/// Takes the mark off a store, or says what that would mean.
fn accept_loss(out: &mut impl Write, store: &StoreSpec, yes: bool) -> Result<(), Error> {
    let failed = |error: io::Error| Error::Work(error.to_string());
    runtime()?.block_on(async {
        let options =
            OpenOptions { has_log: true, must_exist: true, read_only: !yes, ..Default::default() };
        let opened = store.open(options).await.map_err(failed)?;
        let Some(log) = opened.mark().await.map_err(failed)? else {
            writeln!(
                out,
                "{store}: whole, since it has no mark of a write log; unless it can have none (a \
                 device, another server), or was copied without it: see `undercroft flash info LOG`"
            )?;
            return Ok(());
        };
        if !yes {
            writeln!(out, "{store}: what has come last is in its write log {log}")?;
            writeln!(
                out,
                "Without the log it is what a disk would be that lost its power at a FLUSH some time \
                 ago, unless the power failed here: then it may be older in parts. What was \
                 written since is lost, flushed or not. --yes accepts that; what the log has is \
                 not used for this store any more."
            )?;
            return Ok(());
        }
        opened.set_mark(None).await.map_err(failed)?;
        opened.close().await.map_err(failed)?;
        writeln!(out, "{store}: is served without its write log {log} from now on")?;
        Ok(())
    })
}

fn runtime() -> Result<Runtime, Error> {
    let built = Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Error::Work(error.to_string()))
}
