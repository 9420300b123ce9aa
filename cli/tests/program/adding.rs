//! The pages on adding things (`docs/developer/add-*.md`): what their examples change stands in
//! the code. Not here: links and names of files on pages (`tidy.rs`), and the examples that are
//! programs, which their crates run.

use std::collections::BTreeSet;
use std::fs;

use super::tidy::{files, report, root};

/// The lines of a file that an example changes, and how many of them it has passed.
type Changed = (Vec<String>, usize);

/// Whether a line that begins so comes, after the lines that were found before.
fn goes_on(file: &mut Changed, begin: &str) -> bool {
    let next = file.0[file.1..].iter().position(|line| line.trim().starts_with(begin.trim()));
    file.1 += next.map_or(0, |lines| lines + 1);
    next.is_some()
}

/// Examples have the form of a patch: the lines that they keep or remove are in the file, in this
/// order. After `@@` stands a line that comes before, and `...` is for lines left out.
#[test]
fn examples_change_lines_that_there_are() {
    let (mut wrong, mut found) = (Vec::new(), 0);
    for (path, page) in files("md") {
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("add-")) {
            continue;
        }
        let (mut is_new, mut file) = (false, None::<Changed>);
        for (at, line) in page.lines().enumerate() {
            let mut fail = |why: &str| {
                wrong.push(format!("{}:{}: {why}: {}", path.display(), at + 1, line.trim()));
            };
            if !line.is_empty() && !line.starts_with("    ") {
                file = None;
            }
            let Some(line) = line.strip_prefix("    ") else { continue };
            if let Some(name) = line.strip_prefix("+++ b/") {
                let text = fs::read_to_string(root().join(name));
                if is_new == text.is_ok() {
                    fail("a new file that there is, or an old one that is not");
                }
                file = text.ok().map(|text| (text.lines().map(str::to_owned).collect(), 0));
            } else if line.starts_with("--- ") {
                is_new = line == "--- /dev/null";
            } else if let Some(file) = &mut file {
                let begin = match line.strip_prefix("@@").or(line.strip_prefix([' ', '-'])) {
                    Some(begin) if begin.trim() != "..." => begin,
                    _ => continue,
                };
                if goes_on(file, begin) {
                    found += 1;
                } else {
                    fail("no such line there, or not in this order");
                }
            }
        }
    }
    report("examples of changes that do not fit the code", &wrong);
    assert!(found > 15, "{found} lines were looked for");
}

/// The fields that are given where a text makes a value of this type.
fn fields(text: &str, of: &str) -> BTreeSet<String> {
    let lines = text.lines().skip_while(|line| !line.contains(of)).skip(1);
    let lines = lines.take_while(|line| line.trim() != "};");
    let inner = lines.filter_map(|line| line.strip_prefix("    "));
    let named = inner.filter(|line| line.starts_with(|first: char| first.is_alphabetic()));
    named.filter_map(|line| line.split([':', ',']).next().map(str::to_owned)).collect()
}

#[test]
fn examples_of_entries_have_the_fields_of_the_real_ones() {
    for (page, of, real) in [
        ("add-a-policy.md", "INFO: PolicyInfo", "crates/policy/src/policies/fifo.rs"),
        ("add-a-scheme.md", "INFO: SchemeInfo", "lab/schemes/src/hint_k.rs"),
        ("add-a-trace-format.md", "ENTRY: Entry", "lab/trace/src/format/lis.rs"),
        ("add-a-trace-format.md", "GENERATOR: Generator", "lab/trace/src/generate/zipf.rs"),
    ] {
        let text = fs::read_to_string(root().join("docs/developer").join(page)).unwrap();
        let lines = text.lines().map(|line| line.strip_prefix("    ").unwrap_or(line));
        let text: Vec<_> = lines.map(|line| line.strip_prefix('+').unwrap_or(line)).collect();
        let wanted = fields(&fs::read_to_string(root().join(real)).unwrap(), of);
        assert!(wanted.len() > 3, "{real}: {wanted:?}");
        assert_eq!(fields(&text.join("\n"), of), wanted, "{page}: {of}");
    }
}
