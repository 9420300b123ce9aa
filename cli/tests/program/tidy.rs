//! What can be held by a machine of how the repository reads: lengths of files, links that lead
//! somewhere, names in the documents, and which crate may use which.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use undercroft_policy::policies;

/// Lines of a source file, characters of a comment's line, and of a line of prose.
const LINES_MAX: usize = 600;
const COMMENT_MAX: usize = 100;
const PROSE_MAX: usize = 140;

/// Files that documents name as what an example would add.
const NEW_IN_EXAMPLES: &[&str] = &["lip.rs", "array_log.rs", "stride.rs", "src/zeroes.rs"];

/// Which crates a crate may use: nothing points upwards, and nothing in `crates/` to `lab/`. Behind
/// them, which more its tests, examples and benchmarks may use: those of `crates/` may compare with
/// the simulator.
const MAY_USE: &[(&str, &[&str], &[&str])] = &[
    ("crates/random", &[], &[]),
    ("crates/text", &[], &[]),
    ("crates/policy", &["random", "text"], &["level"]),
    ("crates/level", &["policy", "random", "text"], &["sim"]),
    ("crates/flash", &["random", "text"], &[]),
    ("crates/recording", &[], &[]),
    ("crates/frames", &[], &[]),
    ("crates/adviser", &["flash", "level", "policy", "random", "text"], &[]),
    ("crates/ring", &[], &[]),
    ("crates/store", &["random", "ring", "text"], &[]),
    ("crates/nbd", &["frames", "random", "ring", "text"], &[]),
    ("crates/hints", &["level", "nbd", "policy"], &["random"]),
    ("crates/tracker", &["hints", "nbd", "random"], &["level"]),
    (
        "crates/server",
        &[
            "adviser",
            "flash",
            "frames",
            "hints",
            "level",
            "nbd",
            "policy",
            "random",
            "recording",
            "ring",
            "store",
            "text",
        ],
        &["sim", "trace"],
    ),
    ("crates/client", &["hints", "level", "nbd", "policy", "random"], &["sim"]),
    ("crates/preload", &["tracker"], &["hints", "level", "nbd", "policy", "random"]),
    ("crates/capi", &["client", "level", "nbd", "policy"], &["hints", "random"]),
    ("lab/trace", &["random", "recording", "text"], &[]),
    ("lab/schemes", &["policy", "random", "text"], &["level"]),
    (
        "lab/sim",
        &["adviser", "flash", "level", "policy", "random", "schemes", "text", "trace"],
        &[],
    ),
    ("lab/report", &["text"], &[]),
    (
        "lab/tools",
        &["hints", "level", "nbd", "policy", "random", "trace"],
        &["adviser", "client", "server", "sim"],
    ),
    ("lab/python", &["policy", "schemes", "sim", "text", "trace"], &[]),
    (
        "cli",
        &[
            "adviser",
            "frames",
            "hints",
            "level",
            "nbd",
            "policy",
            "recording",
            "report",
            "schemes",
            "server",
            "sim",
            "store",
            "text",
            "tools",
            "trace",
            "tracker",
        ],
        &["client", "random"],
    ),
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files of the repository whose names end so, with their texts.
pub(crate) fn files(ending: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, ending: &str, into: &mut Vec<(PathBuf, String)>) {
        let mut entries: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    walk(&path, ending, into);
                }
            } else if name.ends_with(ending) {
                into.push((path.clone(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut all = Vec::new();
    walk(&root(), ending, &mut all);
    assert!(all.len() > 5, "the repository is somewhere else");
    all
}

pub(crate) fn report(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

fn place(path: &Path, line: usize) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    format!("{}:{}", path.display(), line + 1)
}

#[test]
fn no_source_file_is_too_long() {
    let all = files(".rs");
    let long = all.iter().filter(|(_, text)| text.lines().count() > LINES_MAX);
    let wrong: Vec<_> = long.map(|(path, text)| place(path, text.lines().count())).collect();
    report("files of more than 600 lines: which idea in it deserves a file?", &wrong);
}

/// A file that no module declares is not compiled, and its tests do not run.
#[test]
fn no_file_of_tests_is_forgotten() {
    let all = files(".rs");
    let declares = |place: PathBuf| {
        all.iter().any(|(path, text)| *path == place && text.contains("mod tests;"))
    };
    let tests = all.iter().filter(|(path, _)| path.ends_with("tests.rs"));
    let forgotten = tests.filter(|(path, _)| {
        let folder = path.parent().unwrap();
        let names = ["mod.rs", "lib.rs", "main.rs"].map(|name| folder.join(name));
        !names.into_iter().chain([folder.with_extension("rs")]).any(declares)
    });
    let wrong: Vec<_> = forgotten.map(|(path, _)| place(path, 0)).collect();
    report("tests that no module declares", &wrong);
}

#[test]
fn every_source_file_says_what_lives_in_it() {
    let all = files(".rs");
    // A folder's list of modules, and what a build script or an example shows, need no words.
    let silent = all.iter().filter(|(path, text)| {
        !text.starts_with("//!") && !path.ends_with("build.rs") && text.lines().count() > 12
    });
    let wrong: Vec<_> = silent.map(|(path, _)| place(path, 0)).collect();
    report("files that do not open with what lives there", &wrong);
}

/// A doc comment can be read alone, in an editor that shows nothing else.
#[test]
fn doc_comments_do_not_lean_on_the_one_before() {
    const LEANING: [&str; 4] = ["The same", "As it is", "As it was", "Likewise"];
    let mut wrong = Vec::new();
    for (path, text) in files(".rs") {
        let mut is_first = true;
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("/// ");
            let leans = comment.is_some_and(|text| LEANING.iter().any(|l| text.starts_with(l)));
            if is_first && leans {
                wrong.push(place(&path, number));
            }
            is_first = !line.trim_start().starts_with("///");
        }
    }
    report("doc comments that say nothing without the one before", &wrong);
}

/// Code is held by the formatter, which does not wrap comments.
#[test]
fn lines_of_comments_fit() {
    let mut wrong = Vec::new();
    for (path, text) in files(".rs") {
        let is_long = |line: &&str| line.chars().count() > COMMENT_MAX;
        let lines = text.lines().enumerate().filter(|(_, line)| is_long(line));
        let comments = lines.filter(|(_, line)| line.trim_start().starts_with("//"));
        wrong.extend(comments.map(|(number, _)| place(&path, number)));
    }
    report("comments that are too wide", &wrong);
}

#[test]
fn lines_of_prose_fit() {
    let mut wrong = Vec::new();
    for (path, text) in files(".md") {
        for (number, line) in text.lines().enumerate() {
            let is_free = line.starts_with('|') || line.contains("](") || line.starts_with("    ");
            if line.chars().count() > PROSE_MAX && !is_free {
                wrong.push(place(&path, number));
            }
        }
    }
    report("lines of prose that are too long", &wrong);
}

/// The name that a heading can be linked by.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().replace(' ', "-")
}

/// The targets of links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn links_in_documents_lead_somewhere() {
    let all = files(".md");
    let headings = |text: &str| -> BTreeSet<String> {
        text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
    };
    let mut wrong = Vec::new();
    for (path, text) in &all {
        for (number, line) in text.lines().enumerate() {
            for link in links(line).filter(|link| !link.contains("://") && !link.contains(' ')) {
                let (file, heading) = link.split_once('#').unwrap_or((link, ""));
                let target = match file {
                    "" => path.clone(),
                    file => path.parent().unwrap().join(file),
                };
                let Ok(target) = target.canonicalize() else {
                    wrong.push(format!("{}: {link} is not there", place(path, number)));
                    continue;
                };
                let is_text = target.extension().is_some_and(|ending| ending == "md");
                if !heading.is_empty() && is_text {
                    let text = fs::read_to_string(&target).unwrap();
                    if !headings(&text).contains(heading) {
                        wrong.push(format!("{}: {link}: no such heading", place(path, number)));
                    }
                }
            }
        }
    }
    report("links that lead nowhere", &wrong);
}

/// Files of the source that documents name, but for those that an example would add.
#[test]
fn source_files_in_documents_exist() {
    let known: Vec<String> =
        files(".rs").into_iter().map(|(path, _)| path.display().to_string()).collect();
    let mut wrong = Vec::new();
    for (path, text) in files(".md") {
        for (number, line) in text.lines().enumerate() {
            let quoted = line.split('`').skip(1).step_by(2);
            let is_path = |word: &&str| {
                word.ends_with(".rs") && !word.contains(['*', '{', ' ']) && !word.starts_with('.')
            };
            for name in quoted.filter(is_path) {
                let is_new = NEW_IN_EXAMPLES.iter().any(|new| name.ends_with(new));
                if !is_new && !known.iter().any(|path| path.ends_with(&format!("/{name}"))) {
                    wrong.push(format!("{}: {name}", place(&path, number)));
                }
            }
        }
    }
    report("files that are not there", &wrong);
}

/// The page on a cached read names functions behind their file: `a/src/b.rs`: `one`, `two`.
#[test]
fn functions_on_the_page_of_a_cached_read_are_in_their_files() {
    let page = fs::read_to_string(root().join("docs/developer/a-cached-read.md")).unwrap();
    // What is quoted, each with the text before it.
    let parts: Vec<&str> = page.split('`').collect();
    let (mut file, mut count, mut wrong) = (None, 0, Vec::new());
    for pair in parts.chunks_exact(2) {
        let (before, name) = (pair[0].trim(), pair[1]);
        if name.ends_with(".rs") {
            file = Some(name);
            continue;
        }
        file = file.filter(|_| matches!(before, ":" | ","));
        let Some(file) = file else { continue };
        let source = fs::read_to_string(root().join("crates").join(file)).unwrap_or_default();
        let is_defined = ["(", "<"].iter().any(|next| source.contains(&format!("fn {name}{next}")));
        if !is_defined {
            wrong.push(format!("{file}: {name}"));
        }
        count += 1;
    }
    assert!(count > 100, "the page is written otherwise: {count} functions");
    report("functions that are not in the files that a-cached-read.md names", &wrong);
}

/// The simulation of faults takes cures out by patches, which must go on applying.
#[test]
fn patches_of_the_simulation_apply() {
    let folder = root().join("tools/simulation/patches");
    let mut wrong = Vec::new();
    for patch in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
        let mut git = Command::new("git");
        git.args(["apply", "--check"]).arg(&patch).current_dir(root());
        let Ok(output) = git.output() else {
            return println!("skipped: git is not installed");
        };
        if !output.status.success() {
            wrong.push(format!("{}", patch.file_name().unwrap().display()));
        }
    }
    report("patches that do not apply", &wrong);
}

/// Every page can be found from the index.
#[test]
fn the_index_names_every_document() {
    let index = fs::read_to_string(root().join("docs/README.md")).unwrap();
    let docs = root().join("docs").canonicalize().unwrap();
    let all = files(".md").into_iter().map(|(path, _)| path.canonicalize().unwrap());
    let named = |path: &PathBuf| {
        let page = path.strip_prefix(&docs).ok()?.to_string_lossy().into_owned();
        (page != "README.md" && !index.contains(&format!("]({page})"))).then_some(page)
    };
    let wrong: Vec<_> = all.filter_map(|path| named(&path)).collect();
    report("pages that docs/README.md does not name", &wrong);
}

/// `make reproduce` makes what its index and the pages show.
#[test]
fn the_reproduction_is_complete() {
    let mut list = Command::new("python3");
    let Ok(output) = list.args(["tools/reproduce", "--list"]).current_dir(root()).output() else {
        return println!("skipped: python3 is not installed");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = root().join("docs/measurements");
    let index = fs::read_to_string(folder.join("reproduction.md")).unwrap();
    let studies = String::from_utf8(output.stdout).unwrap();
    assert!(studies.lines().count() > 15, "{studies}");
    let mut wrong = Vec::new();
    for study in studies.lines() {
        let [name, link, picture] = study.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{study}");
        };
        let page = fs::read_to_string(folder.join(link.split('#').next().unwrap())).unwrap();
        let shown = format!("](../{picture})");
        for (is_right, what) in [
            (index.contains(&format!("]({link}) |")), "the index has no link to it"),
            (index.contains(&format!("| `{name}` | **")), "the index has no verdict"),
            (page.contains(&format!("<!-- end {name} -->")), "its page has no place for it"),
            (picture == "-" || page.contains(&shown), "its page does not show its picture"),
            (picture == "-" || folder.join(picture).exists(), "its picture is not there"),
        ] {
            if !is_right {
                wrong.push(format!("{name}: {what}"));
            }
        }
    }
    report("make reproduce", &wrong);
}

/// A target or a script that nothing runs breaks, and nobody sees it.
#[test]
fn every_command_is_tried_before_a_release() {
    let mut complete = Command::new("python3");
    complete.args(["tools/commands.py", "--complete"]).current_dir(root());
    let Ok(output) = complete.output() else {
        return println!("skipped: python3 is not installed");
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// A target that a document names is one.
#[test]
fn documents_name_targets_that_there_are() {
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let is_target = |word: &str| makefile.lines().any(|line| line.starts_with(&format!("{word}:")));
    let mut wrong = Vec::new();
    // The changelog tells of those that are gone, too.
    for (path, text) in files(".md").into_iter().filter(|(path, _)| !path.ends_with("CHANGELOG.md"))
    {
        for (number, line) in text.lines().enumerate() {
            let quoted = line.split('`').skip(1).step_by(2).chain(line.strip_prefix("    "));
            for target in quoted.filter_map(|text| text.strip_prefix("make ")) {
                let word = target.split_whitespace().next().unwrap_or_default();
                if !word.contains('=') && !is_target(word) {
                    wrong.push(format!("{}: make {word}", place(&path, number)));
                }
            }
        }
    }
    report("targets that the Makefile has not", &wrong);
}

/// `make test` runs all test programs, and Python's, before it says no.
#[test]
fn one_failed_test_program_does_not_hide_the_others() {
    let mut make = Command::new("make");
    // A make that runs this test hands its own flags on, and has its folders announced.
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").env_remove("MFLAGS");
    let Ok(plan) = make.args(["-n", "test", "CARGO=cargo"]).current_dir(root()).output() else {
        return println!("skipped: make is not installed");
    };
    let plan = String::from_utf8(plan.stdout).unwrap();
    let last = plan.lines().last().unwrap();
    let crates = "'cargo test --workspace --locked --no-fail-fast'";
    assert_eq!(last, format!("tools/each.sh {crates} 'tools/python.sh test'"));
    let each = |commands: &[&str]| {
        let output = Command::new(root().join("tools/each.sh")).args(commands).output().unwrap();
        let [out, errors] =
            [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
        (output.status.code(), out, errors)
    };
    let (status, out, errors) = each(&["echo one; exit 3", "echo two", "exit 4"]);
    assert_eq!((status, &*out), (Some(1), "one\ntwo\n"));
    assert_eq!(errors, "failed:\n  echo one; exit 3\n  exit 4\n");
    assert_eq!(each(&["echo one", "true"]), (Some(0), "one\n".to_owned(), String::new()));
}

/// The first word of each line that the program prints and `is_named` accepts.
fn printed(arguments: &[&str], is_named: fn(&str) -> bool) -> Vec<String> {
    let out = Command::new(env!("CARGO_BIN_EXE_undercroft")).args(arguments).output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let lines = out.lines().filter(|line| is_named(line));
    lines.filter_map(|line| line.split([' ', ':']).next().map(str::to_owned)).collect()
}

#[test]
fn the_guide_names_every_trace_format_and_generator() {
    let formats = printed(&["trace", "formats"], |line| !line.starts_with("format "));
    let generators = printed(&["trace", "generate"], |line| !line.starts_with([' ']));
    assert!(formats.len() > 10 && generators.len() > 4, "{formats:?} {generators:?}");
    let guide = fs::read_to_string(root().join("docs/user/guide.md")).unwrap();
    let names = formats.into_iter().chain(generators).filter(|name| !name.is_empty());
    let wrong: Vec<_> = names.filter(|name| !guide.contains(&format!("`{name}`"))).collect();
    report("formats and generators that docs/user/guide.md does not name", &wrong);
}

/// The rules of every policy are described; the guide's table of them is written by `tables.rs`.
#[test]
fn algorithms_name_every_policy() {
    let text = fs::read_to_string(root().join("docs/developer/algorithms.md")).unwrap();
    let text = text.to_lowercase();
    let words: BTreeSet<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
    let names = policies().iter().map(|policy| policy.name.to_owned());
    let wrong: Vec<_> = names.filter(|name| !words.contains(name.as_str())).collect();
    report("policies that docs/developer/algorithms.md does not name", &wrong);
}

/// Two cryptographies would be twice the code to trust, and one of them is much C to build.
#[test]
fn there_is_one_cryptography() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    assert!(lock.contains("name = \"ring\""), "another cryptography than the one that is known");
    let others = ["aws-lc-rs", "aws-lc-sys", "openssl", "openssl-sys", "boring"];
    let named = |name: &&&str| lock.contains(&format!("name = \"{name}\""));
    let wrong: Vec<_> = others.iter().filter(named).map(ToString::to_string).collect();
    report("a second cryptography (object_store and rustls bring one by default)", &wrong);
}

/// The manifest of a crate.
fn manifest(folder: &str) -> toml::Table {
    let text = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
    text.parse().unwrap()
}

const DEPENDENCIES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Versions are said once, in the workspace's manifest.
#[test]
fn crates_take_versions_from_the_workspace() {
    let mut wrong = Vec::new();
    for (folder, ..) in MAY_USE {
        let manifest = manifest(folder);
        for (name, how) in
            DEPENDENCIES.iter().flat_map(|of| manifest.get(*of)?.as_table()).flatten()
        {
            if how.get("workspace").is_none() {
                wrong.push(format!("{folder}: {name}"));
            }
        }
    }
    report("dependencies with a version of their own", &wrong);
}

#[test]
fn crates_use_those_below_them_only() {
    let (mut wrong, mut wings) = (Vec::new(), BTreeSet::new());
    for (folder, uses, tests_use) in MAY_USE {
        let manifest = manifest(folder);
        for of in DEPENDENCIES {
            let names = manifest.get(of).and_then(|of| of.as_table()).into_iter().flatten();
            for name in names.filter_map(|(name, _)| name.strip_prefix("undercroft-")) {
                let is_test = of == "dev-dependencies" && tests_use.contains(&name);
                let target =
                    MAY_USE.iter().find(|(folder, ..)| folder.ends_with(&format!("/{name}")));
                let points_to_lab = target.is_none_or(|(target, ..)| target.starts_with("lab/"));
                let leaves_wing = folder.starts_with("crates/") && points_to_lab;
                if !is_test && (leaves_wing || !uses.contains(&name)) {
                    wrong.push(format!("{folder} uses {name}"));
                }
            }
        }
        wings.extend(folder.split_once('/').map(|(wing, _)| wing));
    }
    let in_wing = |wing: &&str| fs::read_dir(root().join(wing)).unwrap().count();
    let crates: usize = wings.iter().map(in_wing).sum();
    assert_eq!(crates + 1, MAY_USE.len(), "a crate that the table does not know");
    report("arrows that are not among those allowed", &wrong);
}

/// The picture of crates in the document on the architecture, made from the table of this file:
/// those above come first. Random numbers, which most use, are left out.
fn picture() -> String {
    let list = |names: &[&str]| {
        let names = names.iter().copied().filter(|name| *name != "random");
        names.collect::<Vec<_>>().join(", ")
    };
    let mut text = String::from("    cli ---------> everything below\n");
    for wing in ["lab", "crates"] {
        text += &format!("\n    {wing}/\n");
        for (folder, uses, tests_use) in MAY_USE.iter().rev() {
            let Some(name) = folder.strip_prefix(&format!("{wing}/")) else { continue };
            let (uses, tests_use) = (list(uses), list(tests_use));
            let uses = if uses.is_empty() { "nothing of ours" } else { &uses };
            let arrow = "-".repeat(12 - name.len());
            let tests = format!(" (its tests: {tests_use})");
            let tests = if tests_use.is_empty() { "" } else { &tests };
            text += &format!("    {name} {arrow}> {uses}{tests}\n");
        }
    }
    text
}

#[test]
fn the_picture_of_crates_is_what_they_use() {
    let text = fs::read_to_string(root().join("docs/developer/architecture.md")).unwrap();
    let picture = picture();
    assert!(text.contains(&picture), "docs/developer/architecture.md is to contain:\n\n{picture}");
}
