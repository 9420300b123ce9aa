//! `undercroft policies` and `placements`: what there is, and what can be set. The laboratory's
//! list of schemes (`lab/schemes.rs`) is printed here, too.

use std::io::{Write, stdout};

use serde_json::{Value, json};
use undercroft_level::placement::placements as all_placements;
use undercroft_policy::{Kind, Parameter, policies as all_policies};

use crate::error::Error;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the one of this name
    name: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line of a list, and what belongs to it.
pub(crate) struct Listed {
    pub(crate) name: &'static str,
    pub(crate) aliases: &'static [(&'static str, &'static str)],
    pub(crate) summary: &'static str,
    pub(crate) source: &'static str,
    pub(crate) parameters: &'static [Parameter],
}

pub(crate) fn policies(args: &Args) -> Result<(), Error> {
    let all = all_policies().iter().map(|info| Listed {
        name: info.name,
        aliases: info.aliases,
        summary: info.summary,
        source: info.source,
        parameters: info.parameters,
    });
    list(args, "policy", all.collect())
}

pub(crate) fn placements(args: &Args) -> Result<(), Error> {
    let all = all_placements().iter().map(|info| Listed {
        name: info.name,
        aliases: &[],
        summary: info.summary,
        source: info.source,
        parameters: info.parameters,
    });
    list(args, "placement", all.collect())
}

/// Prints the list, or the one of the name that is asked for.
pub(crate) fn list(args: &Args, what: &str, mut all: Vec<Listed>) -> Result<(), Error> {
    if let Some(name) = &args.name {
        let names: Vec<_> = all.iter().map(|one| one.name).collect();
        let has = |one: &Listed| one.aliases.iter().any(|(alias, _)| alias == name);
        all.retain(|one| one.name == name || has(one));
        if all.is_empty() {
            let why = format!("no {what} '{name}'; there are {}", names.join(", "));
            return Err(Error::Usage(why));
        }
    }
    let mut out = stdout().lock();
    if args.json {
        let all: Vec<_> = all.iter().map(as_json).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
        return Ok(());
    }
    for one in all {
        writeln!(out, "{:<10} {}", one.name, one.summary)?;
        writeln!(out, "           {}", one.source)?;
        for (alias, stands_for) in one.aliases {
            let with = if stands_for.is_empty() { String::new() } else { format!(",{stands_for}") };
            writeln!(out, "           {alias} = {}{with}", one.name)?;
        }
        for parameter in one.parameters {
            let (name, default) = (parameter.name, parameter.default);
            writeln!(out, "           {name}={default}  {} ({})", parameter.help, parameter.kind)?;
        }
    }
    Ok(())
}

fn as_json(one: &Listed) -> Value {
    let parameter = |p: &Parameter| {
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
    };
    let alias = |(name, stands_for): &(&str, &str)| json!({"name": name, "sets": stands_for});
    json!({
        "name": one.name,
        "summary": one.summary,
        "source": one.source,
        "aliases": one.aliases.iter().map(alias).collect::<Vec<_>>(),
        "parameters": one.parameters.iter().map(parameter).collect::<Vec<_>>(),
    })
}
