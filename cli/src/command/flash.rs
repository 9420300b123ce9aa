//! `undercroft flash`: files and devices for the cache on flash (`serve --flash`).

use std::io::{Write, stdout};
use std::path::PathBuf;

use undercroft_server::process::{FirstPage, first_page, format, parts};
use undercroft_text::Bytes;

use crate::error::Error;

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
}

fn size(text: &str) -> Result<Bytes, String> {
    text.parse().map_err(|_| "expected a size, as 64GiB".to_owned())
}

pub(crate) fn run(command: &Command) -> Result<(), Error> {
    let mut out = stdout().lock();
    match command {
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
                FirstPage::Foreign => "not for flash".to_owned(),
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
