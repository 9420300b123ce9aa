//! `undercroft policies`: what there is, and what can be set.

use std::io::{Write, stdout};

use serde_json::json;
use undercroft_cache::policy::{Kind, PolicyInfo, policies};

use crate::error::Error;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let mut out = stdout().lock();
    if args.json {
        let all: Vec<_> = policies().iter().map(|info| as_json(info)).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(());
    }
    for info in policies() {
        writeln!(out, "{:<10} {}", info.name, info.summary)?;
        writeln!(out, "           {}", info.source)?;
        for (alias, stands_for) in info.aliases {
            let with = if stands_for.is_empty() { String::new() } else { format!(",{stands_for}") };
            writeln!(out, "           {alias} = {}{with}", info.name)?;
        }
        for parameter in info.parameters {
            let (name, default) = (parameter.name, parameter.default);
            writeln!(out, "           {name}={default}  {} ({})", parameter.help, parameter.kind)?;
        }
    }
    Ok(())
}

fn as_json(info: &PolicyInfo) -> serde_json::Value {
    let parameters: Vec<_> = info
        .parameters
        .iter()
        .map(|p| {
            let range = match p.kind {
                Kind::Integer(min, max) => json!({"type": "integer", "min": min, "max": max}),
                Kind::IntegerOr(min, max, word) => {
                    json!({"type": "integer", "min": min, "max": max, "or": word})
                }
                Kind::Real(min, max) => json!({"type": "real", "min": min, "max": max}),
                Kind::RealOr(min, max, word) => {
                    json!({"type": "real", "min": min, "max": max, "or": word})
                }
                Kind::Word(words) => json!({"type": "word", "words": words}),
            };
            json!({"name": p.name, "default": p.default, "range": range, "help": p.help})
        })
        .collect();
    let alias = |(name, stands_for): &(&str, &str)| json!({"name": name, "sets": stands_for});
    json!({
        "name": info.name,
        "summary": info.summary,
        "source": info.source,
        "aliases": info.aliases.iter().map(alias).collect::<Vec<_>>(),
        "parameters": parameters,
    })
}
