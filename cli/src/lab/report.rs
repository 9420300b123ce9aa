//! `undercroft report`: one page of HTML from results, and the option of other commands that writes
//! it. The pages are those of `undercroft_report`.

use std::fs::{self, File};
use std::io::{StdoutLock, Write, stdout};
use std::path::{Path, PathBuf};

use serde::Serialize;
use undercroft_report::Page;

use crate::error::Error;
use crate::lab::input::note;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder of a sweep (its -o), or a file that characterize --json or advise --json printed
    #[arg(value_name = "DIR|FILE")]
    from: PathBuf,
    /// The page; - is standard output [default: report.html in the folder, or beside the file]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let page = undercroft_report::open(&args.from)?;
    let beside = match args.from.is_dir() {
        true => args.from.join("report.html"),
        false => args.from.with_extension("html"),
    };
    let path = args.output.as_deref().unwrap_or(&beside);
    if path == args.from {
        let what =
            format!("{}: the page would replace the results: give another -o", path.display());
        return Err(Error::Usage(what));
    }
    if path.as_os_str() == "-" {
        stdout().write_all(page.html().as_bytes())?;
        return Ok(());
    }
    write(&page, path)?;
    writeln!(stdout(), "{}", path.display())?;
    Ok(())
}

/// `--report`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ReportOption {
    /// Write a page of HTML with curves and tables too, which needs no network
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

impl ReportOption {
    /// Shows `results` in every form that is asked for: the page, and JSON or what `print` prints.
    pub(crate) fn show<T: Serialize>(
        &self,
        results: &T,
        is_json: bool,
        print: impl FnOnce(&mut StdoutLock<'_>, &T) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.write(results)?;
        let mut out = stdout().lock();
        if is_json {
            writeln!(out, "{}", serde_json::to_string_pretty(results)?)?;
            return Ok(());
        }
        print(&mut out, results)
    }

    /// Writes the page of `results`, if one is asked for.
    pub(crate) fn write(&self, results: &impl Serialize) -> Result<(), Error> {
        let Some(path) = &self.report else { return Ok(()) };
        let page = undercroft_report::page(serde_json::to_value(results)?, &command())?;
        write(&page, path)?;
        note(&format!("the page is {}", path.display()));
        Ok(())
    }
}

/// The command line of this process.
pub(crate) fn command() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Writes the page under another name first, so that no half of it is seen.
fn write(page: &Page, path: &Path) -> Result<(), Error> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let write = || {
        File::create(&part)?.write_all(page.html().as_bytes())?;
        fs::rename(&part, path)
    };
    write().map_err(|error| Error::Work(format!("{}: {error}", path.display())))
}
