//! `undercroft completions` and the hidden `undercroft man-pages`: made from the definitions of the
//! command line, so that they cannot differ from it.

use std::io::{Write, stdout};
use std::path::PathBuf;

use crate::error::Error;

#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell whose completion script is printed
    shell: clap_complete::Shell,
}

#[derive(clap::Args)]
pub(crate) struct PagesArgs {
    /// Folder for the pages, as undercroft.1 and undercroft-serve.1
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs, mut program: clap::Command) -> Result<(), Error> {
    // The generator panics where it cannot write, as when the reader of a pipe has gone.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "undercroft", &mut script);
    stdout().write_all(&script).map_err(Error::Output)
}

pub(crate) fn pages(args: &PagesArgs, program: clap::Command) -> Result<(), Error> {
    let folder = &args.folder;
    let failed = |error| Error::Work(format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(program, folder).map_err(failed)
}
