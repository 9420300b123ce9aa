//! `undercroft schemes`: the schemes that move blocks between levels, and what can be set.

use crate::command::lists::{Args, Listed, list};
use crate::error::Error;

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let all = undercroft_schemes::schemes().iter().map(|info| Listed {
        name: info.name,
        aliases: &[],
        summary: info.summary,
        source: info.source,
        parameters: info.parameters,
    });
    list(args, "scheme", all.collect())
}
