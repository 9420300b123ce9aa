//! The tables of the documents that come from a table in the program: between their marks they are
//! what this writes. With `UNDERCROFT_WRITE_TABLES=1` the tests write them instead.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use undercroft_policy::policies;
use undercroft_server::process::{Changes, Key, ServerConfig};
use undercroft_server::{COUNTERS, VolumeConfig};

use super::commands::Place;
use super::tidy::root;

/// Sees to it that what is between `<!-- MARK -->` and `<!-- end MARK -->` on a page is this text.
fn agree(page: &str, mark: &str, wanted: &str) {
    let path: PathBuf = root().join(page);
    let text = fs::read_to_string(&path).unwrap();
    let (start, end) = (format!("<!-- {mark} -->\n"), format!("<!-- end {mark} -->\n"));
    let parts = text.split_once(&start).and_then(|(before, rest)| {
        let (found, after) = rest.split_once(&end)?;
        Some((before, found, after))
    });
    let Some((before, found, after)) = parts else {
        panic!("{page} has no {start}...{end}");
    };
    if std::env::var_os("UNDERCROFT_WRITE_TABLES").is_some() && found != wanted {
        fs::write(&path, format!("{before}{start}{wanted}{end}{after}")).unwrap();
        return;
    }
    let help = "run it with UNDERCROFT_WRITE_TABLES=1 to write the tables of the documents";
    assert!(found == wanted, "{page}, {mark}: not\n{wanted}\n{help}");
}

#[test]
fn counters_are_described_as_the_program_describes_them() {
    for (group, page) in [
        ("", "docs/user/operations.md"),
        ("tells", "docs/user/operations.md"),
        ("flash", "docs/user/flash.md"),
        ("log", "docs/user/flash.md"),
        ("cooperation", "docs/user/cooperation.md"),
        ("aware", "docs/user/content-aware.md"),
    ] {
        let group = COUNTERS.iter().find(|one| one.json == group).unwrap();
        let mut table = "| in JSON | in `/metrics` | meaning |\n| --- | --- | --- |\n".to_owned();
        for row in group.rows {
            let metric = group.metric(row);
            writeln!(table, "| `{}` | `{metric}` | {} |", row.name, row.help).unwrap();
        }
        agree(page, format!("counters {}", group.json).trim_end(), &table);
    }
    assert_eq!(COUNTERS.len(), 6, "a group without a page");
}

#[test]
fn keys_are_described_as_the_program_describes_them() {
    let of_volume = VolumeConfig::KEYS.iter().map(|key| (key.name.to_owned(), key));
    agree("docs/user/operations.md", "keys", &described(of_volume));
    agree("docs/user/operations.md", "keys of the server", &described(ServerConfig::keys()));
}

#[test]
fn policies_are_described_as_the_program_describes_them() {
    let aware = policies().iter().find(|policy| policy.name == "lru-ca").unwrap();
    let of_awareness: Vec<&str> = aware.parameters.iter().map(|p| p.name).collect();
    let mut table =
        "| policy | | parameters (default) | other names |\n| --- | --- | --- | --- |\n".to_owned();
    for policy in policies() {
        let own = policy.parameters.iter().filter(|p| !of_awareness.contains(&p.name));
        let mut all: Vec<String> = own.map(|p| format!("`{}` ({})", p.name, p.default)).collect();
        if policy.is_content_aware() {
            all.push("those of content-aware policies, below".to_owned());
        }
        let names = policy.aliases.iter().map(|alias| match alias.1 {
            "" => format!("`{}`", alias.0),
            sets => format!("`{}` (`{sets}`)", alias.0),
        });
        let (name, summary, names) = (policy.name, policy.summary, names.collect::<Vec<_>>());
        let (all, names) = (all.join(", "), names.join(", "));
        writeln!(table, "| `{name}` | {summary} | {all} | {names} |").unwrap();
    }
    agree("docs/user/guide.md", "policies", &table);
}

fn described(keys: impl Iterator<Item = (String, &'static Key)>) -> String {
    let mut table =
        "| key | value | default | live | meaning |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for (name, key) in keys {
        let default = key.default().map_or(String::new(), |default| format!("`{default}`"));
        let of_server = if key.is_inherited { " of the server" } else { "" };
        let live = match key.changes {
            Changes::Restart | Changes::Parts => "",
            Changes::Follows => "follows",
            Changes::Cache | Changes::Flash | Changes::WriteBack | Changes::Access => "yes",
        };
        let [value, help] = [key.value, key.help].map(|text| text.replace('|', "\\|"));
        let default = format!("{default}{of_server}").trim().to_owned();
        writeln!(table, "| `{name}` | `{value}` | {default} | {live} | {help} |").unwrap();
    }
    table
}

/// The help has every key of a volume, and that of `set` every one that can be set.
#[test]
fn the_help_has_every_key() {
    let place = Place::new();
    let (serve, set) = (place.ok("serve --help"), place.ok("set --help"));
    let short = place.ok("serve -h");
    for key in VolumeConfig::KEYS.iter().filter(|key| !["name", "store"].contains(&key.name)) {
        let line = format!("\n  {}=", key.flag());
        assert!(serve.contains(&line), "serve --help: {}", key.name);
        assert_eq!(set.contains(&line), key.changes.is_live(), "set --help: {}", key.name);
        assert!(short.contains(key.flag()), "serve -h: {}", key.name);
    }
    for help in [&serve, &set] {
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("[,on-hit=...], gl or auto"), "{help}");
        assert!(help.contains("[default: access]") && help.contains("[default: 60]"), "{help}");
    }
}

/// What belongs to a command as a whole stands under no heading of a group.
#[test]
fn headings_of_the_help_have_their_own_flags_only() {
    let place = Place::new();
    for command in [
        "advise",
        "attach",
        "bench nbd",
        "characterize",
        "curve",
        "policies",
        "probe",
        "replay",
        "report",
        "serve",
        "set",
        "simulate",
        "stats",
        "sweep",
        "top",
        "trace convert",
        "trace filter",
        "trace info",
    ] {
        let help = place.ok(&format!("{command} --help"));
        let mut heading = "";
        for line in help.lines() {
            let flag = line.trim_start().split([' ', ',']).next().unwrap_or_default();
            if line.ends_with(':') && !line.starts_with(' ') {
                heading = line;
            }
            let of_all = ["--json", "-v", "--watch", "--every", "-o", "--jobs", "--csv", "-h"];
            let is_led = line.starts_with("  ") && of_all.contains(&flag);
            assert!(!is_led || heading == "Options:", "{command}: {flag} under {heading}");
        }
    }
}
