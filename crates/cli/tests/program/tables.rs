//! The tables of the documents that come from a table in the program: between their marks they are
//! what this writes. With `UNDERCROFT_WRITE_TABLES=1` the tests write them instead.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use undercroft_server::COUNTERS;

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
        ("cooperation", "docs/user/cooperation.md"),
        ("aware", "docs/user/content-aware.md"),
        ("movement", "docs/user/hierarchies.md"),
        ("lower", "docs/user/hierarchies.md"),
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
